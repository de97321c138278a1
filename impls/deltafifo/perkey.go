package deltafifo

import (
	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
	"watchlab/impls/internal/keys"
)

// perKey is the backlog of per-key delivery: a FIFO of keys, each with its deltas.
//
// A batch has keys with one delta each, in the order in which they were queued. A key with several
// deltas is popped alone, because no key may appear twice in a batch.
type perKey struct {
	keys        keys.Func
	known       cache.KeyListerGetter
	batchSize   int
	initial     *keys.InitialList
	memory      allocator
	queued      keys.FIFO[pending] // the keys with their deltas, in order
	deltas      int                // the number of these deltas
	buf         [chunk]item        // memory that room returns
	spare       [][]item           // empty slices for reuse
	nspare      int                // the sum of their capacities, at most maxKept
	slab        []item             // memory of new slices
	free        int                // capacity freed since the last call of freed
	fromInitial int                // counts the keys of the initial list in process
	// inProcess holds the keys in process. Upstream holds its lock while it
	// processes, so that a key is either queued or known. Here a key in process
	// may be neither yet. Set only if known is not nil.
	inProcess []keyInProcess
}

// pending is the queued deltas of one key.
type pending struct {
	first item // the oldest delta
	// more is the other deltas, oldest first. They are contiguous: a backlog is larger than the
	// processor's caches, and a list of them would cost the pop a cache miss a delta.
	more []item
}

const (
	firstMore = 4 // capacity of a new slice
	slabLen   = 64 * firstMore
)

// keyInProcess is a key in process with its newest delta.
type keyInProcess struct {
	key    keys.Key
	newest item
}

func newPerKey(o Options, l *keys.InitialList) *perKey {
	return &perKey{
		keys:      keys.NewFunc(o.KeyFunction),
		known:     o.KnownObjects,
		batchSize: o.BatchSize,
		initial:   l,
		memory:    allocator{lend: o.HandOver == impls.Lent},
	}
}

func (p *pending) newest() *item {
	if n := len(p.more); n > 0 {
		return &p.more[n-1]
	}
	return &p.first
}

func (p *pending) len() int { return 1 + len(p.more) }

func (b *perKey) len() int  { return b.queued.Len() }
func (b *perKey) size() int { return b.deltas }

func (b *perKey) freed() int {
	n := b.free
	b.free = 0
	return n
}

// enough implements [backlog]. It is always false: a key is popped with all its
// queued deltas, some of which may still be in the inbox.
func (b *perKey) enough(bool) bool { return false }

func (b *perKey) room(n int) []item { return b.buf[:min(n, chunk)] }

func (b *perKey) put(items []item) {
	defer clear(items)
	var raw [hashStep]keys.Key
	for len(items) > 0 {
		step := items[:min(hashStep, len(items))]
		items = items[len(step):]
		for j := range step {
			raw[j], _ = b.keys.Raw(step[j].obj)
		}
		for j, i := range step {
			switch {
			case i.kind == replaceCommand:
				b.free++
				c := i.obj.(*command)
				c.execute(func() { b.replace(c.list) })
			case i.kind == resyncCommand:
				b.free++
				i.obj.(*command).execute(b.resync)
			case raw[j] != keys.Key{}:
				b.initial.Touch()
				key, hash := raw[j].Hashed()
				b.event(i, key, hash)
			default:
				b.eventOf(i)
			}
		}
	}
}

// eventOf queues a delta whose key needs the key function.
func (b *perKey) eventOf(i item) {
	b.initial.Touch()
	obj, key, hash, err := keyed(b.keys, i.obj)
	if err != nil {
		b.drop(i)
		return
	}
	i.obj = obj
	b.event(i, key, hash)
}

func (b *perKey) event(i item, key keys.Key, hash uint64) {
	if i.kind == deleted && b.queued.Get(hash, key) == nil && !b.exists(key) {
		// A relist has queued the deletion already; it is delivered once.
		b.drop(i)
		return
	}
	b.add(hash, key, i)
}

// drop frees the capacity of an item that will not be popped.
func (b *perKey) drop(i item) {
	if !i.placeless {
		b.free++
	}
}

// exists reports whether the consumer has, or is about to have, an object of an
// unqueued key. As upstream, a failing store counts as having it, and here one that panics.
func (b *perKey) exists(key keys.Key) (exists bool) {
	if b.known == nil {
		return false
	}
	if d, there := b.newestInProcess(key); there {
		return d.kind != deleted
	}
	defer func() { exists = recover() != nil || exists }()
	_, exists, err := b.known.GetByKey(key.String())
	return err != nil || exists
}

// newestInProcess returns the newest delta of a key in process. O(batch), on rare paths.
func (b *perKey) newestInProcess(key keys.Key) (item, bool) {
	for i := range b.inProcess {
		if b.inProcess[i].key == key {
			return b.inProcess[i].newest, true
		}
	}
	return item{}, false
}

func (b *perKey) add(hash uint64, key keys.Key, i item) {
	e, fresh := b.queued.Upsert(hash, key)
	p := &e.Value
	newest := p.newest()
	switch {
	case fresh:
		p.first = i
		b.deltas++
	case newest.kind == deleted && i.kind == deleted:
		// Of two consecutive deletions, the one with the final state is kept
		// (client-go v0.37, delta_fifo.go).
		if _, tombstone := newest.obj.(cache.DeletedFinalStateUnknown); tombstone {
			i, *newest = *newest, i
		}
		b.drop(i)
	default:
		if p.more == nil {
			p.more = b.newMore()
		}
		old := p.more
		if p.more = append(old, i); cap(p.more) > cap(old) {
			b.recycle(old)
		}
		b.deltas++
	}
}

