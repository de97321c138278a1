package deltafifo

import (
	"errors"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls/internal/ring"
)

// buffered is a queue in two parts:
//
//  1. The inbox. Each producer call pushes one item.
//  2. The backlog, which the consumer owns. It computes keys, merges deltas
//     and cuts batches.
//
// Replace, Resync and Bookmark go through the inbox like events, so that they
// keep their position in the order. If they depend on the consumer's store
// (KnownObjects), they are commands. The owner of the backlog executes them: the
// consumer in its next pop, or the caller if the backlog is not locked.
type buffered struct {
	base
	// inbox is safe for all producers; only the holder of owner takes from it.
	inbox  inbox
	closed atomic.Bool
	// perKey is true with per-key delivery.
	perKey bool
	// foldAt is the inbox length from which a producer moves items to the
	// backlog; 0 leaves that to the consumer.
	foldAt int

	// consumer serialises consumers. It is held while process runs, and taken
	// before owner.
	consumer sync.Mutex
	// consumer guards values.
	values interfaces

	// owner guards the backlog and the consumer's end of the inbox. The consumer
	// holds it until it has popped, also while it waits.
	owner   sync.Mutex
	backlog backlog
	// waiting is at least the length of the backlog, for Len. It is raised before
	// items leave the inbox, and the owner stores it afterwards. Len loads it
	// after the length of the inbox, so that it misses no item that moves
	// meanwhile.
	waiting atomic.Int64
}

const (
	// chunk is how many items are moved from the inbox to the backlog at a time:
	// they fit a first-level cache.
	chunk = 256
	// latestFoldAt bounds the inbox with Compaction latest and a slow consumer.
	// Folding as many takes a producer less than a millisecond, and happens too
	// seldom to show in the 99.9th percentile of a call's latency.
	latestFoldAt = 8192
)

func newBuffered(o Options, name string, in inbox) *buffered {
	q := &buffered{base: newBase(o, name), inbox: in, perKey: o.Delivery == PerKey}
	q.base.send = q.send
	q.backlog = newBacklog(o, q.initial)
	if o.Compaction == Latest {
		q.foldAt = latestFoldAt
	}
	return q
}

var (
	_ BatchQueue                   = (*buffered)(nil)
	_ cache.TransformingStore      = (*buffered)(nil)
	_ cache.ReflectorBookmarkStore = (*buffered)(nil)
)

func (q *buffered) Add(obj any) error    { return q.event(added, obj) }
func (q *buffered) Update(obj any) error { return q.event(updated, obj) }

// Delete queues a Deleted delta; with per-key delivery, unless the object is
// neither queued nor known when the delete takes effect.
func (q *buffered) Delete(obj any) error { return q.event(deleted, obj) }

func (q *buffered) event(k kind, obj any) error {
	// The consumer makes the key; an object without one is refused here.
	err := q.keys.Check(obj)
	if err == nil {
		obj, err = transform(q.transformer, obj)
	}
	if err != nil {
		// As upstream, it counts as the first call.
		q.initial.Touch()
		return err
	}
	return q.push(item{obj: obj, kind: k})
}

func (q *buffered) push(i item) error {
	if err := q.inbox.Push(q.ctx, i); err != nil {
		return pushError(err)
	}
	// The first call and an empty initial list take effect when they are folded.
	if !q.initial.HasSynced() || q.foldAt > 0 && q.inbox.Len() >= q.foldAt {
		q.settle()
	}
	return nil
}

// pushError returns client-go's error for that of an inbox.
func pushError(err error) error {
	if errors.Is(err, ring.ErrClosed) {
		return cache.ErrFIFOClosed
	}
	return err
}

// send queues an item and executes a command.
func (q *buffered) send(i item) error {
	if i.kind.command() {
		return q.command(i)
	}
	return q.push(i)
}

// command queues a command and executes it, unless the consumer is about to.
func (q *buffered) command(c item) error {
	err := q.push(c)
	q.settle()
	return err
}

