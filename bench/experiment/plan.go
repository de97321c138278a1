package experiment

import (
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"watchlab/bench/lab"
	"watchlab/bench/pipeline"
	"watchlab/bench/pprof"
	"watchlab/bench/stats"
	"watchlab/bench/telemetry"
	"watchlab/impls"
	"watchlab/loadgen/manifest"
	"watchlab/loadgen/storm"
	"watchlab/loadgen/trace"
)

const DefaultStorm = "recorded-nodeloss" // a small storm for a first run

// Plan is a planned experiment, ready for package lab.
type Plan struct {
	Spec        Spec             // experiment with its defaults filled in
	Comparisons []lab.Comparison // comparisons to play
	Options     lab.Options      // of the run; the caller adds folder, resuming, progress, build
	Profiles    []pprof.Kind     // kinds of pprof profiles to take

	objectives []stats.Objective  // of a search for the knee
	finish     func(*lab.Outcome) // adds the results of a search; nil without one
}

//go:embed quick.yaml
var quickYAML []byte

// Quick returns the default experiment of a run without arguments.
func Quick() Spec {
	s, err := Parse("quick.yaml", quickYAML)
	if err != nil {
		panic(err) // A test reads it.
	}
	return s
}

// runFields are accepted by the quick experiment: they choose no variants, pipeline or storm.
var runFields = []string{"rounds", "budget", "processes", "seed", "memory", "profiles", "ignoreHost"}

// named returns the quick experiment if the Spec names nothing to play; else the Spec.
func (s Spec) named() (Spec, error) {
	if s.Family != "" || s.Pipeline != "" || s.Storm.Name != "" || s.Search != nil || len(s.Parts) > 0 {
		return s, nil
	}
	for _, f := range Given(&s) {
		if !slices.Contains(runFields, f.Path) {
			return s, manifest.Bad(f.Path, "needs --family: the quick experiment has its own")
		}
	}
	quick := Quick()
	if s.Rounds > 0 || s.Budget.Duration > 0 {
		quick.Rounds, quick.Budget.Duration = 0, 0
	}
	return quick, json.Unmarshal(s.JSON(), &quick)
}

// HasParts reports whether [New] plays several storms: the parts of the Spec, or those of the
// quick experiment.
func (s Spec) HasParts() bool {
	named, err := s.named()
	return err == nil && len(named.Parts) > 0
}

// New validates the Spec and loads its storm. Every error is about the Spec or a file that it names.
func New(spec Spec) (*Plan, error) {
	spec, err := spec.named()
	if err != nil {
		return nil, err
	}
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	p := &planner{storms: map[string]*storm.Storm{}}
	spec = spec.withDefaults()
	plan := &Plan{Spec: spec}
	if plan.Profiles, err = spec.profileKinds(); err != nil {
		return nil, err
	}
	switch {
	case len(spec.Parts) > 0:
		err = p.planParts(plan)
	case spec.Search != nil:
		err = p.planSearch(plan)
	default:
		plan.Comparisons, err = p.compare(spec)
	}
	if err != nil {
		return nil, err
	}
	if spec.Memory && slices.ContainsFunc(plan.Comparisons, func(c lab.Comparison) bool { return c.NextCells != nil }) {
		return nil, manifest.Bad("memory", "is not for a search: what it plays depends on what it has found")
	}
	if err := plan.checkClaims(); err != nil {
		return nil, err
	}
	plan.Options = lab.Options{
		Name: spec.Name, Rounds: spec.Rounds, Budget: spec.Budget.Duration, Seed: spec.Seed,
		NoAA: spec.isKnee(), IgnoreHost: spec.IgnoreHost, Experiment: spec.JSON(),
	}
	if spec.Share != "" && !strings.HasSuffix(spec.Share, "/1") {
		plan.Options.Name = spec.Name + "-share-" + strings.Replace(spec.Share, "/", "-of-", 1)
	}
	return plan, nil
}

// budgetProcesses share a budget. With one value each, four are the least that a test takes, and six
// the least that an interval takes.
const budgetProcesses = 6

// processes returns the number of processes for a run with a results folder.
func (p *Plan) processes() int {
	switch s := p.Spec; {
	case s.Memory, s.isKnee() && s.Processes == 0:
		return 1
	case s.Processes > 0:
		return s.Processes
	case s.Budget.Duration > 0:
		return min(cmp.Or(s.Rounds, budgetProcesses), budgetProcesses)
	default:
		return s.Rounds
	}
}

