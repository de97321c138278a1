package lab

import (
	"context"
	"slices"
	"sync"
)

// Play is a play of a cell that is set up and about to run; of all cells of a round,
// where they are played together.
type Play struct {
	Position   int
	Comparison int
	Cell       string
	Round      int
}

// gate returns what lets the play run when its time has come, nil where that is at
// once.
func (t *turn) gate() func(context.Context) error {
	gate := t.r.opts.Gate
	if gate == nil {
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
		return guard("start", func() error { return gate(ctx, p) })
	}
}

// Plays is how many plays a run of the comparisons has: one more than the highest
// [Play].Position.
func Plays(comparisons []Comparison, opts Options) int {
	n := 0
	for _, c := range comparisons {
		if !opts.NoAA && !c.Together {
			c.Cells = append(slices.Clip(c.Cells), Cell{})
		}
		n += (&contest{Comparison: c}).plays(opts.Rounds)
	}
	return n
}

// plays is how many plays of the comparison there are with so many rounds, the warm-up
// included.
func (c *contest) plays(rounds int) int {
	if c.Together {
		return rounds + 1
	}
	return (rounds + 1) * len(c.Cells)
}

// meeting lets those run at once that are set up at different times. A nil one lets
// them run as they come.
type meeting struct {
	gate           func(context.Context) error
	begun          chan struct{}
	err            error
	mu             sync.Mutex
	missing, there int
}

func newMeeting(of int, gate func(context.Context) error) *meeting {
	if gate == nil {
		return nil
	}
	return &meeting{gate: gate, begun: make(chan struct{}), missing: of}
}

// arrived notes that one less is missing. The last one asks the gate, if there is
// anybody whom it could let through.
func (m *meeting) arrived(ctx context.Context, there int) {
	m.mu.Lock()
	m.missing--
	m.there += there
	last := m.missing == 0 && m.there > 0
	m.mu.Unlock()
	if last {
		m.err = m.gate(ctx)
		close(m.begun)
	}
}

// guest is one of those who meet.
type guest struct {
	*meeting
	came bool
}

func (m *meeting) guest() *guest { return &guest{meeting: m} }

// come returns what waits for the others, and for the gate.
func (g *guest) come() func(context.Context) error {
	if g.meeting == nil {
		return nil
	}
	return func(ctx context.Context) error {
		g.came = true
		g.arrived(ctx, 1)
		select {
		case <-g.begun:
			return g.err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// leave has nobody wait for a guest that could not come.
func (g *guest) leave(ctx context.Context) {
	if g.meeting != nil && !g.came {
		g.arrived(ctx, 0)
	}
}
