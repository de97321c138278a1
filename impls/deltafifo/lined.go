package deltafifo

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
	"watchlab/impls/internal/keys"
	"watchlab/impls/internal/ring"
)

// lined is a queue in two parts: a line, to which producers push what they do,
// and a backlog, which belongs to the consumer. A call of a producer costs one
// push; keys are made, deltas folded and batches cut by the consumer.
//
// Replace, Resync and Bookmark go through the line as the events do, so that
// they take effect at their place in the order. Where they need to know what
// the consumer holds (KnownObjects), they are commands, which the owner of the
// backlog carries out when it meets them: the next that takes, or the caller
// itself where nobody is at it.
type lined struct {
	keys        keys.Func
	known       cache.KeyListerGetter
	transformer cache.TransformFunc
	initial     *keys.InitialList
	ctx         context.Context
	line        line
	closed      atomic.Bool

	whole bool

	perKey bool

	foldAt int

	consumer sync.Mutex

	lend  bool
	boxes boxes

	owner   sync.Mutex
	backlog backlog

	waiting atomic.Int64
}

const (
	// chunk is how many items are moved from the line to the backlog at a time:
	// they fit a first-level cache.
	chunk = 256
	// latestFoldAt bounds, with Compaction latest, what accumulates behind a
	// slow consumer. To fold as many takes a producer less than a millisecond,
	// seldom enough not to show in the latency of one call in a thousand.
	latestFoldAt = 8192
)

func newLined(o Options, name string, l line) *lined {
	q := &lined{
		keys:        keys.NewFunc(o.KeyFunction),
		known:       o.KnownObjects,
		transformer: o.Transformer,
		initial:     keys.NewInitialList(name),
		ctx:         o.Context,
		line:        l,
		whole:       o.Delivery == InOrder && o.KnownObjects == nil,
		perKey:      o.Delivery == PerKey,
		lend:        o.HandOver == impls.Lent,
	}
	if q.perKey {
		q.backlog = newPerKey(o, q.initial)
	} else {
		q.backlog = newInOrder(o, q.initial)
	}
	if o.Compaction == Latest {
		q.foldAt = latestFoldAt
	}
	return q
}

var (
	_ BatchQueue                   = (*lined)(nil)
	_ cache.TransformingStore      = (*lined)(nil)
	_ cache.ReflectorBookmarkStore = (*lined)(nil)
)

func (q *lined) Add(obj any) error    { return q.event(added, obj) }
func (q *lined) Update(obj any) error { return q.event(updated, obj) }

// Delete queues a Deleted delta; with per-key delivery, unless the object is
// neither queued nor known when its turn comes.
func (q *lined) Delete(obj any) error { return q.event(deleted, obj) }

func (q *lined) event(k kind, obj any) error {
	// The key is the consumer's to make; an object without one is refused here.
	err := q.keys.Check(obj)
	if err == nil {
		obj, err = transform(q.transformer, obj)
	}
	if err != nil {
		// As upstream, it counts as the first that came.
		q.initial.Touch()
		return err
	}
	return q.push(item{obj: obj, kind: k})
}

func (q *lined) push(i item) error {
	if err := q.line.Push(q.ctx, i); err != nil {
		return pushError(err)
	}
	// Which call came first, and whether the initial list is empty, shows when
	// it is folded.
	if !q.initial.HasSynced() || q.foldAt > 0 && q.line.Len() >= q.foldAt {
		q.settle()
	}
	return nil
}

// pushError turns an error of a line into client-go's.
func pushError(err error) error {
	if errors.Is(err, ring.ErrClosed) {
		return cache.ErrFIFOClosed
	}
	return err
}

// Bookmark queues a Bookmark delta, or nothing where KnownObjects is set or
// delivery is per key.
func (q *lined) Bookmark(resourceVersion string) error {
	if !q.whole {
		return nil
	}
	return q.push(item{obj: cache.BookmarkInfo{ResourceVersion: resourceVersion}, kind: bookmark})
}

// Resync queues one SyncAll delta with in-order delivery and KnownObjects nil;
// a Sync delta for each known object of which nothing is queued or being
// processed where it is set; otherwise nothing. O(known).
func (q *lined) Resync() error {
	if i, ok := resyncItem(q.whole, q.known); ok {
		return q.send(i)
	}
	return nil
}

