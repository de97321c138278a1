package queue

import (
	"sync"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
	"watchlab/impls/internal/keys"
)

// base is embedded in all variants but the baselines.
type base struct {
	keys    keys.Func
	initial *account
}

func newBase(o Options, name string) base {
	return base{keys: keys.NewObjectFunc(o.KeyFunction), initial: &account{InitialList: keys.NewInitialList(name)}}
}

func (b *base) newBacklog() backlog { return backlog{keys: b.keys, initial: b.initial} }

// Resync does nothing: every object that it would add is queued already.
func (b *base) Resync() error { return nil }

func (b *base) HasSynced() bool                     { return b.initial.HasSynced() }
func (b *base) HasSyncedChecker() cache.DoneChecker { return b.initial }

// front is the API of a queue with one consumer at a time. Its producers send each call as an item to the
// engine, whose owner folds it.
type front struct {
	base
	engine engine
	_      [pad]byte
	// consumer serialises consumers. It is held while process runs. The padding
	// keeps it off the cache lines that producers read.
	consumer sync.Mutex
	_        [pad]byte
}

// engine stores the keys behind a [front].
type engine interface {
	// take removes the next object. It waits for one, and returns false when the
	// queue is closed and empty.
	take() (obj any, epoch uint32, ok bool)
	// push does nothing after Close.
	push(i item)
	// settle folds all items that were pushed before.
	settle()
}

// Pop implements [cache.Queue].
func (q *front) Pop(process cache.PopProcessFunc) (any, error) {
	q.consumer.Lock()
	defer q.consumer.Unlock()
	obj, epoch, ok := q.engine.take()
	if !ok {
		return nil, cache.ErrFIFOClosed
	}
	if epoch != 0 {
		// HasSynced may turn true only when process has returned.
		defer q.initial.left(epoch)
	}
	return obj, process(obj, !q.initial.HasSynced())
}

func (q *front) Add(obj any) error    { return q.event(put, obj) }
func (q *front) Update(obj any) error { return q.event(put, obj) }

// Delete removes an object's key from the queue.
func (q *front) Delete(obj any) error { return q.event(remove, obj) }

func (q *front) event(k kind, obj any) error {
	// The owner makes the key; an object whose key cannot be read is refused here.
	if err := q.keys.Check(obj); err != nil {
		return err
	}
	q.initial.Touch()
	q.engine.push(item{obj, k})
	return nil
}

// Replace drops all queued keys and queues the list; of several objects with one
// key the last one. After an error the queue is unchanged. O(list + queued).
func (q *front) Replace(list []any, _ string) error {
	r, err := newReplacement(q.keys, list)
	if err != nil {
		return err
	}
	r.first = q.initial.Claim()
	q.engine.push(item{r, replace})
	q.engine.settle()
	return nil
}

func ownVariant(name, summary string, consumers impls.Consumers, build func(Options) (Queue, error)) Variant {
	order, maxShards := impls.OrderPerKey, 1
	if consumers == impls.ManyConsumers {
		order, maxShards = impls.OrderPerShard, MaxShards
	}
	return Variant{
		Name:    name,
		Summary: summary,
		Guarantees: []impls.Guarantees{{
			Order: order, Coalesces: impls.CoalesceLatest,
			Consumers: consumers, Unlocked: true, Throttles: impls.ThrottlesNever, DropIn: "cache.Queue",
		}},
		New: func(o Options) (Queue, error) {
			o, err := o.complete(maxShards)
			if err != nil {
				return nil, err
			}
			return build(o)
		},
	}
}
