package experiment

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"watchlab/bench/lab"
	"watchlab/bench/pipeline"
	"watchlab/bench/profile"
	"watchlab/impls"
	"watchlab/impls/deltafifo"
	"watchlab/impls/merge"
	"watchlab/loadgen/fault"
	"watchlab/loadgen/manifest"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/share"
	"watchlab/loadgen/storm"
	"watchlab/loadgen/trace"
)

const (
	// DefaultStorm is a small storm for a first run.
	DefaultStorm = "recorded-nodeloss"

	// defaultRounds of a comparison.
	defaultRounds = 5
	// defaultKneeRounds is the number of rounds of each rate: the smallest number with a
	// majority.
	defaultKneeRounds = 3
	// defaultLiveRounds of a comparison on a live cluster, where a round takes 30 s.
	defaultLiveRounds = 3
)

// Plan is a planned experiment, ready for package lab.
type Plan struct {
	// Spec is the experiment with its defaults filled in.
	Spec Spec
	// Comparisons to play.
	Comparisons []lab.Comparison
	// Options of the run. The caller adds the folder, resuming, progress and build.
	Options lab.Options
	// Profiles are the kinds of pprof profiles to take.
	Profiles []profile.Kind
	// Notes are lines for the user about the plan.
	Notes []string

	// finish adds the results of a search to the outcome; nil without a search. close
	// removes written objects from the cluster; nil for none.
	finish func(*lab.Outcome) error
	close  func() error
}

// New plans an experiment: it validates the Spec, loads its storm, and connects to its
// cluster for a live source. stdin is the content of the manifest "-". Every error is
// about the Spec or a file or cluster that it names. Close the Plan after the run.
func New(ctx context.Context, spec Spec, stdin io.Reader) (*Plan, error) {
	spec, err := spec.named()
	if err != nil {
		return nil, err
	}
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	p := &planner{ctx: ctx, stdin: stdin, storms: map[string]*loaded{}}
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
	case liveSource(spec.Source):
		err = p.planLive(plan)
	default:
		err = p.planOne(plan)
	}
	if err != nil {
		return nil, err
	}
	if spec.Memory && slices.ContainsFunc(plan.Comparisons, func(c lab.Comparison) bool { return c.More != nil }) {
		return nil, badField("memory", errors.New("is not for a search: what it plays depends on what it has found"))
	}
	plan.Options = plan.Spec.options()
	if of, _ := plan.Spec.shareOf(); !of.Whole() {
		plan.Options.Name = fmt.Sprintf("%s-share-%d-of-%d", spec.Name, of.Index, of.Count)
	}
	return plan, nil
}

// options returns the lab's options for a Spec with its defaults.
func (s Spec) options() lab.Options {
	return lab.Options{
		Name: s.Name, Rounds: s.Rounds, Budget: s.Budget.Duration, Seed: s.Seed,
		NoAA: s.Search != nil && s.Search.Knee != nil, Experiment: s.JSON(),
	}
}

// Finish adds the results of a search (knees, scalings, surfaces) to the outcome.
func (p *Plan) Finish(o *lab.Outcome) error {
	if p.finish == nil {
		return nil
	}
	// The outcome of a resumed run has the results of its first part. They are computed
	// again.
	o.Knees, o.Scalings, o.Surfaces = nil, nil, nil
	return p.finish(o)
}

// Close removes the objects that the run has written into a cluster.
func (p *Plan) Close() error {
	if p.close == nil {
		return nil
	}
	return p.close()
}

// planner plans one experiment. It loads a storm once, even if several points play it.
type planner struct {
	ctx    context.Context
	stdin  io.Reader
	storms map[string]*loaded
}

// loaded is a storm with the faults of its file.
type loaded struct {
	storm  *storm.Storm
	faults []fault.Spec
}

func (p *planner) planOne(plan *Plan) error {
	s := plan.Spec
	ps, err := p.pipelineSpec(s)
	if err != nil {
		return err
	}
	if !ps.Share.Whole() {
		plan.Notes = append(plan.Notes, balance(ps.Share, ps.Storm))
	}
	plan.Comparisons, err = compare(ps)
	return err
}

// balance describes the division of a storm into shares.
func balance(of share.Share, s *storm.Storm) string {
	sizes := share.Sizes(s, of.Count)
	return fmt.Sprintf("share %v has %d of the storm's %d events; the smallest share has %d, the largest %d",
		of, sizes[of.Index], len(s.Events), slices.Min(sizes), slices.Max(sizes))
}

