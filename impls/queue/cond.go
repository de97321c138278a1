package queue

import (
	"context"
	"sync"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
	"watchlab/impls/internal/keys"
	"watchlab/impls/internal/ring"
)

// condVariant is a mutex and a condition variable, as upstream has, without
// what makes upstream slow: keys are not joined into strings, and are made and
// hashed before the lock is taken; handlers run outside the lock; a signal is
// sent only when a consumer waits; and memory is reused.
//
// Producers fold. The other way, in which they append to a list under the lock
// and the consumer folds, is what [lined] does; with a lock it is faster for one
// producer and slower for eight, and what waits is bounded here by the number of
// keys, at each moment.
func condVariant() Variant {
	return Variant{
		Name:    "cond",
		Summary: "mutex and condition variable: producers fold under the lock, handlers run outside it",
		Guarantees: []impls.Guarantees{{
			Order: impls.OrderPerKey, Coalesces: impls.CoalesceLatest, Bounded: true,
			Consumers: impls.OneConsumer, Unlocked: true, DropIn: "cache.Queue",
		}},
		New: func(o Options) (Queue, error) {
			o, err := o.complete(limits{capacity: true})
			if err != nil {
				return nil, err
			}
			return newCond(o), nil
		},
	}
}

// cond is a FIFO of keys, each with its newest object, under one lock that is
// released while process runs. No operation but Replace allocates once the
// queue has reached its usual length.
type cond struct {
	keys    keys.Func
	ctx     context.Context
	initial *account
	slots   ring.Slots

	consumer sync.Mutex

	mu sync.Mutex

	arrival sync.Cond
	away    bool
	closed  bool
	backlog backlog
}

func newCond(o Options) *cond {
	keys, initial := keys.NewFunc(o.KeyFunction), newAccount("cond")
	q := &cond{keys: keys, ctx: o.Context, initial: initial, backlog: backlog{keys: keys, initial: initial}}
	q.arrival.L = &q.mu
	q.slots.Init(o.Capacity, cache.ErrFIFOClosed)
	return q
}

// Add queues an object, or replaces the one that waits under its key. O(1).
func (q *cond) Add(obj any) error {
	key, hash, err := hashed(q.keys, obj)
	if err != nil {
		return err
	}
	for waited := false; ; waited = true {
		q.mu.Lock()
		if q.closed {
			q.mu.Unlock()
			return cache.ErrFIFOClosed
		}
		q.initial.Touch()
		waits := q.slots.Bounded() && q.backlog.waiting.find(hash, key) != nil
		if waits || q.slots.TryTake() {
			q.backlog.put1(obj, key, hash)
			q.unlockAndWake()
			if waits && waited {
				q.slots.Wake(1)
			}
			return nil
		}
		q.mu.Unlock()
		if err := q.slots.Wait(q.ctx); err != nil {
			return err
		}
	}
}

// Update is Add.
func (q *cond) Update(obj any) error { return q.Add(obj) }

// Delete takes an object's key out of the queue. O(1).
func (q *cond) Delete(obj any) error {
	key, hash, err := hashed(q.keys, obj)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return cache.ErrFIFOClosed
	}
	q.initial.Touch()
	before := q.backlog.placed
	q.backlog.remove(key, hash)
	q.slots.Give(before - q.backlog.placed)
	return nil
}

// Replace drops what waits and queues the list; of several objects with one key
// the last one. After an error the queue is as it was. O(list).
func (q *cond) Replace(list []any, _ string) error {
	r, err := newReplacement(q.keys, list)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.unlockAndWake()
	if q.closed {
		return cache.ErrFIFOClosed
	}
	r.first = q.initial.Claim()
	before := q.backlog.placed
	q.backlog.replace(r)
	q.slots.Give(before)
	return nil
}

// Resync does nothing: what is held waits already.
func (q *cond) Resync() error { return nil }

// unlockAndWake releases the lock, and then wakes the consumer, which would run
// into the lock otherwise, if it waits and has something to take.
func (q *cond) unlockAndWake() {
	wake := q.away && (q.closed || q.backlog.len() > 0)
	if wake {
		q.away = false
	}
	q.mu.Unlock()
	if wake {
		q.arrival.Signal()
	}
}

// take returns what is handed over next, or false when the queue is closed and
// drained.
func (q *cond) take() (obj any, epoch uint32, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.backlog.len() == 0 {
		if q.closed {
			return nil, 0, false
		}
		q.away = true
		q.arrival.Wait()
	}
	before := q.backlog.placed
	obj, epoch = q.backlog.take()
	q.slots.Give(before - q.backlog.placed)
	return obj, epoch, true
}

// Pop implements [cache.Queue].
func (q *cond) Pop(process cache.PopProcessFunc) (any, error) {
	q.consumer.Lock()
	defer q.consumer.Unlock()
	obj, epoch, ok := q.take()
	if !ok {
		return nil, cache.ErrFIFOClosed
	}
	if epoch != 0 {
		// HasSynced may turn true only when process has returned.
		defer q.initial.left(epoch)
	}
	return obj, process(obj, !q.initial.HasSynced())
}

// Close implements [cache.Queue]. Producers that wait for room return
// [cache.ErrFIFOClosed], as do all that come later.
func (q *cond) Close() {
	q.mu.Lock()
	q.closed = true
	q.unlockAndWake()
	q.slots.Close()
}

// IsClosed reports whether Close was called.
func (q *cond) IsClosed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}

// Len implements [Queue].
func (q *cond) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.backlog.len()
}

// HasSynced implements [cache.Queue].
func (q *cond) HasSynced() bool { return q.initial.HasSynced() }

// HasSyncedChecker implements [cache.Queue].
func (q *cond) HasSyncedChecker() cache.DoneChecker { return q.initial }
