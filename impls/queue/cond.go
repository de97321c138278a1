package queue

import (
	"sync"

	"watchlab/impls"
	"watchlab/impls/internal/ring"
)

// condVariant is a mutex and a condition variable like upstream, without what makes upstream slow:
// keys are not joined into strings, and are made and hashed before the lock is taken; handlers run
// outside the lock; a signal is sent only to a waiting consumer; and memory is reused.
//
// Producers fold. In the alternative, [buffered], they append to a list and the
// consumer folds. With a lock that is faster for one producer and slower for eight.
// Here the number of keys bounds memory at each moment.
func condVariant() Variant {
	return ownVariant("cond", "mutex and condition variable: producers fold under the lock, handlers run outside it",
		impls.OneConsumer, func(o Options) (Queue, error) { return newCond(o), nil })
}

// cond is a FIFO of keys, each with its newest object, under one lock that is released while
// process runs. Once the queue has reached its usual length only Replace allocates.
type cond struct {
	front
	slots   ring.Slots
	yielder ring.Yielder

	// mu guards the fields below. It is taken after consumer.
	mu      sync.Mutex
	arrival sync.Cond // where the consumer waits
	away    bool      // the consumer waits and nobody has signalled
	closed  bool
	backlog backlog
}

func newCond(o Options) *cond {
	q := &cond{front: front{base: newBase(o, "cond")}}
	q.engine = q
	q.backlog = q.newBacklog()
	q.arrival.L = &q.mu
	q.yielder.Init()
	q.slots.Init(o.Capacity, nil)
	return q
}

// Add queues an object, or replaces the queued one of its key. O(1).
func (q *cond) Add(obj any) error {
	key, hash, err := q.keys.Hashed(obj)
	if err != nil {
		return err
	}
	for waited := false; ; waited = true {
		q.mu.Lock()
		if q.closed {
			q.mu.Unlock()
			return nil
		}
		q.initial.Touch()
		waits := q.slots.Bounded() && q.backlog.waiting.Get(hash, key) != nil
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

func (q *cond) Update(obj any) error { return q.Add(obj) }

// Delete removes an object's key from the queue. O(1).
func (q *cond) Delete(obj any) error {
	key, hash, err := q.keys.Hashed(obj)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil
	}
	q.initial.Touch()
	before := q.backlog.placed
	q.backlog.remove(key, hash)
	q.slots.Give(before - q.backlog.placed)
	return nil
}

// Replace is that of [producers]. O(list).
func (q *cond) Replace(list []any, _ string) error {
	r, err := newReplacement(q.keys, list)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.unlockAndWake()
	if q.closed {
		return nil
	}
	r.first = q.initial.Claim()
	before := q.backlog.placed
	q.backlog.replace(r)
	q.slots.Give(before)
	return nil
}

// unlockAndWake releases the lock and wakes the consumer if it waits and there is
// an object. The order matters: a consumer that wakes first blocks on the lock.
func (q *cond) unlockAndWake() {
	wake := q.away && (q.closed || q.backlog.len() > 0)
	if wake {
		q.away = false
	}
	q.mu.Unlock()
	if wake {
		q.arrival.Signal()
		q.yielder.Yield()
	}
}

func (q *cond) take() (obj any, epoch uint32, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.backlog.len() == 0 {
		if q.closed {
			return nil, 0, false
		}
		q.away = true
		q.yielder.Asleep()
		q.arrival.Wait()
		q.yielder.Awake()
	}
	before := q.backlog.placed
	obj, epoch = q.backlog.take()
	q.yielder.Took(1)
	q.slots.Give(before - q.backlog.placed)
	return obj, epoch, true
}

func (q *cond) Close() {
	q.mu.Lock()
	q.closed = true
	q.unlockAndWake()
	q.slots.Close()
}

func (q *cond) IsClosed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}

func (q *cond) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.backlog.len()
}
