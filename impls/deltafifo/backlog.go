package deltafifo

import (
	"k8s.io/client-go/tools/cache"

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
	// size returns the number of deltas.
	size() int
}

func newBacklog(o Options, l *keys.InitialList) backlog {
	if o.Delivery == PerKey {
		return newPerKey(o, l)
	}
	return newInOrder(o, l)
}

const maxKept = 4096 // bounds a buffer that is kept for reuse after a burst

const hashStep = 32 // keys that are hashed at a time, so that their cache misses overlap

// allocator makes the memory of popped deltas. Owned deltas share memory with those of the same pop
// only: the garbage collector keeps an allocation as a whole, so that a shared one would keep the
// objects of other pops for as long as a consumer, or the queue, keeps one delta. The price is one
// allocation for each pop of owned deltas; lent ones cost none.
type allocator struct {
	lent []cache.Delta // the slice that process borrows, reused by each pop
	lend bool
}

const minLent = 64 // length of the first lent slice

// take returns n zero deltas. Lent memory must have been cleared before the next call.
func (a *allocator) take(n int) []cache.Delta {
	if !a.lend || n > maxKept {
		return make([]cache.Delta, n)
	}
	if cap(a.lent) < n {
		a.lent = make([]cache.Delta, max(n, minLent))
	}
	return a.lent[:n:n]
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