// Run plays the plan, in this process or in processes of its own. opts are its Options with what the caller adds;
// session may be nil. It returns the outcome that [lab.Run] returns, with the answers to the claims once it is over.
func (p *Plan) Run(ctx context.Context, session *telemetry.Session, opts lab.Options) (*lab.Outcome, error) {
	session.Objectives(p.objectives)
	if opts.Dir != "" {
		opts.Processes = p.processes()
	}
	if p.Spec.Memory {
		opts.PlayInFreshProcess = p.Spec.PlayInProcess
	}
	if len(p.Profiles) > 0 {
		opts.Profile = pprof.NewProfiler(opts.Dir, p.Profiles)
	}
	opts.Progress, opts.Watch = session.Progress(opts.Progress), session.Watch
	o, err := lab.Run(ctx, p.Comparisons, opts)
	if o != nil && (err != nil || !o.Paused) {
		// Finished cells are kept even if the run failed.
		p.Finish(o)
		session.Over(o)
	}
	return o, err
}

// Finish adds the answers to the claims, and the results of a search (knees, scalings), to the outcome.
func (p *Plan) Finish(o *lab.Outcome) {
	o.Claims = judge(p.Spec.Claims, o)
	if p.finish != nil {
		// A resumed run has the results of its first part.
		o.Knees, o.Scalings = nil, nil
		p.finish(o)
	}
}

// planner loads a storm once, even if several points play it.
type planner struct{ storms map[string]*storm.Storm }

// compare returns the comparisons of a Spec without parts and without a search.
func (p *planner) compare(s Spec) ([]lab.Comparison, error) {
	config, err := p.config(s)
	if err != nil {
		return nil, err
	}
	return compare(config)
}

// planParts interleaves all parts: the cells of one family become one comparison.
func (p *planner) planParts(plan *Plan) error {
	for i, part := range plan.Spec.Parts {
		comparisons, err := p.compare(plan.Spec.inherit(part).withDefaults())
		if err != nil {
			return inPart(i, err)
		}
		for _, c := range comparisons {
			i := slices.IndexFunc(plan.Comparisons, func(o lab.Comparison) bool { return o.Family == c.Family })
			if i < 0 {
				c.Title = cmp.Or(plan.Spec.Title, c.Title)
				plan.Comparisons = append(plan.Comparisons, c)
				continue
			}
			whole := &plan.Comparisons[i]
			whole.Cells = append(whole.Cells, c.Cells...)
			whole.Input = digestOf(whole.Input, c.Input)
		}
	}
	return nil
}

// inPart adds the part to the field of an error.
func inPart(i int, err error) error {
	if bad, ok := errors.AsType[*manifest.Error](err); ok {
		return manifest.BadField(fmt.Sprintf("parts.%d.%s", i, bad.Field), bad.Err)
	}
	return err
}

// digestOf combines the digests of parts; empty if one is unknown.
func digestOf(parts ...string) string {
	if slices.Contains(parts, "") {
		return ""
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(parts, "\n"))))
}

// config returns the pipeline's part of a Spec, with its text parsed and its storm loaded.
func (p *planner) config(s Spec) (pipeline.Config, error) {
	c := s.Config
	c.Duration, c.HandlerCost = s.Duration.Duration, s.HandlerCost.Duration
	if slices.Equal(s.Impls, []string{"all"}) {
		c.Impls = nil // no choice: all variants of the family
	}
	if err := s.parse(&c); err != nil {
		return c, err
	}
	key := fmt.Sprintf("%+v %d", s.Storm, s.Seed)
	if p.storms[key] == nil {
		set, err := s.Storm.Load(s.Seed)
		if err != nil {
			return c, manifest.BadField("storm.name", err)
		}
		p.storms[key] = set.Storms[0]
	}
	c.Storm = p.storms[key]
	return c, nil
}

func compare(s pipeline.Config) ([]lab.Comparison, error) {
	comparisons, err := pipeline.Compare(s)
	if errors.Is(err, impls.ErrUnknownVariant) {
		return nil, manifest.BadField("variants", err)
	}
	return comparisons, err
}

// IsProfile reports whether Name is a profile.
func (s Storm) IsProfile() bool { return slices.Contains(storm.Names(), s.Name) }

// Profile returns the profile in its size.
func (s Storm) Profile() (*storm.Profile, error) {
	p, err := storm.NewProfile(s.Name)
	if err != nil {
		return nil, err
	}
	p.Resize(s.Nodes, s.Pods, s.Scale)
	if s.Skew != "" {
		if p.Skew, err = storm.ParseSkew(s.Skew); err != nil {
			return nil, err
		}
	}
	return p, p.Validate()
}

// Load generates or reads the storm, with all its resources.
func (s Storm) Load(seed int64) (*storm.Set, error) {
	if !s.IsProfile() {
		return trace.LoadSet(s.Name)
	}
	p, err := s.Profile()
	if err != nil {
		return nil, err
	}
	return p.Set(seed)
}
