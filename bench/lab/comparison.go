package lab

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"watchlab/bench/cell"
	"watchlab/bench/stats"
)

type comparisonRun struct {
	r             *runner
	index, offset int // index in the outcome; position of its first play in a round ([Play])
	Comparison
	cells     []*cellRun
	first     int               // index of the phase's first cell
	baselines map[string]string // baseline cells, by the name without the variant
	warm      map[string]bool   // variants that this process has played
}

// cellRun is a cell in progress. Its rounds are in the outcome.
type cellRun struct {
	Cell
	c      *comparisonRun
	index  int  // in the comparison
	failed bool // the cell has a failed verdict
}

func (c *comparisonRun) result() *ComparisonResult { return &c.r.out.Comparisons[c.index] }

// resumed reports whether the resumed run has cells that are not planned yet.
func (c *comparisonRun) resumed() bool { return len(c.result().Cells) > len(c.cells) }

// result points into the outcome, which grows: do not keep the pointer.
func (t *cellRun) result() *CellResult { return &t.c.result().Cells[t.index] }

func (t *cellRun) rounds() []Round { return t.result().played() }

// impl returns the variant, the same for both cells of an A/A pair.
func (t *cellRun) impl() string { return strings.TrimSuffix(t.Label("impl"), againSuffix) }

// cold returns the phase's cells that warm up the process: one for each benchmark with its knobs,
// unpaced if there is one, and in a run of one process one for each variant; all where processes wait
// for each other. With several processes, warming up each variant would take as long as the rounds.
func (c *comparisonRun) cold() (cells []*cellRun) {
	if c.r.opts.PlayInFreshProcess != nil {
		return nil
	}
	if c.r.opts.BeforeRun != nil {
		return c.cells[c.first:]
	}
	warm := map[string]bool{}
	for _, paced := range []bool{false, true} {
		for _, t := range c.cells[c.first:] {
			variant, knobs := t.Name+" "+t.impl(), t.NameExcept("impl", "rate")
			known := warm[knobs] && (warm[variant] || c.r.opts.Processes > 1)
			if _, is := t.Rate(); is == paced && !t.failed && !c.warm[t.impl()] && !known {
				warm[variant], warm[knobs] = true, true
				cells = append(cells, t)
			}
		}
	}
	return cells
}

// add adds cells. If again is not empty, the last cell repeats the cell of that name.
// Cells that a resumed run knows must be the same.
func (c *comparisonRun) add(cells []Cell, again string) error {
	for i, cl := range cells {
		if err := c.check(cl); err != nil {
			return err
		}
		result := CellResult{
			Name: cl.Name, Labels: cl.Labels, Guarantees: cl.Guarantees, Class: cl.Class,
			Baseline: cl.Baseline, ByProcess: c.r.opts.Processes > 1, IgnoreHost: c.r.opts.IgnoreHost,
		}
		result.Verdict = result.verdictOf(nil)
		if i == len(cells)-1 {
			result.Repeats = again
		}
		if watch := c.r.opts.Watch; watch != nil {
			cl = watch(c.Family, cl, c.first > 0)
		}
		t := &cellRun{Cell: cl, c: c, index: len(c.cells)}
		if c.resumed() {
			known := t.result()
			if err := sameProperties(known.properties(), result.properties()); err != nil {
				return err
			}
			if t.failed = known.Verdict.Failed(); !t.failed {
				known.setRounds(known.played())
			}
		} else {
			c.result().Cells = append(c.result().Cells, result)
		}
		c.cells = append(c.cells, t)
	}
	return nil
}

func (c *comparisonRun) check(cl Cell) error {
	name := cl.BenchName()
	if err := stats.CheckName(name); err != nil {
		return fmt.Errorf("%w: %w", ErrOptions, err)
	}
	if c.r.names[name] {
		return invalid("cell %s appears twice: its rounds would be ambiguous", name)
	}
	c.r.names[name] = true
	// Ratios need exactly one baseline for the same knobs.
	if key := cl.NameExcept("impl"); cl.Baseline {
		if have, ok := c.baselines[key]; ok {
			return invalid("%s and %s are both the baseline of one table's row", have, name)
		}
		c.baselines[key] = name
	}
	return nil
}

const againSuffix = "-again" // of the variant's name in the second cell of an A/A pair

