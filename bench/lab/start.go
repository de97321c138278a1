package lab

import "context"

// Play identifies a play after Setup and before Run: one cell, or all cells of a round
// that are played together.
type Play struct {
	Position   int    // from 0, ascending; equal in all runs of the same comparisons, as skipped plays count
	Comparison int    // index in the run, from 0
	Cell       string // benchmark name; empty for cells that are played together
	Round      int    // 0 is the warm-up
}

// Plays returns the number of plays of a run: one more than the highest
// [Play].Position.
func Plays(comparisons []Comparison, opts Options) int {
	n := 0
	for _, c := range comparisons {
		n += c.positions(opts)
	}
	return n * (opts.Rounds + 1)
}

// positions is the number of positions of one round.
func (c *Comparison) positions(opts Options) int {
	switch {
	case c.Together:
		return 1
	case opts.NoAA:
		return len(c.Cells)
	}
	return len(c.Cells) + 1
}

// hook returns the call of [Options].BeforeRun for this play; nil without BeforeRun.
func (p *cellPlay) hook() func(context.Context) error {
	r := p.c.r
	if r.opts.BeforeRun == nil {
		return nil
	}
	id := Play{Position: r.perRound*p.round + p.c.offset, Comparison: p.c.index, Round: p.round}
	if !p.c.Together {
		id.Position += p.place - 1
		id.Cell = p.BenchName()
	}
	return func(ctx context.Context) error {
		return guard("start", func() error { return r.opts.BeforeRun(ctx, id) })
	}
}
