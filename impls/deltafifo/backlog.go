package deltafifo

import (
	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
)

// backlog is what waits, in the form in which it is handed over. It belongs to
// one goroutine at a time.
type backlog interface {
	// enough reports whether the next hand-over can be cut from what is there,
	// however much more there is in the line.
	enough(batch bool) bool
	// room returns memory for at most n items, and for one at least, to be given
	// to put.
	room(n int) []item
	// put takes items in, in the order of the line. Each takes a place until
	// freed says that it doesn't.
	put(items []item)
	// take returns what is handed over next, and whether it is a batch. It
	// returns nil where nothing waits.
	take(batch bool) (deltas []cache.Delta, batched bool)
	// done notes that process has returned from what was taken last.
	done()
	// freed returns how many places have become free since it was last called.
	freed() int
	// len returns how much waits, as [Queue.Len] counts.
	len() int
}

// maxKept is how long a buffer may be to be kept for reuse after a burst.
const maxKept = 4096

// hashStep is how many keys are made and hashed at a time, so that their cache
// misses overlap.
const hashStep = 32

// hands makes the memory of what is handed over.
type hands struct {
	// lent is used for each hand-over anew, if lend is true.
	lent []cache.Delta
	lend bool
	// rest is what is left of a slab, from which slices are cut that are never
	// used again: what reaches a consumer is the consumer's, as it is upstream,
	// without an allocation for each hand-over.
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