// Replace queues one ReplacedAll delta with in-order delivery and KnownObjects
// nil. Otherwise it queues a Replaced delta for each object of the list, and
// tombstones for what is queued, being processed or known and not in the list;
// nothing of another call comes between them, and together they take one place
// of Capacity. After an error nothing is queued. O(list + queued + known).
func (q *lined) Replace(list []any, resourceVersion string) error {
	i, err := replaceItem(q.whole, q.keys, q.transformer, list, resourceVersion)
	if err != nil {
		return err
	}
	return q.send(i)
}

// send pushes a delta, and sees to it that a command is carried out.
func (q *lined) send(i item) error {
	if i.kind.command() {
		return q.command(i)
	}
	return q.push(i)
}

// command pushes a command and carries it out, if nobody is about to do so.
func (q *lined) command(c item) error {
	err := q.push(c)
	q.settle()
	return err
}

// settle takes what is in the line into the backlog, unless somebody else is
// at it.
func (q *lined) settle() {
	if q.owner.TryLock() {
		defer q.owner.Unlock()
		q.fold(q.line.Len())
	}
}

// fold takes up to n items of the line into the backlog, and returns how many
// there were. The caller holds owner.
func (q *lined) fold(n int) int {
	left := n
	for left > 0 {
		room := q.backlog.room(left)
		q.waiting.Add(int64(len(room)))
		got := q.line.TakeBatch(room)
		q.backlog.put(room[:got])
		left -= got
		q.account()
		if got < len(room) {
			break
		}
	}
	return n - left
}

// account tells of what the backlog has become. The caller holds owner.
func (q *lined) account() {
	q.waiting.Store(int64(q.backlog.len()))
	if n := q.backlog.freed(); n > 0 {
		q.line.Release(n)
	}
}

// take returns the next hand-over, or nil when the queue is closed and drained.
func (q *lined) take(batch bool) (deltas []cache.Delta, batched bool) {
	q.owner.Lock()
	defer q.owner.Unlock()
	for {
		q.gather(batch)
		if deltas, batched = q.backlog.take(batch); deltas != nil {
			q.account()
			return deltas, batched
		}
		// Without an end of the context, the only error is that it's closed.
		if q.line.Wait(context.Background()) != nil {
			return nil, false
		}
	}
}

// gather puts into the backlog what the next hand-over is cut from. The caller
// holds owner.
func (q *lined) gather(batch bool) {
	if q.whole {
		for !q.backlog.enough(batch) && q.fold(chunk) == chunk {
			// There may be more.
		}
		return
	}
	// A key is handed over with all that was queued of it before, and a command
	// sees all that came before it.
	for n := q.line.Len(); n > 0; {
		if n -= q.fold(n); n == 0 {
			return
		}
		// A producer has claimed its place and not published it yet, though
		// others behind it have returned.
		if q.line.Wait(context.Background()) != nil {
			return
		}
	}
}

// Pop implements [cache.Queue]. process gets the [cache.Deltas] of one key with
// per-key delivery, one delta otherwise. It returns them too, or nil where they
// are lent.
func (q *lined) Pop(process cache.PopProcessFunc) (any, error) {
	q.consumer.Lock()
	defer q.consumer.Unlock()
	deltas, _ := q.take(false)
	if deltas == nil {
		return nil, cache.ErrFIFOClosed
	}
	defer q.done(deltas)
	obj := q.boxes.box(deltas, q.lend)
	err := process(obj, !q.initial.HasSynced())
	if q.lend {
		return nil, err
	}
	return obj, err
}

// PopBatch implements [cache.QueueWithBatch].
func (q *lined) PopBatch(processBatch cache.ProcessBatchFunc, processSingle cache.PopProcessFunc) error {
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
	return processSingle(q.boxes.box(deltas, q.lend), !q.initial.HasSynced())
}

// done notes that process has returned. HasSynced may turn true only now.
func (q *lined) done(deltas []cache.Delta) {
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
// [cache.ErrFIFOClosed], as do all that come later.
func (q *lined) Close() {
	q.closed.Store(true)
	q.line.Close()
}

// IsClosed reports whether Close was called.
func (q *lined) IsClosed() bool { return q.closed.Load() }

// Len implements [Queue]. With per-key delivery, what the consumer has not yet
// folded, as it is busy, counts an event each.
func (q *lined) Len() int {
	if q.perKey {
		q.settle()
	}
	n := q.line.Len()
	return n + int(q.waiting.Load())
}

// HasSynced implements [cache.Queue].
func (q *lined) HasSynced() bool { return q.initial.HasSynced() }

// HasSyncedChecker implements [cache.Queue].
func (q *lined) HasSyncedChecker() cache.DoneChecker { return q.initial }

// Transformer implements [cache.TransformingStore].
func (q *lined) Transformer() cache.TransformFunc { return q.transformer }
