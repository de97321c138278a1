package workqueue

import (
	"hash/maphash"
	"sync"

	"watchlab/impls"
)

func condVariant() Variant {
	return Variant{
		Name:       "cond",
		Summary:    "one lock, one table of the items' states, a ring of items; a signal only to a waiting worker",
		Guarantees: guarantees(impls.OrderPerKey, "workqueue.TypedInterface"),
		New:        func(o Options[string]) (Queue[string], error) { return newCond(o.complete()), nil },
	}
}

// cond is client-go's queue with less work under its lock: items are hashed before, one table takes
// the place of two sets, and memory is reused. Once the queue has had its usual length, no call
// allocates.
type cond[T comparable] struct {
	metrics *metrics // nil without
	seed    maphash.Seed

	mu           sync.Mutex // guards the fields below
	items        items[T]
	arrival      sync.Cond // where workers wait for an item
	asleep       int       // counts the workers that wait and have not been signalled
	drained      sync.Cond // where ShutDownWithDrain waits
	shuttingDown bool
	drain        bool // a ShutDownWithDrain was not followed by a ShutDown
}

func newCond[T comparable](o Options[T]) *cond[T] {
	q := &cond[T]{metrics: newMetrics(o), seed: maphash.MakeSeed()}
	q.arrival.L, q.drained.L = &q.mu, &q.mu
	q.items.timed = q.metrics != nil
	q.metrics.begin(func(f func(int64)) {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.items.eachInProcess(f)
	})
	return q
}

// Add implements [Queue]. O(1), amortised.
func (q *cond[T]) Add(item T) {
	hash := maphash.Comparable(q.seed, item)
	q.mu.Lock()
	if q.shuttingDown {
		q.mu.Unlock()
		return
	}
	pushed, changed := q.items.add(item, hash, q.metrics.now())
	if changed {
		q.metrics.add()
	}
	q.unlockAndWake(pushed)
}

// unlockAndWake releases the lock and wakes a worker for a queued item. The order matters: a worker
// that wakes first blocks on the lock.
func (q *cond[T]) unlockAndWake(pushed bool) {
	wake := pushed && q.asleep > 0
	if wake {
		q.asleep--
	}
	q.mu.Unlock()
	if wake {
		q.arrival.Signal()
	}
}

// Get implements [Queue]. O(1), amortised.
func (q *cond[T]) Get() (item T, shutdown bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.items.len() == 0 {
		if q.shuttingDown {
			return item, true
		}
		q.asleep++
		q.arrival.Wait()
	}
	now := q.metrics.now()
	item, added := q.items.take(now)
	q.metrics.get(added, now)
	return item, false
}

// Done implements [Queue]. O(1), amortised.
func (q *cond[T]) Done(item T) {
	hash := maphash.Comparable(q.seed, item)
	q.mu.Lock()
	started, pushed, found := q.items.done(item, hash)
	if found {
		q.metrics.done(started)
		if q.drain && q.items.workers == 0 {
			q.drained.Broadcast()
		}
	}
	q.unlockAndWake(pushed)
}

// Len implements [Queue]. O(1).
func (q *cond[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.items.len()
}

// ShutDown implements [Queue].
func (q *cond[T]) ShutDown() {
	q.shutDown(false)
}

// ShutDownWithDrain implements [Queue].
func (q *cond[T]) ShutDownWithDrain() {
	q.shutDown(true)
}

func (q *cond[T]) shutDown(drain bool) {
	q.metrics.end()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.shuttingDown, q.drain = true, drain
	q.asleep = 0
	q.arrival.Broadcast()
	q.drained.Broadcast()
	for q.drain && q.items.workers > 0 {
		q.drained.Wait()
	}
}

// ShuttingDown implements [Queue].
func (q *cond[T]) ShuttingDown() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.shuttingDown
}