// planParts interleaves all parts: the cells of one family become one comparison.
func (p *planner) planParts(plan *Plan) error {
	at := map[string]int{}
	retries := map[int][]retry{}
	for _, part := range plan.Spec.Parts {
		full := plan.Spec.inherit(part).withDefaults()
		ps, err := p.pipelineSpec(full)
		if err != nil {
			return err
		}
		comparisons, err := compare(ps)
		if err != nil {
			return err
		}
		for _, c := range comparisons {
			i, known := at[c.Family]
			if !known {
				i = len(plan.Comparisons)
				at[c.Family] = i
				title := plan.Spec.Title
				if title == "" {
					title = c.Title
				}
				plan.Comparisons = append(plan.Comparisons, lab.Comparison{Family: c.Family, Title: title, Latency: c.Latency})
			}
			merged := &plan.Comparisons[i]
			merged.Cells = append(merged.Cells, c.Cells...)
			merged.Input = digestOf(merged.Input, c.Input)
			if merged.Latency != c.Latency {
				merged.Latency = ""
			}
		}
		i := at[full.Family]
		retries[i] = append(retries[i], retry{spec: ps, compare: compare})
	}
	if plan.Spec.RetryPaces > 0 && !plan.Spec.Memory {
		for i := range plan.Comparisons {
			plan.Comparisons[i].More = slower(retries[i], plan.Spec.RetryPaces)
		}
	}
	return nil
}

// digestOf adds the digest of a part to that of the parts before it.
func digestOf(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		_, _ = io.WriteString(h, p+"\n") // A hash takes everything.
	}
	return hex.EncodeToString(h.Sum(nil))
}

// pipelineSpec converts a Spec with its defaults into the pipeline's config.
func (p *planner) pipelineSpec(s Spec) (pipeline.Config, error) {
	ps := pipeline.Config{
		Family: impls.Family(s.Family), Impls: s.variants(), Pipeline: s.Pipeline, Source: s.Source, Modes: s.Deliveries,
		Producers: s.Producers, Events: s.Events, Duration: s.Duration.Duration, Knobs: s.Knobs.pipeline(), Seed: s.Seed,
		Static: s.StaticPods, Consumers: s.Consumers, Readers: s.Readers, HandlerCost: s.HandlerCost.Duration,
		Stalled: s.Stalled, Procs: s.Procs, Stamps: pipeline.Stamps(s.Stamps), NoProbe: s.NoProbe,
	}
	var own, named []fault.Spec
	for _, step := range []func() error{
		func() (err error) { ps.Paces, err = s.pacesOf(); return },
		func() (err error) { ps.Budget, err = s.lagBudget(); return },
		func() (err error) { ps.Share, err = s.shareOf(); return },
		func() (err error) { named, err = s.faults(); return },
		func() (err error) { ps.Storm, own, err = p.load(s); return },
	} {
		if err := step(); err != nil {
			return ps, err
		}
	}
	ps.Faults = slices.Concat(own, named)
	return ps, nil
}

// allVariants selects all variants in flags and files.
const allVariants = "all"

func (s *Spec) variants() []string {
	if slices.Equal(s.Variants, []string{allVariants}) {
		return nil
	}
	return s.Variants
}

func (k Knobs) pipeline() pipeline.Knobs {
	return pipeline.Knobs{
		Capacity: k.Capacity, BatchSize: k.BatchSize, Shards: k.Shards,
		Compaction: deltafifo.Compaction(k.Compaction), HandOver: impls.Ownership(k.HandOver), Trust: merge.Trust(k.Trust),
	}
}

// compare returns the comparisons of a pipeline's config.
func compare(s pipeline.Config) ([]lab.Comparison, error) {
	comparisons, err := pipeline.Compare(s)
	if errors.Is(err, impls.ErrUnknownVariant) {
		return nil, badField("variants", err)
	}
	return comparisons, err
}

