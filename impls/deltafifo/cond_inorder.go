package deltafifo

import (
	"sync"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls/internal/gate"
	"watchlab/impls/internal/initial"
	"watchlab/impls/internal/objkey"
)

// condInOrder is the cond variant with in-order delivery: a chain of fixed
// blocks. Producers fill the last block under the lock; the consumer takes
// everything that is there by noting where the chain ends, and cuts its batches
// from that without the lock. A block is never copied or grown, so that the
// lock is held for the time of one append however much waits.
type condInOrder struct {
	keys        objkey.Func
	known       cache.KeyListerGetter
	transformer cache.TransformFunc
	batchSize   int
	initial     *initial.List

	// initialEnd is the position in the queue at which the initial list ends, 0
	// where there is none or it has been processed. It is written under lock,
	// together with the items before it, so that a consumer that has seen those
	// under the lock sees it too.
	initialEnd atomic.Uint64
	// cut counts the deltas handed to process, processed those it is done with.
	// Written by the consumer only.
	cut, processed atomic.Uint64

	// consumer serialises those that take. It is held while process runs, and
	// taken before lock.
	consumer sync.Mutex
	// The next delta is head.deltas[pos]; all before position bound of the queue
	// may be taken without the lock. Guarded by consumer; where known is set,
	// written under lock as well, because Replace and Resync read them then.
	head  *block
	pos   int
	bound uint64
	// unique and slab are guarded by consumer.
	unique keySet
	slab   slab

	// lock guards what follows. The critical section of a producer is one
	// append.
	lock gate.Gate
	// tail is the last block; its first free place is tail.deltas[tail.n].
	tail *block
	// added counts all deltas ever queued: the position of the next one.
	added uint64
	// spare is a drained block to use again.
	spare *block
	// handed are the deltas that process is working on. Kept only where known
	// is set.
	handed []cache.Delta
}

// blockSize deltas are 8 kB: small beside the objects that they refer to.
const blockSize = 256

type block struct {
	deltas [blockSize]cache.Delta
	// n is how many have been filled; guarded by the queue's lock.
	n int
	// next is written once, under the lock, when the block is full.
	next *block
}

func newCondInOrder(o Options) *condInOrder {
	b := new(block)
	return &condInOrder{
		keys:        objkey.New(o.KeyFunction),
		known:       o.KnownObjects,
		transformer: o.Transformer,
		batchSize:   o.BatchSize,
		initial:     initial.New("cond"),
		head:        b,
		tail:        b,
	}
}

var (
	_ BatchQueue                   = (*condInOrder)(nil)
	_ cache.TransformingStore      = (*condInOrder)(nil)
	_ cache.ReflectorBookmarkStore = (*condInOrder)(nil)
)

func (q *condInOrder) Add(obj any) error    { return q.event(cache.Added, obj) }
func (q *condInOrder) Update(obj any) error { return q.event(cache.Updated, obj) }
func (q *condInOrder) Delete(obj any) error { return q.event(cache.Deleted, obj) }

func (q *condInOrder) event(t cache.DeltaType, obj any) error {
	// The key is the consumer's to make; an object without one is refused here.
	err := q.keys.Check(obj)
	if err == nil {
		obj, err = transform(q.transformer, obj)
	}
	q.lock.Lock()
	q.initial.Touch()
	if err != nil {
		q.lock.Unlock()
		return err
	}
	q.append(cache.Delta{Type: t, Object: obj})
	q.lock.UnlockAndWake()
	return nil
}

// append queues a delta. The caller holds the lock.
func (q *condInOrder) append(d cache.Delta) {
	t := q.tail
	if t.n == blockSize {
		t = q.grow()
	}
	t.deltas[t.n] = d
	t.n++
	q.added++
}

func (q *condInOrder) grow() *block {
	b := q.spare
	if b == nil {
		b = new(block)
	}
	q.spare = nil
	q.tail.next = b
	q.tail = b
	return b
}

// Bookmark queues a Bookmark delta, or nothing where KnownObjects is set.
func (q *condInOrder) Bookmark(resourceVersion string) error {
	if q.known == nil {
		q.command(cache.Delta{Type: cache.Bookmark, Object: cache.BookmarkInfo{ResourceVersion: resourceVersion}})
	}
	return nil
}

