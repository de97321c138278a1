package lab

import (
	"context"
	"slices"
	"sync"
)

// Play identifies a play after Setup and before Run: one cell, or all cells of a round
// that are played together.
type Play struct {
	Position   int    // from 0; equal in all runs of the same comparisons, as skipped plays count
	Comparison int    // position in the run, from 0
	Cell       string // benchmark name; empty for cells that are played together
	Round      int    // 0 is the warm-up
}

// hook returns the call of [Options].BeforeRun for this play; nil without BeforeRun.
func (t *cellPlay) hook() func(context.Context) error {
	hook := t.r.opts.BeforeRun
	if hook == nil {
		return nil
	}
	p := Play{
		Position: t.first + t.round*len(t.Cells) + t.place - 1, Comparison: t.index,
		Cell: t.progress.Cell, Round: t.round,
	}
	if t.Together {
		p.Position, p.Cell = t.first+t.round, ""
	}
	return func(ctx context.Context) error {
		return guard("start", func() error { return hook(ctx, p) })
	}
}

// Plays returns the number of plays of a run: one more than the highest
// [Play].Position.
func Plays(comparisons []Comparison, opts Options) int {
	n := 0
	for _, c := range comparisons {
		if !opts.NoAA && !c.Together {
			c.Cells = append(slices.Clip(c.Cells), Cell{})
		}
		n += (&comparisonRun{Comparison: c}).plays(opts.Rounds)
	}
	return n
}

// plays returns the number of plays of the comparison, the warm-up included.
func (c *comparisonRun) plays(rounds int) int {
	if c.Together {
		return rounds + 1
	}
	return (rounds + 1) * len(c.Cells)
}

// latch starts several plays at once after one call of a hook. A nil latch does
// nothing.
type latch struct {
	hook func(context.Context) error
	open chan struct{} // closed after the hook returned err
	err  error         // of the hook; written before open is closed

	// mu guards the fields below it.
	mu               sync.Mutex
	missing, waiting int // plays that have not arrived yet; plays that wait
}

func newLatch(plays int, hook func(context.Context) error) *latch {
	if hook == nil {
		return nil
	}
	return &latch{hook: hook, open: make(chan struct{}), missing: plays}
}

// join returns two functions for one play. wait blocks until every other play waits or
// is done, and returns the hook's error. done must be called at the end of the play.
func (l *latch) join() (wait func(context.Context) error, done func(context.Context)) {
	if l == nil {
		return nil, func(context.Context) {}
	}
	arrived := false
	wait = func(ctx context.Context) error {
		arrived = true
		l.arrive(ctx, 1)
		select {
		case <-l.open:
			return l.err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	done = func(ctx context.Context) {
		if !arrived {
			l.arrive(ctx, 0)
		}
	}
	return wait, done
}

// arrive counts a play. The last one calls the hook if any play waits.
func (l *latch) arrive(ctx context.Context, waiting int) {
	l.mu.Lock()
	l.missing--
	l.waiting += waiting
	last := l.missing == 0 && l.waiting > 0
	l.mu.Unlock()
	if last {
		l.err = l.hook(ctx)
		close(l.open)
	}
}
