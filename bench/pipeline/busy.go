package pipeline

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// handling is what a handler does for each event: it keeps a processor busy, for
// about as long as asked, without looking at the clock. So it costs the same work
// in each cell, where a loop that waits for the clock would do less of it the
// more it is held up by others.
type handling struct {
	turns int

	on atomic.Bool
}

func newHandling(cost time.Duration) *handling {
	if cost <= 0 {
		return &handling{}
	}
	return &handling{turns: max(1, int(math.Round(float64(cost)/spinTurn())))}
}

// costs reports whether there is anything to do for an event.
func (h *handling) costs() bool { return h.turns > 0 }

// do handles n events. It ends early where the cost is no longer due.
func (h *handling) do(n int) {
	if h.turns == 0 {
		return
	}
	x := uint64(seed)
	for range n {
		if !h.on.Load() {
			return
		}
		spin(&x, h.turns)
	}
}

// seed is where the loop's numbers begin.
const seed = 88172645463325252

// spin goes through a loop in which each turn needs the result of the one before.
// It leaves the result behind, so that the compiler can't leave the loop out.
//
//go:noinline
func spin(x *uint64, turns int) {
	v := *x
	for range turns {
		v ^= v << 13
		v ^= v >> 7
		v ^= v << 17
	}
	*x = v
}

// spinTurn is how many nanoseconds a turn of [spin] takes on an idle processor: the
// shortest of several tries, as anything else makes them longer. It is measured
// once in a process, so that all cells of a run do the same work.
var spinTurn = sync.OnceValue(func() float64 {
	const turns, tries = 1 << 19, 16
	shortest, x := math.Inf(1), uint64(seed)
	for range tries {
		start := time.Now()
		spin(&x, turns)
		shortest = min(shortest, float64(time.Since(start)))
	}
	return shortest / turns
})
