package queue

import (
	"sync"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
	"watchlab/impls/internal/gate"
	"watchlab/impls/internal/initial"
	"watchlab/impls/internal/keyed"
	"watchlab/impls/internal/objkey"
)

// condVariant is a mutex and a condition variable, as upstream has, without
// what makes upstream slow: keys are not joined into strings, handlers run
// outside the lock, a signal is sent only when a consumer waits, and memory is
// reused.
func condVariant() Variant {
	return Variant{
		Name:    "cond",
		Summary: "mutex and condition variable; handlers run outside the lock",
		Guarantees: []impls.Guarantees{{
			Order: impls.OrderPerKey, Coalesces: impls.CoalesceLatest,
			Consumers: impls.OneConsumer, Unlocked: true, DropIn: "cache.Queue",
		}},
		New: func(o Options) (Queue, error) {
			o, err := o.complete(limits{})
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
	keys    objkey.Func
	initial *initial.List

	// consumer serialises those that take. It is held while process runs, and
	// taken before lock.
	consumer sync.Mutex

	// lock guards what follows.
	lock   gate.Gate
	queued keyed.FIFO[waiter]
	// epoch counts the lists that were initial: more than one where a Replace
	// came before the one before it had been processed.
	epoch uint32
}

// waiter is what waits under one key.
type waiter struct {
	obj any
	// initial is the epoch of the initial list that the key belongs to, 0 for
	// none.
	initial uint32
}

func newCond(o Options) *cond {
	return &cond{keys: objkey.New(o.KeyFunction), initial: initial.New("cond")}
}

// Add queues an object, or replaces the one that waits under its key. O(1).
func (q *cond) Add(obj any) error {
	key, err := q.keys.Of(obj)
	if err != nil {
		return err
	}
	hash := key.Hash()
	q.lock.Lock()
	q.initial.Touch()
	e := q.queued.Get(hash, key)
	if e == nil {
		e = q.queued.Push(hash, key)
	}
	e.Value.obj = obj
	q.lock.UnlockAndWake()
	return nil
}

// Update is Add.
func (q *cond) Update(obj any) error { return q.Add(obj) }

// Delete takes an object's key out of the queue. O(1).
func (q *cond) Delete(obj any) error {
	key, err := q.keys.Of(obj)
	if err != nil {
		return err
	}
	hash := key.Hash()
	q.lock.Lock()
	defer q.lock.Unlock()
	q.initial.Touch()
	if e := q.queued.Get(hash, key); e != nil {
		q.left(e.Value)
		q.queued.Remove(e)
	}
	return nil
}

// Replace drops what waits and queues the list; of several objects with one key
// the last one. After an error the queue is as it was. O(list).
func (q *cond) Replace(list []any, _ string) error {
	keys := make([]objkey.Key, len(list))
	for i, obj := range list {
		var err error
		if keys[i], err = q.keys.Of(obj); err != nil {
			return err
		}
	}
	q.lock.Lock()
	defer q.unlock()
	// A list that comes before the first one has been processed takes its
	// place: nobody has synced before they have seen a whole list.
	var epoch uint32
	if q.initial.Claim() || !q.initial.HasSynced() {
		q.epoch++
		epoch = q.epoch
	}
	q.queued.Clear()
	for i, obj := range list {
		hash := keys[i].Hash()
		e := q.queued.Get(hash, keys[i])
		if e == nil {
			e = q.queued.Push(hash, keys[i])
		}
		e.Value = waiter{obj: obj, initial: epoch}
	}
	if epoch != 0 {
		q.initial.Set(q.queued.Len())
	}
	return nil
}

// Resync does nothing: what is held waits already.
func (q *cond) Resync() error { return nil }

// unlock releases the lock, and wakes the consumer if there is something to
// take.
func (q *cond) unlock() {
	if q.queued.Len() > 0 {
		q.lock.UnlockAndWake()
	} else {
		q.lock.Unlock()
	}
}

// Pop implements [cache.Queue].
func (q *cond) Pop(process cache.PopProcessFunc) (any, error) {
	q.consumer.Lock()
	defer q.consumer.Unlock()
	q.lock.Lock()
	for q.queued.Len() == 0 {
		if q.lock.Closed() {
			q.lock.Unlock()
			return nil, cache.ErrFIFOClosed
		}
		q.lock.Wait()
	}
	isInInitialList := !q.initial.HasSynced()
	e := q.queued.Front()
	w := e.Value
	q.queued.Remove(e)
	q.lock.Unlock()
	if w.initial != 0 {
		defer q.processed(w)
	}
	return w.obj, process(w.obj, isInInitialList)
}

// processed notes that process has returned from a key of the initial list.
// HasSynced may turn true only now.
func (q *cond) processed(w waiter) {
	q.lock.Lock()
	defer q.lock.Unlock()
	q.left(w)
}

// left notes that a key of the initial list, if it is one, has left the queue.
// The caller holds the lock.
func (q *cond) left(w waiter) {
	if w.initial != 0 && w.initial == q.epoch {
		q.initial.Processed(1)
	}
}

// Close implements [cache.Queue].
func (q *cond) Close() { q.lock.Close() }

// IsClosed reports whether Close was called.
func (q *cond) IsClosed() bool { return q.lock.IsClosed() }

// Len implements [Queue].
func (q *cond) Len() int {
	q.lock.Lock()
	defer q.lock.Unlock()
	return q.queued.Len()
}

func (q *cond) HasSynced() bool                     { return q.initial.HasSynced() }
func (q *cond) HasSyncedChecker() cache.DoneChecker { return q.initial }
