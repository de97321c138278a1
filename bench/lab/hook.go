package lab

import (
	"context"
	"slices"
	"sync"
)

// Play is a play of a cell that is set up and about to run, or of all cells of a round
// that are played together.
type Play struct {
	Position   int    // from 0, the same in all runs of the same comparisons; skipped plays count
	Comparison int    // place in the run, from 0
	Cell       string // empty for all cells of a round that are played together
	Round      int    // 0 is the warm-up
}

// hook returns what the play calls before its Run; nil without [Options].BeforeRun.
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

// latch lets several plays run at once after one call of a hook. A nil latch does
// nothing.
type latch struct {
	hook func(context.Context) error
	open chan struct{} // closed after the hook returned err
	err  error

	mu               sync.Mutex
	missing, waiting int
}

func newLatch(plays int, hook func(context.Context) error) *latch {
	if hook == nil {
		return nil
	}
	return &latch{hook: hook, open: make(chan struct{}), missing: plays}
}

// join returns two functions of one play: wait blocks until all others wait or are
// done, and done must be called at the end of the play.
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
