package queue

import (
	"sync"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls/internal/keys"
)

// item is one call of a producer.
type item struct {
	obj  any
	kind kind
}

// kind is the method that was called.
type kind uint8

const (
	put     kind = iota // Add and Update
	remove              // Delete
	replace             // Replace; the object is a *replacement
)

// replacement is the list of a Replace.
type replacement struct {
	list  []listed
	first bool // this is the first call
}

// listed is an object of a list.
type listed struct {
	obj  any
	key  keys.Key
	hash uint64
}

// newReplacement computes the keys of a list and keeps no reference to the list.
// The error is a [cache.KeyError].
func newReplacement(f keys.Func, list []any) (*replacement, error) {
	r := &replacement{list: make([]listed, len(list))}
	for i, obj := range list {
		key, hash, err := f.Hashed(obj)
		if err != nil {
			return nil, err
		}
		r.list[i] = listed{obj, key, hash}
	}
	return r, nil
}

// account counts the initial list. Its methods are safe for concurrent use.
type account struct {
	*keys.InitialList
	mu sync.Mutex
	// epoch counts the initial lists. There are several if a Replace came before
	// the previous one was processed. mu guards it.
	epoch uint32
}

var _ cache.DoneChecker = (*account)(nil)

// begin returns the epoch of a list of n keys, or 0 if it is not initial; first
// says that it was the first call. A list that comes before the first one has been
// processed replaces it: HasSynced waits for one whole list.
func (a *account) begin(first bool, n int) uint32 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !first && a.HasSynced() {
		return 0
	}
	a.epoch++
	a.Set(n)
	return a.epoch
}

// left counts a key of a list of an epoch that is neither queued nor in process any more.
func (a *account) left(epoch uint32) {
	if epoch == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if epoch == a.epoch {
		a.Processed(1)
	}
}

// queued is the object of a queued key. With its key it fills a cache line.
type queued struct {
	obj   any
	epoch uint32 // of the initial list that the key belongs to; 0 means none
	held  bool   // it is in process, so that no other consumer may pop it
}

type entry = keys.Entry[queued]

// backlog has the queued keys. It is owned by one goroutine at a time, and does
// not allocate once it has reached its usual length.
type backlog struct {
	keys    keys.Func
	initial *account
	waiting keys.FIFO[queued]
}

const (
	hashStep = 64 // keys that are hashed at a time, so that the cache misses of their strings overlap
	fewStep  = 8  // from how many on that pays
)

func (b *backlog) len() int { return b.waiting.Len() }

// put folds items, in their order.
func (b *backlog) put(items []item) {
	for len(items) >= fewStep {
		n := min(hashStep, len(items))
		b.putMany(items[:n])
		items = items[n:]
	}
	for i := range items {
		b.putOne(&items[i])
	}
}

// putMany folds up to hashStep items. Each step towards an entry is done for all of
// them before the next step, so that their cache misses overlap.
func (b *backlog) putMany(items []item) {
	var raw [hashStep]keys.Key
	var hashes [hashStep]uint64
	for i := range items {
		raw[i], _ = b.keys.Raw(items[i].obj)
	}
	for i := range items {
		raw[i], hashes[i] = raw[i].Hashed()
	}
	for i := range items {
		if raw[i] == (keys.Key{}) {
			b.putOne(&items[i])
		} else {
			b.fold(&items[i], raw[i], hashes[i])
		}
	}
}

func (b *backlog) putOne(i *item) {
	if i.kind == replace {
		b.replace(i.obj.(*replacement))
		return
	}
	// The object had a key when it was queued.
	if key, hash, err := b.keys.Hashed(i.obj); err == nil {
		b.fold(i, key, hash)
	}
}

// fold folds an item that is not a list. O(1).
func (b *backlog) fold(i *item, key keys.Key, hash uint64) {
	if i.kind == remove {
		b.remove(key, hash)
	} else {
		b.put1(i.obj, key, hash)
	}
}

// put1 queues an object, and returns its entry and whether its key is new.
func (b *backlog) put1(obj any, key keys.Key, hash uint64) (e *entry, fresh bool) {
	e, fresh = b.waiting.Upsert(hash, key)
	e.Value.obj = obj
	return e, fresh
}

func (b *backlog) remove(key keys.Key, hash uint64) {
	if e := b.waiting.Get(hash, key); e != nil {
		b.initial.left(e.Value.epoch)
		b.waiting.Remove(e)
	}
}

// replace drops all keys and queues the list.
func (b *backlog) replace(r *replacement) {
	b.waiting.Clear()
	for _, l := range r.list {
		b.put1(l.obj, l.key, l.hash)
	}
	if epoch := b.initial.begin(r.first, b.len()); epoch != 0 {
		for e := range b.waiting.All {
			e.Value.epoch = epoch
		}
	}
}

// take removes the oldest key, and returns its object with the epoch of its list.
// There must be one. O(1).
func (b *backlog) take() (obj any, epoch uint32) {
	e := b.waiting.Front()
	obj, epoch = e.Value.obj, e.Value.epoch
	b.waiting.Remove(e)
	return obj, epoch
}
