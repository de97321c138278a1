package deltafifo

import (
	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
)

// backlog is what waits, in the form in which it is handed over. It belongs to
// one goroutine at a time.
type backlog interface {
	enough(batch bool) bool

	room(n int) []item

	put(items []item)

	take(batch bool) (deltas []cache.Delta, batched bool)

	done()

	freed() int

	len() int
}

// maxKept is how long a buffer may be to be kept for reuse after a burst.
const maxKept = 4096

// hashStep is how many keys are made and hashed at a time, so that their cache
// misses overlap.
const hashStep = 32

// hands makes the memory of what is handed over.
type hands struct {
	lent []cache.Delta
	lend bool

	rest []cache.Delta
}

func newHands(o Options) hands { return hands{lend: o.HandOver == impls.Lent} }

// slabSize is how many deltas are allocated at once. A consumer that keeps one
// keeps its slab alive, and all objects in it, hence not more.
const slabSize = 64

// take returns n zero deltas with no room to grow into a neighbour's. What is
// lent must have been cleared before the next call.
func (h *hands) take(n int) []cache.Delta {
	if h.lend && n <= maxKept {
		if cap(h.lent) < n {
			h.lent = make([]cache.Delta, max(n, slabSize))
		}
		return h.lent[:n:n]
	}
	if n >= slabSize/2 {
		return make([]cache.Delta, n)
	}
	if len(h.rest) < n {
		h.rest = make([]cache.Delta, slabSize)
	}
	out := h.rest[:n:n]
	h.rest = h.rest[n:]
	return out
}
