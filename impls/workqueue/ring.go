package workqueue

import (
	"errors"
	"hash/maphash"
	"runtime"
	"sync"
	"sync/atomic"

	"watchlab/impls"
	"watchlab/impls/internal/ring"
)

const pad = 128 // between fields that different goroutines write; cache lines are fetched in pairs

func ringVariant() Variant {
	return Variant{
		Name:       "ring",
		Summary:    "Adds go into a lock-free ring; workers fold it into one table under a lock",
		Guarantees: guarantees(impls.OrderPerKey, "workqueue.TypedInterface"),
		New:        func(o Options[string]) (Queue[string], error) { return newRing(o.complete()), nil },
	}
}

// ringed is a queue whose Add puts the item into a bounded lock-free ring. Get, Done and Len take a lock
// and fold the ring into the state of the items: each Add takes effect there, in the order of the
// ring. They fold all that was added before. So deduplication and order are those of a queue with one
// lock, and no caller can tell the difference.
//
// Add is lock-free unless the ring is full. Then it takes the lock and folds itself. So memory is
// bounded by the number of different items plus the ring, however often an item is added.
//
// The other calls are not lock-free. An Add that was suspended between the claim of its place in the
// ring and the publication of its item delays them, as it would if it held a lock.
//
// With metrics, each Add folds at once: the depth must not lag.
type ringed[T comparable] struct {
	metrics *metrics // nil without
	seed    maphash.Seed
	inbox   *ring.LockFree[added[T]]
	_       [pad]byte

	mu      sync.Mutex // guards the fields below, and is held by the ring's consumer
	items   items[T]
	batch   [64]added[T] // what fold takes at once; zero between calls
	touched uint32
	closed  bool
	_       [pad]byte

	queued atomic.Bool // items has a queued item; written under mu
	_      [pad]byte

	idle idle
	_    [pad]byte
}

type added[T comparable] struct {
	item T
	hash uint64
}

// inboxSize bounds how long an Add to a full ring folds. It is large enough that such an Add is rare.
const inboxSize = 256

func newRing[T comparable](o Options[T]) *ringed[T] {
	q := &ringed[T]{metrics: newMetrics(o), seed: maphash.MakeSeed(), inbox: ring.NewLockFree[added[T]](inboxSize)}
	q.items.timed = q.metrics != nil
	q.idle.init(
		func() bool { return q.queued.Load() || q.inbox.Len() > 0 },
		func() bool {
			q.lock()
			defer q.unlock()
			return q.items.workers > 0
		},
	)
	q.metrics.begin(func(f func(int64)) {
		q.lock()
		defer q.unlock()
		q.items.eachInProcess(f)
	})
	return q
}

// lock takes the lock and folds all that was added before.
func (q *ringed[T]) lock() {
	q.mu.Lock()
	q.foldAll()
}

func (q *ringed[T]) foldAll() {
	for left := q.inbox.Len(); left > 0; {
		n := q.inbox.TakeBatch(q.batch[:])
		if n == 0 {
			runtime.Gosched() // An Add has claimed a place and not published its item yet.
			continue
		}
		q.inbox.Release(n)
		q.fold(q.batch[:n])
		left -= n
	}
}

func (q *ringed[T]) fold(batch []added[T]) {
	q.touched = q.items.touch(batch)
	for i := range batch {
		if _, changed := q.items.add(batch[i].item, batch[i].hash, q.metrics.now()); changed {
			q.metrics.add()
		}
	}
	clear(batch)
}

// unlock updates queued and releases the lock.
func (q *ringed[T]) unlock() {
	if queued := q.items.len() > 0; queued != q.queued.Load() {
		q.queued.Store(queued)
	}
	q.mu.Unlock()
}

// Add implements [Queue]. O(1), amortised.
func (q *ringed[T]) Add(item T) {
	hash := maphash.Comparable(q.seed, item)
	for {
		err := q.inbox.TryPush(added[T]{item, hash})
		if err == nil && q.metrics == nil {
			q.idle.wake()
			return
		}
		if errors.Is(err, ring.ErrClosed) {
			return
		}
		q.lock()
		q.unlock()
		if err == nil {
			q.idle.wake()
			return
		}
	}
}

// Get implements [Queue]. O(1), amortised.
func (q *ringed[T]) Get() (item T, shutdown bool) {
	for slept := false; ; {
		q.lock()
		if q.items.len() > 0 {
			now := q.metrics.now()
			item, added := q.items.take(now)
			q.metrics.get(added, now)
			more := q.items.len() > 0
			q.unlock()
			if slept && more {
				q.idle.wake()
			}
			return item, false
		}
		q.unlock()
		var ok bool
		if slept, ok = q.idle.sleep(); !ok {
			return item, true
		}
	}
}

// Done implements [Queue]. O(1), amortised.
func (q *ringed[T]) Done(item T) {
	hash := maphash.Comparable(q.seed, item)
	q.lock()
	started, pushed, found := q.items.done(item, hash)
	if found {
		q.metrics.done(started)
	}
	q.unlock()
	if pushed {
		q.idle.wake()
	}
	if q.idle.shuttingDown.Load() {
		q.idle.ended()
	}
}

// Len implements [Queue]. It is exact. O(1), amortised.
func (q *ringed[T]) Len() int {
	q.lock()
	defer q.unlock()
	return q.items.len()
}

// ShutDown implements [Queue].
func (q *ringed[T]) ShutDown() { q.shutDown(false) }

// ShutDownWithDrain implements [Queue].
func (q *ringed[T]) ShutDownWithDrain() { q.shutDown(true) }

func (q *ringed[T]) shutDown(drain bool) {
	q.metrics.end()
	q.mu.Lock()
	q.inbox.Close() // ShuttingDown waits for the lock: it is true after an Add that this refuses.
	q.foldAll()
	q.closed = true
	q.unlock()
	q.idle.shutDown(drain)
}

// ShuttingDown implements [Queue].
func (q *ringed[T]) ShuttingDown() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}