// pair returns the second cell of an A/A pair and the name of the first: see
// [Options].NoAA. Ratios are of throughput and relative to the baseline.
func pair(cells []Cell) (again Cell, of string) {
	at := slices.IndexFunc(cells, func(c Cell) bool {
		_, paced := c.Rate()
		return c.Baseline && !paced
	})
	if at < 0 {
		at = max(slices.IndexFunc(cells, func(c Cell) bool { return c.Baseline }), 0)
	}
	again = cells[at]
	again.Baseline = false
	again.Labels = slices.Clone(again.Labels)
	i := slices.IndexFunc(again.Labels, func(l Label) bool { return l.Key == "impl" })
	if i < 0 {
		i = len(again.Labels)
		again.Labels = append(again.Labels, Label{Key: "impl", Value: again.Name})
	}
	again.Labels[i].Value += againSuffix
	return again, cells[at].BenchName()
}

// playRound plays the cells of the phase that lack the round.
func (c *comparisonRun) playRound(ctx context.Context, phase, round, last int) error {
	plays := c.plan(phase, round, last)
	if len(plays) == 0 {
		return nil
	}
	c.result().Rounds = max(c.result().Rounds, last)
	for _, p := range plays {
		switch {
		case ctx.Err() != nil:
			return errInterrupted
		case p.skip():
			continue
		}
		p.start()
		if fresh := c.r.opts.PlayInFreshProcess; fresh != nil {
			p.measured, p.err = fresh(ctx, cmp.Or(p.result().Repeats, p.BenchName()))
		} else {
			p.measured, p.err = play(ctx, p.Cell, new(cell.Recorder), p.hook())
		}
		if err := p.finish(ctx); err != nil {
			return err
		}
	}
	return nil
}

// plan returns the plays of a round in an order drawn from the seed, which does not
// depend on earlier plays. A warm-up has the cold cells that lack a round; any other
// round has the cells without it.
func (c *comparisonRun) plan(phase, round, last int) []*cellPlay {
	rng := rand.New(rand.NewPCG(uint64(c.r.opts.Seed), uint64(phase)<<48|uint64(c.index)<<32|uint64(round)))
	cold := c.cold()
	var plays []*cellPlay
	for place, i := range rng.Perm(len(c.cells) - c.first) {
		t := c.cells[c.first+i]
		played := slices.ContainsFunc(t.rounds(), func(r Round) bool { return r.Round == round })
		if !played && (round > 0 || slices.Contains(cold, t) && len(t.rounds()) < last) {
			plays = append(plays, t.newPlay(round, place+1))
		}
	}
	return plays
}

// A cell is profiled for profileFor, but at most profilePlays times: with a sample
// every 10 ms, a play of 200 ms shows little.
const (
	profileFor   = time.Second
	profilePlays = 10
	profiled     = -1 // round number of these plays
)

