package lab

import (
	"context"
	"errors"
	"slices"
	"time"

	"watchlab/bench/cell"
)

// cellRun holds the rounds of a cell so far. The outcome never holds figures of an
// invalid cell, but the next round may change the verdict of a paced one.
type cellRun struct {
	failed bool
	rounds []Round
	closed bool
	left   int
	took   took
}

func (t *cellRun) has(round int) bool {
	return slices.ContainsFunc(t.rounds, func(r Round) bool { return r.Round == round })
}

// profiled is the round of plays for profiles.
const profiled = -1

// cellPlay is one play of a cell.
type cellPlay struct {
	*comparisonRun
	cell         int
	cellRun      *cellRun
	round, place int
	progress     Progress
	started      time.Time
	clock        time.Time
	measured     cell.Result
	err          error
}

func (c *comparisonRun) newPlay(i, round, place int) *cellPlay {
	return &cellPlay{
		comparisonRun: c, cell: i, cellRun: c.cellRuns[i], round: round, place: place,
		progress: Progress{
			Family: c.Family, Title: c.Title, Cell: c.result().Cells[i].BenchName(),
			Round: round,
		},
	}
}

// found is the cell in the outcome. The outcome grows, so the pointer is not kept.
func (t *cellPlay) found() *CellResult { return &t.result().Cells[t.cell] }

func (t *cellPlay) report(finished bool) {
	if t.r.opts.Progress == nil {
		return
	}
	t.progress.Finished, t.progress.Verdict = finished, t.found().Verdict
	t.progress.Done, t.progress.Left = t.r.done, t.r.left()
	if t.r.opts.Budget == 0 {
		t.progress.Rounds, t.progress.Total = t.r.opts.Rounds, t.r.total
	}
	t.r.opts.Progress(t.progress)
}

// skip passes over a cell that is invalid.
func (t *cellPlay) skip() bool {
	if !t.cellRun.failed {
		return false
	}
	t.progress.Skipped = true
	t.behind()
	t.report(true)
	return true
}

// behind counts the play as done.
func (t *cellPlay) behind() {
	t.r.done++
	t.cellRun.left = max(t.cellRun.left-1, 0)
}

// start notes the time before Setup.
func (t *cellPlay) start() {
	t.report(false)
	t.started, t.clock = t.r.opts.Now(), time.Now()
}

// settle keeps what a play measured. Errors of the workload go into the verdict; the
// returned error is the results folder's.
func (t *cellPlay) settle(ctx context.Context) error {
	result, kept := t.found(), t.cellRun
	passed := time.Since(t.clock)
	switch {
	case t.err != nil && ctx.Err() != nil && !breaksInvariant(t.err):
		// Dropped: the run ends.
		t.r.out.Interrupted = true
		return nil
	case t.err != nil:
		kept.failed, kept.rounds = true, nil
		result.Verdict = broken(t.err)
	case t.round > 0:
		kept.rounds = append(kept.rounds, Round{Round: t.round, Place: t.place, Started: t.started, Took: passed, Result: t.measured})
		result.Verdict = judge(result.Labels, kept.rounds)
	}
	t.behind()
	kept.took.add(passed)
	t.r.all.add(passed)
	t.r.out.Spent = t.r.spent()
	wasShown := len(result.Rounds) > 0
	publish(result, kept.rounds, t.Latency)
	var err error
	// The warm-up of a sound cell leaves nothing to write.
	if t.round > 0 || kept.failed {
		err = t.r.folder.cellPlayed(t.r.out, t.index, t.cell, wasShown, kept.rounds)
	}
	t.report(true)
	return err
}

// breaksInvariant reports whether err names an invariant; such an error counts even if
// ctx has ended.
func breaksInvariant(err error) bool {
	for _, inv := range invariants {
		if errors.Is(err, inv.err) {
			return true
		}
	}
	return false
}

// publish shows the rounds in the outcome, or none of an invalid cell.
func publish(result *CellResult, rounds []Round, headline cell.Boundary) {
	result.Lag = medianLag(rounds)
	result.Rounds, result.Latency, result.Medians = nil, nil, nil
	if result.Verdict.Status == Invalid || len(rounds) == 0 {
		return
	}
	result.Rounds = rounds
	result.Latency = pool(rounds)
	result.Medians = result.Samples(headline).Summaries()
}

// pool adds up the latencies of the rounds. It leaves out a boundary whose histograms
// cannot be added, which needs a different workload in each round.
func pool(rounds []Round) []cell.Latency {
	var pooled []cell.Latency
	for _, first := range rounds[0].Result.Latency {
		parts := make([]cell.Quantiles, 0, len(rounds))
		for _, r := range rounds {
			if l, ok := r.Result.At(first.Boundary); ok {
				parts = append(parts, l.Quantiles)
			}
		}
		if sum, err := cell.MergeHistograms(parts...); err == nil {
			pooled = append(pooled, cell.Latency{Boundary: first.Boundary, Quantiles: sum})
		}
	}
	return pooled
}
