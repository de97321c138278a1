package pipeline

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// handling is a handler's work for an event: a loop of fixed length that takes about
// the cost on an idle processor. It does not read the clock: a loop that does so does
// less work the longer it is preempted.
type handling struct {
	turns int         // turns of the loop for each event; 0 for no work
	on    atomic.Bool // handling takes time; set while the clock runs
}

func newHandling(cost time.Duration) *handling {
	if cost <= 0 {
		return &handling{}
	}
	return &handling{turns: max(1, int(math.Round(float64(cost)/spinTurn())))}
}

// costs reports whether handling an event takes time.
func (h *handling) costs() bool { return h.turns > 0 }

// do handles n events. It ends early when handling is switched off.
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

const seed = 88172645463325252 // start value of the loop

// spin runs a loop in which each turn depends on the one before. It stores the result,
// so that the compiler keeps the loop.
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

// spinTurn is the time of a turn of [spin] in nanoseconds: the shortest of several
// measurements. It is measured once a process, so that all cells do the same work.
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
