package deltafifo

import (
	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
	"watchlab/impls/internal/keys"
)

// backlog holds the queued deltas in the form in which they are popped. One
// goroutine owns it at a time.
type backlog interface {
	// enough reports whether the next pop does not depend on the inbox.
	enough(batch bool) bool
	// room returns up to n items of memory to be filled and passed to put.
	room(n int) []item
	put(items []item)
	// take removes the next deltas, or returns nil. batched says that they are a
	// batch of several keys.
	take(batch bool) (deltas []cache.Delta, batched bool)
	// done is the return of process.
	done()
	// freed returns how much capacity has become free since the last call.
	freed() int
	len() int
}

func newBacklog(o Options, l *keys.InitialList) backlog {
	if o.Delivery == PerKey {
		return newPerKey(o, l)
	}
	return newInOrder(o, l)
}

const maxKept = 4096 // bounds a buffer that is kept for reuse after a burst

const hashStep = 32 // keys that are hashed at a time, so that their cache misses overlap

// allocator makes the memory of popped deltas.
type allocator struct {
	lent []cache.Delta // the slice that process borrows, reused by each pop
	lend bool          // use lent instead of a slab
	rest []cache.Delta // the unused part of the current slab
}

func newAllocator(o Options) allocator { return allocator{lend: o.HandOver == impls.Lent} }

// slabSize is how many deltas are allocated at once. A consumer that keeps one
// keeps its slab alive, and all objects in it, hence not more.
const slabSize = 64

// take returns n zero deltas with no room to grow into a neighbour's. Lent memory
// must have been cleared before the next call.
func (a *allocator) take(n int) []cache.Delta {
	if a.lend && n <= maxKept {
		if cap(a.lent) < n {
			a.lent = make([]cache.Delta, max(n, slabSize))
		}
		return a.lent[:n:n]
	}
	if n >= slabSize/2 {
		return make([]cache.Delta, n)
	}
	if len(a.rest) < n {
		a.rest = make([]cache.Delta, slabSize)
	}
	out := a.rest[:n:n]
	a.rest = a.rest[n:]
	return out
}

const maxInterface = 17 // length from which on an interface value is allocated for each pop

// interfaces holds lent deltas as interface values, indexed by length, so that a
// pop does not allocate one. The owner of the lent memory owns them.
type interfaces [maxInterface]any

// value returns deltas as process receives them; lend says that they are lent.
func (v *interfaces) value(deltas []cache.Delta, lend bool) any {
	if !lend || len(deltas) >= maxInterface {
		return cache.Deltas(deltas)
	}
	at := &v[len(deltas)]
	// Lent memory is reallocated when it grows.
	if have, ok := (*at).(cache.Deltas); !ok || &have[0] != &deltas[0] {
		*at = cache.Deltas(deltas)
	}
	return *at
}
