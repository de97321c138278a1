package lab

import (
	"context"
	"errors"
	"slices"
	"time"

	"watchlab/bench/cell"
)

// cellRun holds the rounds of a cell so far. It is separate from the outcome, which
// never holds figures of an invalid cell: the next round of a paced cell may change its
// verdict.
type cellRun struct {
	failed bool    // the cell has a failed verdict
	rounds []Round // finished rounds, shown or not
	closed bool    // it had failed before the run was resumed
	left   int     // plays to come
	took   took    // times of the plays so far
}

func (t *cellRun) has(round int) bool {
	return slices.ContainsFunc(t.rounds, func(r Round) bool { return r.Round == round })
}

// profiled is the round number of plays for profiles.
const profiled = -1

// cellPlay is one play of a cell.
type cellPlay struct {
	*comparisonRun
	cell         int // index in the comparison
	cellRun      *cellRun
	round, place int
	progress     Progress
	started      time.Time // timestamp for the results
	clock        time.Time // monotonic, for the duration
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

// found returns the cell in the outcome. Do not keep the pointer: the outcome grows.
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

// skip skips an invalid cell and reports whether it did.
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

// settle stores the result of a play. Errors of the workload go into the verdict; the
// returned error is that of the results folder.
func (t *cellPlay) settle(ctx context.Context) error {
	result, kept := t.found(), t.cellRun
	passed := time.Since(t.clock)
	switch {
	case t.err != nil && ctx.Err() != nil && !breaksInvariant(t.err):
		// Drop the cell: the run ends.
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

// breaksInvariant reports whether err wraps an invariant. Such an error counts even
// after the end of ctx.
func breaksInvariant(err error) bool {
	for _, inv := range invariants {
		if errors.Is(err, inv.err) {
			return true
		}
	}
	return false
}

// publish puts the rounds into the outcome; an invalid cell gets none.
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

// pool adds up the latencies of the rounds. It skips a boundary whose histograms cannot
// be added; this needs a different kind of workload in each round.
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