// settle folds the inbox into the backlog, unless the backlog is locked.
func (q *buffered) settle() {
	if q.owner.TryLock() {
		defer q.owner.Unlock()
		q.fold(q.inbox.Len())
	}
}

// fold moves up to n items of the inbox to the backlog, and returns how many.
// The caller holds owner.
func (q *buffered) fold(n int) int {
	left := n
	for left > 0 {
		room := q.backlog.room(left)
		q.waiting.Add(int64(len(room)))
		got := q.inbox.TakeBatch(room)
		q.backlog.put(room[:got])
		left -= got
		q.account()
		if got < len(room) {
			break
		}
	}
	return n - left
}

// account updates Len and gives capacity back. The caller holds owner.
func (q *buffered) account() {
	q.waiting.Store(int64(q.backlog.len()))
	if n := q.backlog.freed(); n > 0 {
		q.inbox.Release(n)
	}
}

// take returns the next deltas, or nil when the queue is closed and empty.
func (q *buffered) take(batch bool) (deltas []cache.Delta, batched bool) {
	q.owner.Lock()
	defer q.owner.Unlock()
	for {
		q.gather(batch)
		if deltas, batched = q.backlog.take(batch); deltas != nil {
			q.account()
			return deltas, batched
		}
		if q.inbox.Wait() != nil {
			return nil, false
		}
	}
}

// gather folds what the next pop depends on. The caller holds owner.
func (q *buffered) gather(batch bool) {
	if q.atomicLists {
		for !q.backlog.enough(batch) && q.fold(chunk) == chunk {
			// The inbox may have more.
		}
		return
	}
	// A key is popped with all deltas that were queued before, and a command
	// sees all calls before it.
	for n := q.inbox.Len(); n > 0; {
		if n -= q.fold(n); n == 0 {
			return
		}
		// A producer has claimed its position and not published it yet, though
		// later ones have returned.
		if q.inbox.Wait() != nil {
			return
		}
	}
}

// Pop implements [cache.Queue]. process receives the [cache.Deltas] of one key
// with per-key delivery, one delta otherwise. Pop returns them too, or nil where
// they are lent.
func (q *buffered) Pop(process cache.PopProcessFunc) (any, error) {
	q.consumer.Lock()
	defer q.consumer.Unlock()
	deltas, _ := q.take(false)
	if deltas == nil {
		return nil, cache.ErrFIFOClosed
	}
	defer q.done(deltas)
	obj := q.values.value(deltas, q.lend)
	err := process(obj, !q.initial.HasSynced())
	if q.lend {
		return nil, err
	}
	return obj, err
}

// PopBatch implements [cache.QueueWithBatch].
func (q *buffered) PopBatch(processBatch cache.ProcessBatchFunc, processSingle cache.PopProcessFunc) error {
	q.consumer.Lock()
	defer q.consumer.Unlock()
	deltas, batched := q.take(true)
	if deltas == nil {
		return cache.ErrFIFOClosed
	}
	defer q.done(deltas)
	if batched {
		return processBatch(deltas, !q.initial.HasSynced())
	}
	return processSingle(q.values.value(deltas, q.lend), !q.initial.HasSynced())
}

// done is the return of process. HasSynced may turn true only now.
func (q *buffered) done(deltas []cache.Delta) {
	if q.lend {
		clear(deltas)
	}
	if q.known == nil && q.initial.HasSynced() {
		return
	}
	q.owner.Lock()
	defer q.owner.Unlock()
	q.backlog.done()
}

// Close implements [cache.Queue]. Producers that wait for room return
// [cache.ErrFIFOClosed], as do later calls.
func (q *buffered) Close() {
	q.closed.Store(true)
	q.inbox.Close()
}

// IsClosed reports whether Close was called.
func (q *buffered) IsClosed() bool { return q.closed.Load() }

// Len implements [Queue]. With per-key delivery, each event counts that a busy
// consumer has not folded yet.
func (q *buffered) Len() int {
	if q.perKey {
		q.settle()
	}
	n := q.inbox.Len()
	return n + int(q.waiting.Load())
}
