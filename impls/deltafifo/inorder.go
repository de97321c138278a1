package deltafifo

import (
	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
	"watchlab/impls/internal/keys"
)

// inOrder is the backlog of in-order delivery: deltas in a circular buffer, from
// which batches are cut.
type inOrder struct {
	keys      keys.Func
	known     cache.KeyListerGetter
	batchSize int
	initial   *keys.InitialList
	memory    allocator
	unique    keySet

	// deltas is a circular buffer with a power of two as its length; n are queued. The first is at
	// position taken, and its index is the position modulo the length.
	deltas []item
	n      int
	taken  uint64
	// hashes are the key hashes of the deltas at the same indexes, up to position
	// hashed. noKey marks a delta without a key.
	hashes     []uint64
	hashed     uint64
	processed  uint64        // the position up to which process has returned
	initialEnd uint64        // end position of the initial list; 0 if there is none or it is processed
	populated  bool          // the first call is known; used only if known is nil
	commands   []item        // memory of items that may be commands; nil if known is nil
	free       int           // capacity freed since the last call of freed
	inProcess  []cache.Delta // the deltas in process; set only if known is not nil
}

func newInOrder(o Options, l *keys.InitialList) *inOrder {
	return &inOrder{
		keys:      keys.NewFunc(o.KeyFunction),
		known:     o.KnownObjects,
		batchSize: o.BatchSize,
		initial:   l,
		memory:    allocator{lend: o.HandOver == impls.Lent},
		deltas:    make([]item, 2*chunk),
		hashes:    make([]uint64, 2*chunk),
	}
}

func (b *inOrder) len() int  { return b.n }
func (b *inOrder) size() int { return b.n }

func (b *inOrder) freed() int {
	n := b.free
	b.free = 0
	return n
}

// enough implements [backlog]. If known is set, the inbox may hold a command that
// must see all earlier calls.
func (b *inOrder) enough(batch bool) bool {
	return b.known == nil && (b.n >= b.batchSize || b.n > 0 && !batch)
}

// place returns the index of the delta with i deltas before it.
func (b *inOrder) place(i int) int { return int((b.taken + uint64(i)) & uint64(len(b.deltas)-1)) }

func (b *inOrder) at(i int) *item { return &b.deltas[b.place(i)] }

// room implements [backlog]. Without commands it returns the next slots of the
// buffer, so that items are not copied.
func (b *inOrder) room(n int) []item {
	if b.known != nil {
		if b.commands == nil {
			b.commands = make([]item, chunk)
		}
		return b.commands[:min(n, chunk)]
	}
	if b.n == len(b.deltas) {
		b.grow()
	}
	from := b.place(b.n)
	to := min(from+len(b.deltas)-b.n, len(b.deltas))
	return b.deltas[from:min(from+min(n, chunk), to)]
}

func (b *inOrder) put(items []item) {
	switch {
	case len(items) == 0:
	case b.known != nil:
		for _, i := range items {
			b.execute(i)
		}
		clear(items)
	case &items[0] == &b.deltas[b.place(b.n)]:
		b.n += len(items)
	default:
		for _, i := range items {
			b.push(i)
		}
	}
	if b.known == nil && !b.populated {
		b.populate(len(items))
	}
}

// execute queues a delta or executes a command.
func (b *inOrder) execute(i item) {
	switch i.kind {
	case replaceCommand:
		b.free++
		c := i.obj.(*command)
		c.execute(func() { b.replace(c.list) })
	case resyncCommand:
		b.free++
		i.obj.(*command).execute(b.resync)
	default:
		b.initial.Touch()
		b.push(i)
	}
}

func (b *inOrder) push(i item) {
	if b.n == len(b.deltas) {
		b.grow()
	}
	*b.at(b.n) = i
	b.n++
}

// pushNew queues a delta of a command, which uses no capacity.
func (b *inOrder) pushNew(k kind, obj any) { b.push(item{obj: obj, kind: k, placeless: true}) }

func (b *inOrder) grow() {
	old := *b
	b.deltas = make([]item, 2*len(old.deltas))
	b.hashes = make([]uint64, len(b.deltas))
	b.hashed = b.taken
	for i := range b.n {
		*b.at(i) = *old.at(i)
	}
}

// populate finds the first call among the last n deltas. If it is a ReplacedAll, the initial list
// ends after it; otherwise the list is empty. As upstream, SyncAll and Bookmark do not count.
func (b *inOrder) populate(n int) {
	for i := b.n - n; i < b.n; i++ {
		switch b.at(i).kind {
		case syncAll, bookmark:
			continue
		case replacedAll:
			// If the list was claimed already, this delta is the claiming one.
			if b.initial.Claim() || !b.initial.HasSynced() {
				b.endInitial(b.taken + uint64(i) + 1)
			}
		default:
			b.initial.Touch()
			// A later ReplacedAll has claimed the list.
			if !b.initial.HasSynced() {
				continue
			}
		}
		b.populated = true
		return
	}
}

// endInitial ends the initial list at a position.
func (b *inOrder) endInitial(end uint64) {
	if end > b.processed {
		b.initialEnd = end
		// Set one item, because the position determines the end.
		b.initial.Set(1)
	} else {
		b.initial.Set(0)
	}
}

