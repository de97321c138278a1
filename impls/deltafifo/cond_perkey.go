package deltafifo

import (
	"sync"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls/internal/gate"
	"watchlab/impls/internal/initial"
	"watchlab/impls/internal/keyed"
	"watchlab/impls/internal/objkey"
)

// condPerKey is the cond variant with per-key delivery: a FIFO of keys, each
// with its deltas, under one lock that is released while process runs.
//
// PopBatch hands over keys with one delta each as a batch, in the order in
// which they began to wait. A key with several deltas can't share a batch, in
// which no key stands twice, and travels alone.
type condPerKey struct {
	keys        objkey.Func
	known       cache.KeyListerGetter
	transformer cache.TransformFunc
	batchSize   int
	initial     *initial.List

	// consumer serialises those that take. It is held while process runs, and
	// taken before lock.
	consumer sync.Mutex

	// lock guards what follows.
	lock   gate.Gate
	queued keyed.FIFO[pending]
	slab   slab
	// handed are the keys that process works on. Upstream holds the lock while
	// it processes, so that a key is either queued or known; here it may be
	// neither yet, and is found here. Kept only where known is set.
	handed []handedKey
}

// pending is what waits under one key. Most keys have one delta when they are
// taken, which then needs no slice of its own.
type pending struct {
	// first is the only delta where all is nil.
	first cache.Delta
	// all are the deltas, oldest first, where there are several.
	all cache.Deltas
}

func (p *pending) newest() *cache.Delta {
	if p.all == nil {
		return &p.first
	}
	return p.all.Newest()
}

// handedKey is a key in process's hands, with the newest of its deltas.
type handedKey struct {
	key    objkey.Key
	newest cache.Delta
}

func newCondPerKey(o Options) *condPerKey {
	return &condPerKey{
		keys:        objkey.New(o.KeyFunction),
		known:       o.KnownObjects,
		transformer: o.Transformer,
		batchSize:   o.BatchSize,
		initial:     initial.New("cond"),
	}
}

var (
	_ BatchQueue              = (*condPerKey)(nil)
	_ cache.TransformingStore = (*condPerKey)(nil)
)

func (q *condPerKey) Add(obj any) error    { return q.event(cache.Added, obj) }
func (q *condPerKey) Update(obj any) error { return q.event(cache.Updated, obj) }

// Delete queues a Deleted delta, unless the object is neither queued nor known.
func (q *condPerKey) Delete(obj any) error { return q.event(cache.Deleted, obj) }

func (q *condPerKey) event(t cache.DeltaType, obj any) error {
	key, err := q.keys.OfQueued(obj)
	if err == nil {
		obj, err = transform(q.transformer, obj)
	}
	hash := key.Hash()
	q.lock.Lock()
	q.initial.Touch()
	if err != nil {
		q.lock.Unlock()
		return err
	}
	e := q.queued.Get(hash, key)
	if e == nil && t == cache.Deleted && !q.exists(key) {
		// Deleted by a relist already: a deletion is told once.
		q.lock.Unlock()
		return nil
	}
	q.put(e, hash, key, cache.Delta{Type: t, Object: obj})
	q.lock.UnlockAndWake()
	return nil
}

// exists tells whether the consumer has, or is about to have, an object of a
// key that is not queued. A store that fails counts as having it, as upstream.
// The caller holds the lock.
func (q *condPerKey) exists(key objkey.Key) bool {
	if q.known == nil {
		return false
	}
	if d, there := q.inHand(key); there {
		return d.Type != cache.Deleted
	}
	_, exists, err := q.known.GetByKey(key.String())
	return err != nil || exists
}

// inHand returns the newest delta of a key that process works on. O(batch), on
// paths that are rare. The caller holds the lock.
func (q *condPerKey) inHand(key objkey.Key) (cache.Delta, bool) {
	for i := range q.handed {
		if q.handed[i].key == key {
			return q.handed[i].newest, true
		}
	}
	return cache.Delta{}, false
}

