package deltafifo

import (
	"sync"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
	"watchlab/impls/internal/keys"
)

// base is embedded in all variants but the baselines.
type base struct {
	keys        keys.Func // keys, known and transformer are those of [Options]
	known       cache.KeyListerGetter
	transformer cache.TransformFunc
	initial     *keys.InitialList
	atomicLists bool // Replace and Resync are one delta each (in-order, without KnownObjects)
	perKey      bool // delivery is per key
	lend        bool // process borrows its slices ([impls.Lent])
}

func newBase(o Options, name string) base {
	return base{
		keys:        keys.NewFunc(o.KeyFunction),
		known:       o.KnownObjects,
		transformer: o.Transformer,
		initial:     keys.NewInitialList(name),
		atomicLists: o.Delivery == InOrder && o.KnownObjects == nil,
		perKey:      o.Delivery == PerKey,
		lend:        o.HandOver == impls.Lent,
	}
}

func (b *base) HasSynced() bool                     { return b.initial.HasSynced() }
func (b *base) HasSyncedChecker() cache.DoneChecker { return b.initial }
func (b *base) Transformer() cache.TransformFunc    { return b.transformer }

// producers is the API of the producers. The sink stores the items.
type producers struct {
	base
	sink sink
}

// sink is the storage behind [producers].
type sink interface {
	// push stores an item, unless the queue is closed. When it returns, a command and the first call have
	// taken effect.
	push(i item)
}

// front is the API of a queue with one consumer at a time. The engine stores the items.
type front struct {
	producers
	engine   engine
	throttle throttle
	_        [128]byte
	// consumer serialises consumers. It is held while process runs, and guards
	// values. The padding keeps it off the cache lines that producers read.
	consumer sync.Mutex
	values   interfaces
	_        [128]byte
}

// engine is the storage behind a [front].
type engine interface {
	sink
	// take removes the next deltas. It waits for some, and returns nil when the queue is closed and
	// empty. batched says that they are a batch of several keys.
	take(batch bool) (deltas []cache.Delta, batched bool)
	// queued returns the number of deltas that are queued after take.
	queued() int
	// done is the return of process. If synced is false, HasSynced may turn true now.
	done(synced bool)
}

var (
	_ BatchQueue                   = (*buffered)(nil)
	_ BatchQueue                   = (*channel)(nil)
	_ BatchQueue                   = (*sharded)(nil)
	_ cache.TransformingStore      = (*producers)(nil)
	_ cache.ReflectorBookmarkStore = (*producers)(nil)
)

func (q *producers) Add(obj any) error    { return q.event(added, obj) }
func (q *producers) Update(obj any) error { return q.event(updated, obj) }

// Delete queues a Deleted delta; with per-key delivery, unless the object is
// neither queued nor known when the delete takes effect.
func (q *producers) Delete(obj any) error { return q.event(deleted, obj) }

func (q *producers) event(k kind, obj any) error {
	// The owner of the backlog computes the key; an object without one is refused here.
	err := q.keys.Check(obj)
	switch {
	case err == nil && q.transformer != nil:
		obj, err = q.transform(obj)
	case err != nil && k == deleted && q.perKey:
		return err
	}
	if err != nil {
		// As upstream, it counts as the first call, except for a Delete of DeltaFIFO without a key.
		q.initial.Touch()
		return err
	}
	q.sink.push(item{obj: obj, kind: k})
	return nil
}

// Bookmark queues a Bookmark delta, or nothing where KnownObjects is set or delivery is per key.
func (q *producers) Bookmark(resourceVersion string) error {
	if q.atomicLists {
		q.sink.push(item{obj: cache.BookmarkInfo{ResourceVersion: resourceVersion}, kind: bookmark})
	}
	return nil
}

// Resync queues one SyncAll delta with in-order delivery and KnownObjects nil; a
// Sync delta for each known object that is neither queued nor in process where
// KnownObjects is set; otherwise nothing. O(known).
func (q *producers) Resync() error {
	if q.atomicLists {
		q.sink.push(item{obj: cache.SyncAllInfo{}, kind: syncAll})
	} else if q.known != nil {
		q.command(resyncCommand, nil)
	}
	return nil
}

// Replace queues one ReplacedAll delta with in-order delivery and KnownObjects nil. Otherwise it
// queues a Replaced delta for each object of the list, and tombstones for queued, processed and
// known objects that the list lacks; nothing of another call comes between them, and together they
// use one of Capacity. After an error nothing is queued. The list is the caller's again when Replace
// has returned, unless it is handed over as one ReplacedAll, as upstream. O(list + queued + known).
func (q *producers) Replace(list []any, resourceVersion string) error {
	if !q.atomicLists {
		for _, obj := range list {
			if err := q.keys.Check(obj); err != nil {
				return err
			}
		}
	}
	objs, err := q.transformAll(list)
	switch {
	case err != nil:
		return err
	case q.atomicLists:
		q.sink.push(item{obj: cache.ReplacedAllInfo{ResourceVersion: resourceVersion, Objects: objs}, kind: replacedAll})
	default:
		q.command(replaceCommand, objs)
	}
	return nil
}

// command executes a command. The caller gets the panic of KnownObjects.
func (q *producers) command(k kind, list []any) {
	c := &command{list: list}
	q.sink.push(item{obj: c, kind: k})
	if c.panicked != nil {
		panic(c.panicked)
	}
}

// Pop implements [cache.Queue]. process receives the [cache.Deltas] of one key with per-key
// delivery, one delta otherwise. Pop returns them too, or nil where they are lent.
func (q *front) Pop(process cache.PopProcessFunc) (any, error) {
	q.consumer.Lock()
	defer q.consumer.Unlock()
	deltas, _ := q.engine.take(false)
	if deltas == nil {
		return nil, cache.ErrFIFOClosed
	}
	defer q.done(deltas)
	q.begin()
	obj := q.values.value(deltas, q.lend)
	err := process(obj, !q.initial.HasSynced())
	if q.lend {
		return nil, err
	}
	return obj, err
}

// PopBatch implements [cache.QueueWithBatch].
func (q *front) PopBatch(processBatch cache.ProcessBatchFunc, processSingle cache.PopProcessFunc) error {
	q.consumer.Lock()
	defer q.consumer.Unlock()
	deltas, batched := q.engine.take(true)
	if deltas == nil {
		return cache.ErrFIFOClosed
	}
	defer q.done(deltas)
	q.begin()
	if batched {
		return processBatch(deltas, !q.initial.HasSynced())
	}
	return processSingle(q.values.value(deltas, q.lend), !q.initial.HasSynced())
}

// begin is called before process.
func (q *front) begin() {
	if q.throttle.limit > 0 {
		q.throttle.begin(q.engine.queued())
	}
}

func (q *front) done(deltas []cache.Delta) {
	defer q.throttle.end()
	if q.lend {
		clear(deltas)
	}
	if synced := q.initial.HasSynced(); q.known != nil || !synced {
		q.engine.done(synced)
	}
}