// Resync queues one SyncAll delta, or, where KnownObjects is set, a Sync delta
// for each known object of which nothing is queued or being processed.
func (q *condInOrder) Resync() error {
	if q.known == nil {
		q.command(cache.Delta{Type: cache.SyncAll, Object: cache.SyncAllInfo{}})
		return nil
	}
	q.lock.Lock()
	defer q.lock.UnlockAndWake()
	queued, _, err := q.newest()
	if err != nil {
		return err
	}
	for _, k := range q.known.ListKeys() {
		if _, there := queued[objkey.Split(k)]; there {
			continue
		}
		// A key that is gone by now, or a store that fails, leaves nothing to
		// sync; upstream logs and goes on.
		if obj, exists, err := q.known.GetByKey(k); err == nil && exists {
			q.append(cache.Delta{Type: cache.Sync, Object: obj})
		}
	}
	return nil
}

// Replace queues one ReplacedAll delta, or, where KnownObjects is set,
// tombstones for what the list lacks and then a Replaced delta for each of its
// objects. It is atomic: the consumer sees all of it in a row or, after an
// error, nothing. O(list + queued + known).
func (q *condInOrder) Replace(list []any, resourceVersion string) error {
	objs, err := transformAll(q.transformer, list)
	if err != nil {
		return err
	}
	if q.known == nil {
		q.lock.Lock()
		defer q.lock.UnlockAndWake()
		q.append(cache.Delta{Type: cache.ReplacedAll, Object: cache.ReplacedAllInfo{
			ResourceVersion: resourceVersion, Objects: objs,
		}})
		q.populate()
		return nil
	}

	listed := make(map[objkey.Key]struct{}, len(objs))
	for _, obj := range objs {
		k, err := q.keys.OfQueued(obj)
		if err != nil {
			return err
		}
		listed[k] = struct{}{}
	}
	q.lock.Lock()
	defer q.lock.UnlockAndWake()
	queued, order, err := q.newest()
	if err != nil {
		return err
	}
	gone := func(k objkey.Key, obj any) {
		q.append(cache.Delta{Type: cache.Deleted, Object: cache.DeletedFinalStateUnknown{Key: k.String(), Obj: obj}})
	}
	for _, k := range order {
		if _, there := listed[k]; !there && queued[k].Type != cache.Deleted {
			gone(k, queued[k].Object)
		}
	}
	for _, s := range q.known.ListKeys() {
		k := objkey.Split(s)
		if _, there := listed[k]; there {
			continue
		}
		if _, there := queued[k]; there {
			continue
		}
		// Without the object the tombstone still tells the key, as upstream.
		obj, exists, err := q.known.GetByKey(s)
		if err != nil || !exists {
			obj = nil
		}
		gone(k, obj)
	}
	for _, obj := range objs {
		q.append(cache.Delta{Type: cache.Replaced, Object: obj})
	}
	q.populate()
	return nil
}

// command queues a delta that speaks of no single object. It does not count as
// the first event for HasSynced, as upstream.
func (q *condInOrder) command(d cache.Delta) {
	q.lock.Lock()
	defer q.lock.UnlockAndWake()
	q.append(d)
}

// populate ends the initial list here if this is the first Replace. The caller
// holds the lock.
func (q *condInOrder) populate() {
	switch {
	case q.initial.Populated():
	case q.processed.Load() == q.added:
		q.initial.Set(0)
	default:
		// One mark to pass: the position is what counts.
		q.initialEnd.Store(q.added)
		q.initial.Set(1)
	}
}

// newest returns the newest delta of each key that is queued or being
// processed, and the keys in the order in which they were first queued. The
// caller holds the lock, and known is set.
func (q *condInOrder) newest() (map[objkey.Key]cache.Delta, []objkey.Key, error) {
	waiting := int(q.added - q.cut.Load())
	m := make(map[objkey.Key]cache.Delta, len(q.handed)+waiting)
	order := make([]objkey.Key, 0, len(q.handed)+waiting)
	note := func(d cache.Delta) error {
		k, err := q.keys.OfQueued(d.Object)
		if err != nil {
			return err
		}
		if _, there := m[k]; !there {
			order = append(order, k)
		}
		m[k] = d
		return nil
	}
	for _, d := range q.handed {
		if err := note(d); err != nil {
			return nil, nil, err
		}
	}
	b, pos := q.head, q.pos
	for range waiting {
		if pos == blockSize {
			b, pos = b.next, 0
		}
		if err := note(b.deltas[pos]); err != nil {
			return nil, nil, err
		}
		pos++
	}
	return m, order, nil
}

// Pop implements [cache.Queue]. process gets [cache.Deltas] of length one.
func (q *condInOrder) Pop(process cache.PopProcessFunc) (any, error) {
	q.consumer.Lock()
	defer q.consumer.Unlock()
	if !q.await(1) {
		return nil, cache.ErrFIFOClosed
	}
	d := cache.Deltas(q.take(1))
	defer q.done()
	return d, process(d, !q.initial.HasSynced())
}