// put queues a delta of a key whose entry is e, nil where it does not wait yet.
// The caller holds the lock.
func (q *condPerKey) put(e *keyed.Entry[pending], hash uint64, key objkey.Key, d cache.Delta) {
	if e == nil {
		q.queued.Push(hash, key).Value.first = d
		return
	}
	p := &e.Value
	last := p.newest()
	if last.Type == cache.Deleted && d.Type == cache.Deleted {
		// Of two deletions in a row the one that knows the final state is kept
		// (client-go v0.37, delta_fifo.go).
		if _, tombstone := last.Object.(cache.DeletedFinalStateUnknown); tombstone {
			*last = d
		}
		return
	}
	switch n := len(p.all); {
	case n == 0:
		p.all = append(q.slab.take(4)[:0], p.first)
	case n == cap(p.all):
		p.all = append(q.slab.take(2 * n)[:0], p.all...)
	}
	p.all = append(p.all, d)
}

// Resync queues a Sync delta for each known object of which nothing is queued
// or being processed. Without KnownObjects it does nothing. O(known).
func (q *condPerKey) Resync() error {
	if q.known == nil {
		return nil
	}
	q.lock.Lock()
	defer q.lock.UnlockAndWake()
	for _, s := range q.known.ListKeys() {
		key := objkey.Split(s)
		hash := key.Hash()
		if q.queued.Get(hash, key) != nil {
			continue
		}
		if _, there := q.inHand(key); there {
			continue
		}
		// A key that is gone by now, or a store that fails, leaves nothing to
		// sync; upstream logs and goes on.
		if obj, exists, err := q.known.GetByKey(s); err == nil && exists {
			q.put(nil, hash, key, cache.Delta{Type: cache.Sync, Object: obj})
		}
	}
	return nil
}

// Replace queues a Replaced delta for each object of the list, and then a
// tombstone for each object that is queued, in hand or known and not in the
// list. It is atomic: nothing of another call comes between, and after an error
// nothing is queued. O(list + queued + known).
func (q *condPerKey) Replace(list []any, _ string) error {
	type item struct {
		key  objkey.Key
		hash uint64
	}
	items := make([]item, len(list))
	listed := make(map[objkey.Key]struct{}, len(list))
	for i, obj := range list {
		k, err := q.keys.OfQueued(obj)
		if err != nil {
			return err
		}
		items[i] = item{k, k.Hash()}
		listed[k] = struct{}{}
	}
	objs, err := transformAll(q.transformer, list)
	if err != nil {
		return err
	}

	q.lock.Lock()
	defer q.lock.UnlockAndWake()
	for i, obj := range objs {
		k := items[i]
		q.put(q.queued.Get(k.hash, k.key), k.hash, k.key, cache.Delta{Type: cache.Replaced, Object: obj})
	}
	tombstone := func(k objkey.Key, obj any) cache.Delta {
		return cache.Delta{Type: cache.Deleted, Object: cache.DeletedFinalStateUnknown{Key: k.String(), Obj: obj}}
	}
	for e := q.queued.Front(); e != nil; e = e.Next() {
		if _, there := listed[e.Key]; there {
			continue
		}
		obj := e.Value.newest().Object
		if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = d.Obj
		}
		q.put(e, 0, e.Key, tombstone(e.Key, obj))
	}
	if q.known != nil {
		q.buryKnown(listed, tombstone)
	}
	if !q.initial.Populated() {
		q.initial.Set(q.queued.Len())
	}
	return nil
}

// buryKnown queues tombstones for what is in hand or known, but neither listed
// nor queued. The caller holds the lock.
func (q *condPerKey) buryKnown(listed map[objkey.Key]struct{}, tombstone func(objkey.Key, any) cache.Delta) {
	bury := func(key objkey.Key, find func() any) {
		if _, there := listed[key]; there {
			return
		}
		hash := key.Hash()
		if q.queued.Get(hash, key) == nil {
			q.put(nil, hash, key, tombstone(key, find()))
		}
	}
	inHand := make(map[objkey.Key]struct{}, len(q.handed))
	for _, h := range q.handed {
		inHand[h.key] = struct{}{}
		if h.newest.Type != cache.Deleted {
			bury(h.key, func() any { return h.newest.Object })
		}
	}
	for _, s := range q.known.ListKeys() {
		key := objkey.Split(s)
		if _, there := inHand[key]; there {
			continue
		}
		bury(key, func() any {
			// Without the object the tombstone still tells the key, as
			// upstream.
			if obj, exists, err := q.known.GetByKey(s); err == nil && exists {
				return obj
			}
			return nil
		})
	}
}