// newMore returns an empty slice for the further deltas of a key.
func (b *perKey) newMore() []item {
	if n := len(b.spare); n > 0 {
		out := b.spare[n-1]
		b.spare, b.nspare = b.spare[:n-1], b.nspare-cap(out)
		return out
	}
	if len(b.slab) == 0 {
		b.slab = make([]item, slabLen)
	}
	out := b.slab[:0:firstMore]
	b.slab = b.slab[firstMore:]
	return out
}

// recycle clears a slice that is no longer used, so that it holds no object, and keeps it for newMore.
func (b *perKey) recycle(more []item) {
	clear(more)
	if more != nil && b.nspare+cap(more) <= maxKept {
		b.spare, b.nspare = append(b.spare, more[:0]), b.nspare+cap(more)
	}
}

// resync queues a Sync delta for each known object that is neither queued nor in process.
func (b *perKey) resync() {
	for _, s := range b.known.ListKeys() {
		key := keys.Split(s)
		hash := key.Hash()
		if b.queued.Get(hash, key) != nil {
			continue
		}
		if _, there := b.newestInProcess(key); there {
			continue
		}
		// If the object is gone or the store fails, there is no object to sync.
		// Upstream logs and continues.
		if obj := knownObject(b.known, s); obj != nil {
			b.add(hash, key, item{obj: obj, kind: synced, placeless: true})
		}
	}
}

// replace queues a Replaced delta for each object of the list, and then a
// tombstone for each queued, processed or known object that the list lacks.
func (b *perKey) replace(list []any) {
	listed := make(map[keys.Key]struct{}, len(list))
	for _, obj := range list {
		obj, key, hash, err := keyed(b.keys, obj)
		if err != nil {
			continue
		}
		listed[key] = struct{}{}
		b.add(hash, key, item{obj: obj, kind: replaced, placeless: true})
	}
	for e := range b.queued.All {
		if _, there := listed[e.Key]; there {
			continue
		}
		obj := e.Value.newest().obj
		if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = d.Obj
		}
		b.add(e.Hash, e.Key, tombstone(e.Key, obj))
	}
	if b.known != nil {
		b.buryKnown(listed)
	}
	if b.initial.Claim() {
		b.initial.Set(b.queued.Len())
	}
}

func tombstone(key keys.Key, obj any) item {
	return item{obj: cache.DeletedFinalStateUnknown{Key: key.String(), Obj: obj}, kind: deleted, placeless: true}
}

// buryKnown queues tombstones for known objects and those in process that are
// neither listed nor queued.
func (b *perKey) buryKnown(listed map[keys.Key]struct{}) {
	bury := func(key keys.Key, find func() any) {
		if _, there := listed[key]; there {
			return
		}
		hash := key.Hash()
		if b.queued.Get(hash, key) == nil {
			b.add(hash, key, tombstone(key, find()))
		}
	}
	newestInProcess := make(map[keys.Key]struct{}, len(b.inProcess))
	for _, h := range b.inProcess {
		newestInProcess[h.key] = struct{}{}
		if h.newest.kind != deleted {
			bury(h.key, func() any { return h.newest.obj })
		}
	}
	for _, s := range b.known.ListKeys() {
		key := keys.Split(s)
		if _, there := newestInProcess[key]; !there {
			bury(key, func() any { return knownObject(b.known, s) })
		}
	}
}

// take removes the oldest key, or a batch.
func (b *perKey) take(batch bool) ([]cache.Delta, bool) {
	if b.queued.Len() == 0 {
		return nil, false
	}
	n := 0
	if batch {
		n = b.batchLen()
	}
	b.fromInitial = min(max(n, 1), b.initial.Left())
	if n <= 1 {
		return b.takeKey(), false
	}
	out := b.memory.take(n)
	for i := range out {
		e := b.queued.Front()
		out[i] = e.Value.first.delta()
		b.leave(e)
	}
	return out, true
}

// batchLen returns the number of next keys that form a batch: at most batchSize, within the initial
// list, each with one delta. It is 0 if the next key has several.
func (b *perKey) batchLen() int {
	limit := b.batchSize
	if left := b.initial.Left(); left > 0 {
		limit = min(limit, left)
	}
	n := 0
	for e := range b.queued.All {
		if n == limit || len(e.Value.more) > 0 {
			break
		}
		n++
	}
	return n
}

// takeKey removes all deltas of the oldest key.
func (b *perKey) takeKey() []cache.Delta {
	e := b.queued.Front()
	p := &e.Value
	more := p.more
	out := b.memory.take(p.len())
	out[0] = p.first.delta()
	for i := range more {
		out[i+1] = more[i].delta()
		b.drop(more[i])
	}
	b.leave(e)
	b.recycle(more)
	return out
}

// leave removes an entry whose first delta is being popped.
func (b *perKey) leave(e *keys.Entry[pending]) {
	b.drop(e.Value.first)
	b.deltas -= e.Value.len()
	if b.known != nil {
		b.inProcess = append(b.inProcess, keyInProcess{e.Key, *e.Value.newest()})
	}
	b.queued.Remove(e)
}

func (b *perKey) done() {
	clear(b.inProcess)
	b.inProcess = b.inProcess[:0]
	b.initial.Processed(b.fromInitial)
	b.fromInitial = 0
}