func (c *comparisonRun) playProfiled(ctx context.Context) error {
	if c.r.opts.Profile == nil {
		return nil
	}
	for i, t := range c.cells {
		if ctx.Err() != nil {
			return errInterrupted
		}
		p := t.newPlay(profiled, i+1)
		p.progress.Round, p.progress.Profiling = 0, true
		if p.skip() {
			continue
		}
		p.start()
		if err := cmp.Or(p.profile(ctx), p.finish(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// profile plays the cell with profiles. The error is the profiler's.
func (p *cellPlay) profile(ctx context.Context) error {
	profiler := p.c.r.opts.Profile
	var measured time.Duration
	for range profilePlays {
		var err error
		rec := new(cell.Recorder)
		rec.Before(func() func() {
			stop, failed := profiler.Start(p.progress.Cell)
			err = failed
			return func() {
				if err == nil {
					err = stop()
				}
			}
		})
		profiler.Do(ctx, p.c.Family, p.Labels, func(ctx context.Context) { p.measured, p.err = play(ctx, p.Cell, rec, nil) })
		rec.Abandon()
		measured += p.measured.Elapsed
		if err != nil || p.err != nil || measured >= profileFor {
			return err
		}
	}
	return nil
}

type cellPlay struct {
	*cellRun
	round, place int
	progress     Progress
	started      time.Time
	measured     cell.Result
	err          error
}

func (t *cellRun) newPlay(round, place int) *cellPlay {
	return &cellPlay{
		cellRun: t, round: round, place: place,
		progress: Progress{Cell: t.BenchName(), Round: round},
	}
}

func (p *cellPlay) report(finished bool) {
	r := p.c.r
	if r.opts.Progress == nil {
		return
	}
	p.progress.Finished, p.progress.Result, p.progress.Outcome, p.progress.Spent = finished, *p.result(), r.out, r.spent()
	p.progress.Done, p.progress.Total, p.progress.Left = 0, 0, 0
	for _, c := range r.runs {
		for _, t := range c.cells {
			p.progress.Done += len(t.rounds())
			p.progress.Total += len(t.rounds()) + t.left()
		}
		p.progress.Left += c.cost(c.cells, (*cellRun).left)
	}
	p.progress.Rounds = r.opts.Rounds
	if r.opts.Budget > 0 {
		p.progress.Rounds, p.progress.Total, p.progress.Left = 0, 0, max(r.opts.Budget-r.spent(), 0)
	}
	r.opts.Progress(p.progress)
}

// left is the number of rounds to come.
func (t *cellRun) left() int {
	if t.failed {
		return 0
	}
	return max(t.c.r.opts.Rounds-len(t.rounds()), 0)
}

func (p *cellPlay) skip() bool {
	if p.failed {
		p.progress.Skipped = true
		p.report(true)
	}
	return p.failed
}

func (p *cellPlay) start() {
	p.report(false)
	p.started = time.Now()
}

// finish stores the result of a play. Errors of the workload go into the verdict; the
// returned error is that of the results folder, or errInterrupted.
func (p *cellPlay) finish(ctx context.Context) error {
	result, r := p.result(), p.c.r
	passed := time.Since(p.started)
	switch {
	case p.err != nil && ctx.Err() != nil && failure(p.err).Cause == CauseError:
		// Drop the play: the run ends.
		return errInterrupted
	case p.err != nil:
		p.failed = true
		result.set(failure(p.err), nil, nil)
	case p.round > 0:
		p.measured.GCNsPerByte = r.out.Env.GCNsPerByte
		round := Round{Round: p.round, Process: r.process, Place: p.place, Started: p.started, Took: passed, Result: p.measured}
		result.addRound(round)
	}
	p.c.warm[p.impl()] = true
	r.out.Spent = r.spent()
	// The warm-up of a sound cell leaves nothing to write.
	if r.lock != nil && (p.round > 0 || p.failed) {
		if err := r.out.saveRounds(r.out.Dir); err != nil {
			return err
		}
	}
	p.report(true)
	return nil
}

// Progress reports the state of a run.
type Progress struct {
	Cell          string // benchmark name
	Round, Rounds int    // Round 0 is the warm-up; Rounds is 0 with a budget
	Profiling     bool   // the round takes pprof profiles
	// Done counts finished rounds of cells, including those of a resumed run. Total is 0 with a budget, grows when
	// [Comparison].NextCells adds cells, and falls when a cell fails.
	Done, Total       int
	Spent, Left       time.Duration // Spent: over all processes; Left: estimated, 0 while unknown
	Finished, Skipped bool          // Finished: false before the play, true after; Skipped: the cell was invalid
	Result            CellResult    // of the cell so far
	Outcome           *Outcome      // of the run so far; it changes after the call
}

// phaseCost estimates the time to play each cell of the phase once.
func (r *runner) phaseCost() (sum time.Duration) {
	for _, c := range r.runs {
		sum += c.cost(c.cells[c.first:], func(*cellRun) int { return 1 })
	}
	return sum
}

// cost estimates the time to play each cell times(cell) times, from the rounds so far. A cell without a round costs the
// mean of all rounds.
func (c *comparisonRun) cost(cells []*cellRun, times func(*cellRun) int) (sum time.Duration) {
	var all []Round
	for _, cl := range c.r.out.Cells() {
		all = append(all, cl.played()...)
	}
	mean := meanTime(all)
	for _, t := range cells {
		if !t.failed {
			sum += time.Duration(times(t)) * cmp.Or(meanTime(t.rounds()), mean)
		}
	}
	return sum
}

// meanTime returns the mean time of a round; 0 for none.
func meanTime(rounds []Round) time.Duration {
	var sum time.Duration
	for _, r := range rounds {
		sum += r.Took
	}
	return sum / time.Duration(max(len(rounds), 1))
}