// replace queues tombstones for objects that the list lacks, and then a Replaced
// delta for each object of the list.
func (b *inOrder) replace(list []any) {
	listed := make(map[keys.Key]struct{}, len(list))
	for _, obj := range list {
		if k, err := b.keys.OfQueued(obj); err == nil {
			listed[k] = struct{}{}
		}
	}
	queued, order := b.newest()
	bury := func(k keys.Key, obj any) {
		b.pushNew(deleted, cache.DeletedFinalStateUnknown{Key: k.String(), Obj: obj})
	}
	for _, k := range order {
		if _, there := listed[k]; !there && queued[k].Type != cache.Deleted {
			bury(k, queued[k].Object)
		}
	}
	for _, s := range b.known.ListKeys() {
		k := keys.Split(s)
		if _, there := listed[k]; there {
			continue
		}
		if _, there := queued[k]; there {
			continue
		}
		bury(k, knownObject(b.known, s))
	}
	for _, obj := range list {
		b.pushNew(replaced, obj)
	}
	if b.initial.Claim() {
		b.endInitial(b.taken + uint64(b.n))
	}
}

// knownObject returns a known object, or nil if it is gone or the store fails. As
// upstream, a tombstone without the object still has the key.
func knownObject(known cache.KeyListerGetter, key string) any {
	if obj, exists, err := known.GetByKey(key); err == nil && exists {
		return obj
	}
	return nil
}

// resync queues a Sync delta for each known object that is neither queued nor in process.
func (b *inOrder) resync() {
	queued, _ := b.newest()
	for _, s := range b.known.ListKeys() {
		if _, there := queued[keys.Split(s)]; there {
			continue
		}
		// If the object is gone or the store fails, there is no object to sync.
		// Upstream logs and continues.
		if obj := knownObject(b.known, s); obj != nil {
			b.pushNew(synced, obj)
		}
	}
}

// newest returns the newest delta of each key that is queued or in process, and these keys in the
// order of their first deltas. It skips deltas without a key, which a transformer can make.
func (b *inOrder) newest() (map[keys.Key]cache.Delta, []keys.Key) {
	m := make(map[keys.Key]cache.Delta, len(b.inProcess)+b.n)
	order := make([]keys.Key, 0, len(b.inProcess)+b.n)
	note := func(d cache.Delta) {
		k, err := b.keys.OfQueued(d.Object)
		if err != nil {
			return
		}
		if _, there := m[k]; !there {
			order = append(order, k)
		}
		m[k] = d
	}
	for _, d := range b.inProcess {
		note(d)
	}
	for i := range b.n {
		note(b.at(i).delta())
	}
	return m, order
}

func (b *inOrder) take(batch bool) ([]cache.Delta, bool) {
	n := min(b.n, 1)
	if batch && b.n > 1 {
		n = b.batchLen()
	}
	if n == 0 {
		return nil, false
	}
	out := b.memory.take(n)
	for done := 0; done < n; {
		from := b.deltas[b.place(done):]
		from = from[:min(len(from), n-done)]
		for i := range from {
			out[done+i] = from[i].delta()
			if !from[i].placeless {
				b.free++
			}
		}
		// Clearing the slots lets the garbage collector free popped objects.
		clear(from)
		done += len(from)
	}
	if b.known != nil {
		b.inProcess = append(b.inProcess, out...)
	}
	b.taken += uint64(n)
	b.n -= n
	b.hashed = max(b.hashed, b.taken)
	if b.n == 0 && len(b.deltas) > maxKept {
		b.deltas, b.hashes, b.hashed = make([]item, 2*chunk), make([]uint64, 2*chunk), b.taken
	}
	return out, n > 1
}

// batchLen returns the number of next deltas that form a batch: at most batchSize, up to the end of
// the initial list, with distinct keys. A delta of several objects is a batch of one.
func (b *inOrder) batchLen() int {
	limit := min(b.n, b.batchSize)
	if b.initialEnd > b.taken {
		limit = int(min(uint64(limit), b.initialEnd-b.taken))
	}
	if limit == 1 {
		return 1
	}
	b.unique.reset()
	for n := range limit {
		p := b.taken + uint64(n)
		if p >= b.hashed {
			b.hash(p)
		}
		i := p & uint64(len(b.deltas)-1)
		if b.deltas[i].kind.alone() {
			return max(n, 1)
		}
		h := b.hashes[i]
		if h == noKey {
			// A transformer returned an object without a key. As upstream, it ends its batch.
			return n + 1
		}
		if !b.unique.add(h) {
			return n
		}
	}
	return limit
}

const noKey = 0 // marks a delta without a key; a real key with this hash only ends a batch early

// hash computes the key hashes from position p on.
func (b *inOrder) hash(p uint64) {
	n := min(hashStep, b.taken+uint64(b.n)-p)
	mask := uint64(len(b.deltas) - 1)
	var raw [hashStep]keys.Key
	for j := range n {
		raw[j], _ = b.keys.Raw(b.deltas[(p+j)&mask].obj)
	}
	for j := range n {
		i := (p + j) & mask
		switch {
		case raw[j] != keys.Key{}:
			_, b.hashes[i] = raw[j].Hashed()
		case b.deltas[i].kind.alone():
		default:
			// After an error the hash is 0.
			_, b.hashes[i], _ = b.keys.Hashed(b.deltas[i].obj)
		}
	}
	b.hashed = p + n
}

func (b *inOrder) done() {
	b.processed = b.taken
	clear(b.inProcess)
	b.inProcess = b.inProcess[:0]
	if b.initialEnd != 0 && b.processed >= b.initialEnd {
		b.initialEnd = 0
		b.initial.Processed(1)
	}
}
