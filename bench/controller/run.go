package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"watchlab/bench/controller/verdict"
	"watchlab/bench/lab"
	"watchlab/bench/stats"
	"watchlab/loadgen/fault"
)

// Options of a run that do not change what is played.
type Options struct {
	Dir      string    // results folder, which must not exist
	Stdin    io.Reader // of manifests named -
	Build    lab.Build
	Args     []string       // of the command, for env.json
	Progress func(Progress) // receives the state of the run; may be nil
	Notify   func(string)   // receives a line of what does not end the run, and the kubeconfigs of an attached program; may be nil

	timing timing // zero for the default
}

// complete fills in what may be nil.
func (o Options) complete() Options {
	if o.Notify == nil {
		o.Notify = func(string) {}
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	return o
}

// Progress is the state of a run.
type Progress struct {
	Play, Plays int    // number of the play, from 1, and of all planned
	Name        string // of the play
	Exploring   string // faults of a plan of explore, which is not one of Plays; empty for others
	// Shrinking is the largest number of plays that shrinking takes, which follow the planned ones; 0 before it.
	Shrinking int
	Point     bool // the plays are points of [Size]
}

// String returns the state in one line.
func (p Progress) String() string {
	switch {
	case p.Exploring != "":
		return "exploring: " + p.Exploring
	case p.Play > p.Plays:
		return fmt.Sprintf("shrinking: play %d of at most %d (an interrupt keeps the results)", p.Play-p.Plays, p.Shrinking)
	case p.Point:
		return fmt.Sprintf("point %d of %d: %s", p.Play, p.Plays, p.Name)
	}
	return fmt.Sprintf("play %d of %d: %s", p.Play, p.Plays, p.Name)
}

// most is the number of plays that shrinking may take, and repeats that of plays of the smallest plan and of an explored
// one that fails.
const (
	most    = 16
	repeats = 3
)

type runner struct {
	Options
	given     Spec // as the caller gave it
	spec      Spec // with the defaults
	prepared  *prepared
	seed      int64 // of prepared
	result    *Result
	faultless map[part]*faultless
	n         int // of the play
	extra     int // of them, of explore
	most      int // Shrinking of Progress
}

// part names the plays of a program in a round, which have one seed.
type part struct {
	program string
	round   int
}

// faultless is a play without faults.
type faultless struct {
	*verdict.Outcome
	suggested []plan
	varied    bool // what differs by chance is known
}

// Run plays a Spec. Finished plays are in the results folder after each play. If ctx ends, the result has
// them and the smallest plan so far, and is marked as interrupted. The error of bad input is a [*manifest.Error].
func Run(ctx context.Context, spec Spec, opts Options) (*Result, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	given := spec
	spec = spec.complete()
	if spec.Attach {
		spec.Programs = []Program{{Label: New}}
	}
	opts = opts.complete()
	ready, err := opts.prepare(ctx, spec)
	if err != nil {
		return nil, err
	}
	r := &runner{Options: opts, given: given, spec: spec, prepared: ready, seed: spec.Seed, faultless: map[part]*faultless{}, result: &Result{
		Spec: spec.redacted(), Env: lab.CaptureEnv(time.Now(), opts.Build, opts.Args),
	}}
	for _, p := range spec.Programs {
		r.result.Programs = append(r.result.Programs, p.Label)
	}
	if err := r.create(); err != nil {
		return nil, err
	}
	err = r.all(ctx)
	if ctx.Err() != nil {
		r.result.Interrupted, err = true, nil
	}
	r.result.finish()
	return r.result, errors.Join(err, r.save())
}

// all plays all plans of all programs in all rounds. The order of the programs alternates.
func (r *runner) all(ctx context.Context) error {
	for round := range r.spec.Rounds {
		for _, pl := range r.prepared.plans {
			programs := slices.Clone(r.spec.Programs)
			if round%2 == 1 {
				slices.Reverse(programs)
			}
			for _, program := range programs {
				var err error
				if pl.name == PlanExplore {
					err = r.explore(ctx, program, round+1)
				} else {
					_, err = r.planned(ctx, program, pl, round+1)
				}
				if err != nil {
					return err
				}
			}
		}
	}
	if r.spec.Unshrunk {
		return nil
	}
	return r.shrink(ctx)
}

// planned plays a plan, adds the play to the result, and reports whether it failed.
func (r *runner) planned(ctx context.Context, program Program, pl plan, round int) (failed bool, err error) {
	play, err := r.play(ctx, program, pl, round)
	if err != nil {
		return false, err
	}
	r.result.Plays = append(r.result.Plays, *play)
	r.result.finish()
	return play.Failed(), r.save()
}

// play plays and judges one play.
func (r *runner) play(ctx context.Context, program Program, pl plan, round int) (*Play, error) {
	seed := r.spec.Seed + int64(round) - 1
	if seed != r.seed {
		var err error
		if r.prepared, err = r.prepared.again(r.spec, seed); err != nil {
			return nil, err
		}
		r.seed = seed
	}
	r.n++
	out := &Play{Plan: pl.name, Round: round, Name: fmt.Sprintf("program=%s/faults=%s/round=%d", program.Label, pl.name, round)}
	out.Folder = filepath.Join(playsDir, fmt.Sprintf("%02d-%s-%s", r.n, program.Label, fileName(pl.name)))
	planned := slices.DeleteFunc(slices.Clone(r.prepared.plans), func(p plan) bool { return p.name == PlanExplore })
	plays := r.spec.Rounds * len(planned) * len(r.spec.Programs) // before shrinking, those of explore aside
	progress := Progress{Play: r.n - r.extra, Plays: plays, Name: out.Name, Shrinking: r.most}
	if out.Explored() {
		progress.Exploring = pl.text()
		r.extra++
	}
	r.Progress(progress)
	s := &session{
		spec: r.spec, prepared: r.prepared, program: program, plan: pl, seed: seed, dir: filepath.Join(r.Dir, out.Folder),
		timing: cmp.Or(r.timing, defaultTiming), notify: r.Notify,
	}
	of := part{program.Label, round}
	free := r.faultless[of]
	if free != nil {
		s.free = free.Outcome
	}
	var err error
	if out.Play, err = s.play(ctx); err != nil {
		return nil, err
	}
	out.LoggedErrors = s.loggedErrors()
	reactions, violations := r.prepared.rules.Judge(&out.Play)
	out.Verdicts = verdict.Judge(&out.Play, reactions, violations)
	switch outcome := verdict.OutcomeOf(&out.Play); {
	case len(pl.faults) == 0 && free == nil:
		r.faultless[of] = &faultless{Outcome: outcome, suggested: explored(&out.Play)}
	case len(pl.faults) == 0:
		free.Vary(outcome)
		free.varied = true
	case free != nil:
		diverged := verdict.Diverge(free.Outcome, outcome)
		if diverged.Failed && !free.varied {
			// By chance, perhaps, as a password does. An interrupt shows at the next play.
			_, _ = r.play(ctx, program, plan{name: PlanExplore + "-00"}, round)
			diverged = verdict.Diverge(free.Outcome, outcome)
		}
		out.Verdicts = append(out.Verdicts, diverged, verdict.Acted(free.Outcome, outcome, &out.Play))
		out.Verdicts = append(out.Verdicts, verdict.Wedge(free.Outcome, outcome, &out.Play, out.Verdicts))
	}
	verdict.Explain(&out.Play, out.Verdicts)
	if err := out.summarise(reactions); err != nil {
		return nil, err
	}
	if err := out.saveRecords(filepath.Join(r.Dir, out.Folder)); err != nil {
		return nil, err
	}
	// The record is as large as the storm.
	out.Accesses, out.Changes, out.Scrapes, out.Samples, out.Lags = nil, nil, nil, nil, nil
	return out, nil
}

func fileName(plan string) string { return strings.NewReplacer("+", "-", "/", "-").Replace(plan) }

// shrink finds the smallest fault plan that still fails, of the first play with faults that failed, and if possible each
// time.
func (r *runner) shrink(ctx context.Context) error {
	candidate := func(p Play) bool { return p.Failed() && len(p.Faults) > 0 }
	first := slices.IndexFunc(r.result.Plays, func(p Play) bool {
		return candidate(p) && !slices.ContainsFunc(r.result.Plays, func(other Play) bool { return other.Name == p.Name && !other.Failed() })
	})
	if first < 0 {
		first = slices.IndexFunc(r.result.Plays, candidate)
	}
	if first < 0 {
		return nil
	}
	failed := r.result.Plays[first]
	name := failed.Failure().Name
	out := &Shrunk{Plan: failed.Plan, Verdict: name}
	program := r.spec.Programs[slices.Index(r.result.Programs, failed.Program)]
	again := func(ctx context.Context, faults []fault.Spec) (bool, error) {
		play, err := r.play(ctx, program, plan{fmt.Sprintf("shrink-%d", out.Plays+1), faults}, failed.Round)
		if err != nil {
			return false, err
		}
		out.Plays++
		return play.fails(name), nil
	}
	smallest := fault.Occurrences(failed.Faults, r.prepared.length)
	out.Of = len(smallest)
	// Without faults it may have been played already.
	bare := slices.IndexFunc(r.result.Plays, func(p Play) bool {
		return p.Plan == PlanNone && p.Program == failed.Program && p.Round == failed.Round
	})
	r.most = 1 + most + repeats
	err := func() (err error) {
		var fails bool
		if bare >= 0 {
			fails = r.result.Plays[bare].fails(name)
		} else if fails, err = again(ctx, nil); err != nil {
			return err
		}
		if fails {
			smallest = nil
		} else if smallest, _, err = verdict.Shrink(ctx, smallest, again, most); err != nil {
			return err
		}
		for range repeats {
			fails, err := again(ctx, smallest)
			if err != nil {
				return err
			}
			if out.Repeated++; fails {
				out.Failed++
			}
		}
		return nil
	}()
	if out.Plays == 0 {
		return err // nothing is known
	}
	for _, f := range smallest {
		out.Faults = append(out.Faults, f.String())
	}
	out.Command = lab.Redact(r.given.command(program, out.Faults, failed.Seed))
	r.result.Shrunk = out
	return err
}

func (p *Play) fails(name string) bool {
	return slices.ContainsFunc(p.Verdicts, func(v verdict.Verdict) bool { return v.Failed && v.Name == name })
}

// finish computes what follows from all plays: the comparison and the sentence.
func (o *Result) finish() {
	o.Compared = nil
	if len(o.Programs) == 2 {
		o.compare()
	}
	o.Sentence = o.sentence()
}

// compare compares the figures of each plan. With so many figures, some would differ by chance:
// Bonferroni's correction is for all of them.
func (o *Result) compare() {
	type cell struct{ plan, unit string }
	var cells []cell
	values := map[cell]map[string][]float64{}
	for _, p := range o.Plays {
		for _, unit := range Units {
			c := cell{p.Plan, unit.Name}
			v, ok := p.Figures[unit.Name]
			if !ok {
				continue
			}
			if values[c] == nil {
				values[c] = map[string][]float64{}
				cells = append(cells, c)
			}
			values[c][p.Program] = append(values[c][p.Program], v)
		}
	}
	for _, c := range cells {
		v := values[c]
		old, now := v[o.Programs[0]], v[o.Programs[1]]
		if len(old) == 0 || len(now) == 0 {
			continue // not played yet
		}
		s := stats.Compare(old, now).BestOf(len(cells))
		out := Compared{Cell: "faults=" + c.plan, Unit: c.unit, Stats: s}
		if s.From == 0 {
			out.Stats.Ratio = 0
		}
		if s.Significant {
			out.Lost, out.Won = s.To > s.From, s.To < s.From
		}
		o.Compared = append(o.Compared, out)
	}
}
