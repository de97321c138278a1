package lab

import (
	"context"
	"errors"
	"slices"
	"time"

	"watchlab/bench/cell"
)

// tally is what a cell has measured so far. It is kept apart from the outcome,
// which never holds a figure of an invalid cell: a paced cell's verdict may
// yet turn with the next round.
type tally struct {
	failed bool
	rounds []Round
	closed bool
	left   int
	took   took
}

func (t *tally) has(round int) bool {
	return slices.ContainsFunc(t.rounds, func(r Round) bool { return r.Round == round })
}

// profiled is the round that profiles are taken of.
const profiled = -1

// turn is a cell's play in a round.
type turn struct {
	*contest
	cell         int
	tally        *tally
	round, place int
	progress     Progress
	started      time.Time
	clock        time.Time
	measured     cell.Result
	err          error
}

func (c *contest) turn(i, round, place int) *turn {
	return &turn{
		contest: c, cell: i, tally: c.tallies[i], round: round, place: place,
		progress: Progress{
			Family: c.Family, Title: c.Title, Cell: c.result().Cells[i].BenchName(),
			Round: round,
		},
	}
}

// found is where the outcome holds the cell. It is asked for anew each time, as
// the outcome grows.
func (t *turn) found() *CellResult { return &t.result().Cells[t.cell] }

func (t *turn) tell(finished bool) {
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
func (t *turn) skip() bool {
	if !t.tally.failed {
		return false
	}
	t.progress.Skipped = true
	t.behind()
	t.tell(true)
	return true
}

// behind counts the play as one that is behind us.
func (t *turn) behind() {
	t.r.done++
	t.tally.left = max(t.tally.left-1, 0)
}

// start notes that the cell is about to be set up.
func (t *turn) start() {
	t.tell(false)
	t.started, t.clock = t.r.opts.Now(), time.Now()
}

// settle keeps what a play measured. The error is of the results folder;
// whatever befell the workload is in the verdict.
func (t *turn) settle(ctx context.Context) error {
	result, kept := t.found(), t.tally
	passed := time.Since(t.clock)
	switch {
	case t.err != nil && ctx.Err() != nil && !breaksInvariant(t.err):
		// Dropped: the run ends here.
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
	t.tell(true)
	return err
}

// breaksInvariant: what was broken before ctx ended stays broken.
func breaksInvariant(err error) bool {
	for _, inv := range invariants {
		if errors.Is(err, inv.err) {
			return true
		}
	}
	return false
}

// publish puts the rounds into the outcome, or takes them out of it.
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

// pool adds the rounds' latencies up. A boundary whose histograms cannot be
// added, which only a workload of another kind in each round could bring about,
// is left out.
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