// PopBatch implements [cache.QueueWithBatch].
func (q *condInOrder) PopBatch(processBatch cache.ProcessBatchFunc, processSingle cache.PopProcessFunc) error {
	q.consumer.Lock()
	defer q.consumer.Unlock()
	if !q.await(q.batchSize) {
		return cache.ErrFIFOClosed
	}
	batch := q.take(q.batchLen())
	defer q.done()
	if len(batch) == 1 {
		return processSingle(cache.Deltas(batch), !q.initial.HasSynced())
	}
	return processBatch(batch, !q.initial.HasSynced())
}

// await returns when something can be taken, or false when the queue is closed
// and drained. It looks for more where less than want may be taken without the
// lock.
func (q *condInOrder) await(want int) bool {
	if q.cut.Load()+uint64(want) <= q.bound {
		return true
	}
	q.lock.Lock()
	defer q.lock.Unlock()
	for q.added == q.cut.Load() {
		if q.lock.Closed() {
			return false
		}
		q.lock.Wait()
	}
	q.bound = q.added
	return true
}

// batchLen returns how many deltas from here on make a batch: at most
// batchSize, up to the end of the initial list, no key twice, and no delta that
// speaks of several objects, save alone.
func (q *condInOrder) batchLen() int {
	at := q.cut.Load()
	limit := min(q.bound-at, uint64(q.batchSize))
	if end := q.initialEnd.Load(); end > at {
		limit = min(limit, end-at)
	}
	if limit == 1 {
		return 1
	}
	q.unique.reset()
	b, pos := q.head, q.pos
	for n := range int(limit) {
		if pos == blockSize {
			b, pos = b.next, 0
		}
		d := &b.deltas[pos]
		pos++
		if !batchable(d.Type) {
			return max(n, 1)
		}
		k, err := q.keys.OfQueued(d.Object)
		if err != nil {
			// A transformer made an object without a key. Upstream lets it end
			// the batch that it stands in.
			return n + 1
		}
		if !q.unique.add(k.Hash()) {
			return n
		}
	}
	return int(limit)
}

// take cuts the next n deltas off, which are there, and returns them in memory
// that is the consumer's.
func (q *condInOrder) take(n int) []cache.Delta {
	out := q.slab.take(n)
	if q.known != nil {
		q.lock.Lock()
		defer q.lock.Unlock()
	}
	for i := 0; i < n; {
		if q.pos == blockSize {
			q.advance()
		}
		// The places are cleared so that what is handed over can be collected.
		from := q.head.deltas[q.pos:min(blockSize, q.pos+n-i)]
		copy(out[i:], from)
		clear(from)
		i += len(from)
		q.pos += len(from)
	}
	if q.known != nil {
		q.handed = append(q.handed, out...)
	}
	q.cut.Add(uint64(n))
	return out
}

// advance leaves a drained block, which is kept for the producers.
func (q *condInOrder) advance() {
	b := q.head
	q.head, q.pos = b.next, 0
	if q.known == nil {
		q.lock.Lock()
		defer q.lock.Unlock()
	}
	b.next, b.n = nil, 0
	q.spare = b
}

// done notes that process has returned. HasSynced may turn true only now.
func (q *condInOrder) done() {
	at := q.cut.Load()
	q.processed.Store(at)
	if q.known == nil && q.initial.HasSynced() {
		return
	}
	q.lock.Lock()
	defer q.lock.Unlock()
	clear(q.handed)
	q.handed = q.handed[:0]
	if q.initial.Populated() && at >= q.initialEnd.Load() {
		q.initial.Processed(1)
		q.initialEnd.Store(0)
	}
}

// Close implements [cache.Queue].
func (q *condInOrder) Close() { q.lock.Close() }

// IsClosed reports whether Close was called.
func (q *condInOrder) IsClosed() bool { return q.lock.IsClosed() }

// Len implements [Queue].
func (q *condInOrder) Len() int {
	q.lock.Lock()
	defer q.lock.Unlock()
	return int(q.added - q.cut.Load())
}

func (q *condInOrder) HasSynced() bool                     { return q.initial.HasSynced() }
func (q *condInOrder) HasSyncedChecker() cache.DoneChecker { return q.initial }

// Transformer implements [cache.TransformingStore].
func (q *condInOrder) Transformer() cache.TransformFunc { return q.transformer }