// load generates or reads the storm, with the faults of its file.
func (p *planner) load(s Spec) (*storm.Storm, []fault.Spec, error) {
	key := fmt.Sprintf("%+v %d %q %v", s.Storm, s.Seed, s.Manifests, s.Recursive)
	l := p.storms[key]
	if l == nil {
		set, err := s.Storm.Load(s.Seed)
		if err != nil {
			return nil, nil, badField("storm.name", err)
		}
		l = &loaded{storm: set.Storms[0], faults: set.Faults}
		if l.storm, err = p.withPods(s, l.storm); err != nil {
			return nil, nil, badField("manifests", err)
		}
		p.storms[key] = l
	}
	if len(l.faults) > 0 && s.Source != apiserverSource {
		return nil, nil, badField("storm.name", fmt.Errorf("%s has faults, which need --source %s", s.Storm.Name, apiserverSource))
	}
	return l.storm, l.faults, nil
}

// withPods replaces the storm's pods by pods of the manifests, if there are any.
func (p *planner) withPods(s Spec, from *storm.Storm) (*storm.Storm, error) {
	if len(s.Manifests) == 0 {
		return from, nil
	}
	objects, err := manifest.Load(p.ctx, manifest.Options{Filenames: s.Manifests, Recursive: s.Recursive, Stdin: p.stdin})
	if err != nil {
		return nil, err
	}
	templates, err := manifest.PodTemplates(objects)
	if err != nil {
		return nil, err
	}
	return from.WithPods(templates)
}

// IsComposition reports whether Name is a profile or a composition file.
func (s Storm) IsComposition() bool {
	return slices.Contains(storm.Names(), s.Name) || strings.HasSuffix(s.Name, ".yaml") || strings.HasSuffix(s.Name, ".yml")
}

// Composition returns the composition of a profile or a composition file.
func (s Storm) Composition(seed int64) (storm.Composition, error) {
	if !slices.Contains(storm.Names(), s.Name) {
		return storm.ReadFile(s.Name, seed)
	}
	p, err := storm.NewProfile(s.Name)
	if err != nil {
		return storm.Composition{}, err
	}
	p.Resize(s.Nodes, s.Pods, s.Scale)
	if s.Skew != "" {
		skew, err := storm.ParseSkew(s.Skew)
		if err != nil {
			return storm.Composition{}, err
		}
		p.Skew = skew
	}
	c := storm.Compose(p, seed)
	return c, c.Validate()
}

// Load generates or reads the storm, with all its resources.
func (s Storm) Load(seed int64) (*storm.Set, error) {
	if !s.IsComposition() {
		return trace.LoadSet(s.Name)
	}
	c, err := s.Composition(seed)
	if err != nil {
		return nil, err
	}
	return c.Set()
}

// retry is a part whose paced cells may be repeated at a lower rate.
type retry struct {
	spec    pipeline.Config
	compare func(pipeline.Config) ([]lab.Comparison, error)
}

// slower returns a [lab.Comparison].More. It replaces cells that the generator could not
// keep up with by cells at half the rate, up to a number of times.
func slower(parts []retry, times int) func([]lab.CellResult) []lab.Cell {
	return func(played []lab.CellResult) []lab.Cell {
		var next []lab.Cell
		for _, part := range parts {
			for _, first := range part.spec.Paces {
				if !first.Paced() {
					continue
				}
				next = append(next, part.slower(first, times, played)...)
			}
		}
		return next
	}
}

func (r retry) slower(first pace.Pace, times int, played []lab.CellResult) []lab.Cell {
	rate, err := pace.ParseRate(first.String())
	if err != nil {
		return nil // Only plain rates can be halved.
	}
	for range times {
		behind := map[string]bool{}
		for _, c := range played {
			if at, _ := c.Rate(); at == Rate(float64(rate)) && c.Repeats == "" && c.Verdict.Cause == lab.CauseGenerator {
				behind[c.NameWithout("rate")] = true
			}
		}
		rate /= 2
		s := r.spec
		s.Paces = []pace.Pace{rate.Pace()}
		comparisons, err := r.compare(s)
		if err != nil {
			return nil
		}
		var next []lab.Cell
		for _, c := range comparisons {
			for _, cl := range c.Cells {
				result := lab.CellResult{Name: cl.Name, Labels: cl.Labels}
				known := slices.ContainsFunc(played, func(c lab.CellResult) bool { return c.BenchName() == cl.BenchName() })
				if behind[result.NameWithout("rate")] && !known {
					next = append(next, cl)
				}
			}
		}
		if len(next) > 0 {
			return next
		}
	}
	return nil
}