// Pop implements [cache.Queue]. process gets the [cache.Deltas] of one key.
func (q *condPerKey) Pop(process cache.PopProcessFunc) (any, error) {
	q.consumer.Lock()
	defer q.consumer.Unlock()
	q.lock.Lock()
	if !q.await() {
		q.lock.Unlock()
		return nil, cache.ErrFIFOClosed
	}
	isInInitialList := !q.initial.HasSynced()
	defer q.done(min(1, q.initial.Left()))
	deltas := q.takeKey()
	q.lock.Unlock()
	return deltas, process(deltas, isInInitialList)
}

// PopBatch implements [cache.QueueWithBatch].
func (q *condPerKey) PopBatch(processBatch cache.ProcessBatchFunc, processSingle cache.PopProcessFunc) error {
	q.consumer.Lock()
	defer q.consumer.Unlock()
	q.lock.Lock()
	if !q.await() {
		q.lock.Unlock()
		return cache.ErrFIFOClosed
	}
	isInInitialList := !q.initial.HasSynced()
	n := q.batchLen()
	if n <= 1 {
		defer q.done(min(1, q.initial.Left()))
		deltas := q.takeKey()
		q.lock.Unlock()
		return processSingle(deltas, isInInitialList)
	}
	defer q.done(min(n, q.initial.Left()))
	batch := q.slab.take(n)
	for i := range batch {
		batch[i] = q.take().first
	}
	q.lock.Unlock()
	return processBatch(batch, isInInitialList)
}

// await returns when a key waits, or false when the queue is closed and
// drained. The caller holds the lock.
func (q *condPerKey) await() bool {
	for q.queued.Len() == 0 {
		if q.lock.Closed() {
			return false
		}
		q.lock.Wait()
	}
	return true
}

// batchLen returns how many of the next keys make a batch: at most batchSize,
// within the initial list, each with one delta; 0 where the next key has
// several. The caller holds the lock.
func (q *condPerKey) batchLen() int {
	limit := q.batchSize
	if left := q.initial.Left(); left > 0 {
		limit = min(limit, left)
	}
	n := 0
	for e := q.queued.Front(); e != nil && n < limit && e.Value.all == nil; e = e.Next() {
		n++
	}
	return n
}

// takeKey takes out the key that has waited longest, in memory that is the
// consumer's. The caller holds the lock.
func (q *condPerKey) takeKey() cache.Deltas {
	p := q.take()
	if p.all != nil {
		return p.all
	}
	deltas := q.slab.take(1)
	deltas[0] = p.first
	return deltas
}

// take takes out the key that has waited longest. The caller holds the lock.
func (q *condPerKey) take() pending {
	e := q.queued.Front()
	p := e.Value
	if q.known != nil {
		q.handed = append(q.handed, handedKey{e.Key, *p.newest()})
	}
	q.queued.Remove(e)
	return p
}

// done notes that process has returned, from n keys of the initial list.
// HasSynced may turn true only now.
func (q *condPerKey) done(n int) {
	if q.known == nil && q.initial.HasSynced() {
		return
	}
	q.lock.Lock()
	defer q.lock.Unlock()
	clear(q.handed)
	q.handed = q.handed[:0]
	q.initial.Processed(n)
}

// Close implements [cache.Queue].
func (q *condPerKey) Close() { q.lock.Close() }

// IsClosed reports whether Close was called.
func (q *condPerKey) IsClosed() bool { return q.lock.IsClosed() }

// Len implements [Queue].
func (q *condPerKey) Len() int {
	q.lock.Lock()
	defer q.lock.Unlock()
	return q.queued.Len()
}

func (q *condPerKey) HasSynced() bool                     { return q.initial.HasSynced() }
func (q *condPerKey) HasSyncedChecker() cache.DoneChecker { return q.initial }

// Transformer implements [cache.TransformingStore].
func (q *condPerKey) Transformer() cache.TransformFunc { return q.transformer }
