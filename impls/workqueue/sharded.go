package workqueue

import (
	"hash/maphash"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"

	"watchlab/impls"
)

func shardedVariant() Variant {
	return Variant{
		Name:       "sharded",
		Summary:    "shards by hash of the item, each with its lock, table and order; workers take from them in turn",
		Guarantees: guarantees(impls.OrderPerShard, "workqueue.TypedInterface"),
		New:        func(o Options[string]) (Queue[string], error) { return newSharded(o.complete()), nil },
	}
}

// sharded is a queue in shards, each with a range of hashes under a lock of its own. Items of a shard
// come in the order in which they were queued. No order holds between shards.
//
// Workers take at most quota items from a shard and then go on to the next one that is not empty. So
// the shard's memory stays in the cache of the worker's processor, and no shard starves: an item waits
// for at most quota items of each other shard, a processor, for each item before it in its shard.
type sharded[T comparable] struct {
	metrics *metrics // nil without
	seed    maphash.Seed
	shards  []shard[T]  // a power of two
	turns   sync.Pool   // of *turn
	closed  atomic.Bool // to Adds; loaded under the lock of a shard
	_       [pad]byte

	// ready has one bit for each shard: the shard has a queued item. The bit is written under the
	// lock of its shard.
	ready atomic.Uint64
	_     [pad]byte

	idle idle
	_    [pad]byte
}

const (
	maxShards = 64 // bits of sharded.ready
	quota     = 32
	pad       = 128 // between fields that different goroutines write; cache lines are fetched in pairs
)

// turn is whose turn it is, for the workers of one processor: a [sync.Pool] has about one value for
// each. If it loses one, another shard is next.
type turn struct {
	shard uint32
	taken uint32 // from this shard, in this turn
}

// shard has 128 bytes, so that no two share a pair of cache lines.
type shard[T comparable] struct {
	mu    sync.Mutex // guards the items
	items items[T]
}

func newSharded[T comparable](o Options[T]) *sharded[T] {
	q := &sharded[T]{metrics: newMetrics(o), seed: maphash.MakeSeed()}
	// Enough that callers on all processors seldom contend, and few enough that the processor
	// prefetches the memory of all.
	n := min(maxShards, 4<<bits.Len(uint(runtime.GOMAXPROCS(0)-1)))
	q.shards = make([]shard[T], n)
	for i := range q.shards {
		q.shards[i].items.timed = q.metrics != nil
	}
	q.turns.New = func() any { return new(turn) }
	q.idle.init(func() bool { return q.ready.Load() != 0 }, q.busy)
	q.metrics.begin(func(f func(int64)) {
		for i := range q.shards {
			s := &q.shards[i]
			s.mu.Lock()
			s.items.eachInProcess(f)
			s.mu.Unlock()
		}
	})
	return q
}

// shardOf returns the shard of a hash, by bits that its tables do not use.
func (q *sharded[T]) shardOf(hash uint64) (*shard[T], int) {
	i := int(hash>>24) & (len(q.shards) - 1)
	return &q.shards[i], i
}

// Add implements [Queue]. O(1), amortised.
func (q *sharded[T]) Add(item T) {
	hash := maphash.Comparable(q.seed, item)
	s, i := q.shardOf(hash)
	s.mu.Lock()
	if q.closed.Load() {
		s.mu.Unlock()
		return
	}
	pushed, changed := s.items.add(item, hash, q.metrics.now())
	if changed {
		q.metrics.add()
	}
	q.unlockAndWake(s, i, pushed)
}

// unlockAndWake releases the lock of shard i and wakes a worker for a queued item.
func (q *sharded[T]) unlockAndWake(s *shard[T], i int, pushed bool) {
	if pushed && s.items.len() == 1 {
		q.ready.Or(1 << i)
	}
	s.mu.Unlock()
	if pushed {
		q.idle.wake()
	}
}

// Get implements [Queue]. O(1), amortised.
func (q *sharded[T]) Get() (item T, shutdown bool) {
	for slept := false; ; {
		ready := q.ready.Load()
		if ready == 0 {
			var ok bool
			if slept, ok = q.idle.sleep(); !ok {
				return item, true
			}
			continue
		}
		i := q.choose(ready)
		s := &q.shards[i]
		s.mu.Lock()
		if s.items.len() == 0 {
			s.mu.Unlock() // Another worker was faster.
			continue
		}
		now := q.metrics.now()
		item, added := s.items.take(now)
		q.metrics.get(added, now)
		if s.items.len() == 0 {
			q.ready.And(^(1 << i))
		}
		s.mu.Unlock()
		if slept && q.ready.Load() != 0 {
			q.idle.wake()
		}
		return item, false
	}
}

// choose returns one of the ready shards.
func (q *sharded[T]) choose(ready uint64) int {
	t := q.turns.Get().(*turn)
	if t.taken == quota {
		t.shard++
		t.taken = 0
	}
	if next := (t.shard + uint32(bits.TrailingZeros64(bits.RotateLeft64(ready, -int(t.shard))))) % maxShards; next != t.shard {
		t.shard = next
		t.taken = 0
	}
	t.taken++
	i := int(t.shard)
	q.turns.Put(t)
	return i
}

// Done implements [Queue]. O(1), amortised.
func (q *sharded[T]) Done(item T) {
	hash := maphash.Comparable(q.seed, item)
	s, i := q.shardOf(hash)
	s.mu.Lock()
	started, pushed, found := s.items.done(item, hash)
	if found {
		q.metrics.done(started)
	}
	q.unlockAndWake(s, i, pushed)
	if q.idle.shuttingDown.Load() {
		q.idle.ended()
	}
}

func (q *sharded[T]) lockAll() {
	for i := range q.shards {
		q.shards[i].mu.Lock()
	}
}

func (q *sharded[T]) unlockAll() {
	for i := range q.shards {
		q.shards[i].mu.Unlock()
	}
}

// Len implements [Queue]. It is exact. O(shards).
func (q *sharded[T]) Len() int {
	q.lockAll()
	defer q.unlockAll()
	n := 0
	for i := range q.shards {
		n += q.shards[i].items.len()
	}
	return n
}

func (q *sharded[T]) busy() bool {
	q.lockAll()
	defer q.unlockAll()
	for i := range q.shards {
		if q.shards[i].items.workers > 0 {
			return true
		}
	}
	return false
}

// ShutDown implements [Queue].
func (q *sharded[T]) ShutDown() { q.shutDown(false) }

// ShutDownWithDrain implements [Queue].
func (q *sharded[T]) ShutDownWithDrain() { q.shutDown(true) }

func (q *sharded[T]) shutDown(drain bool) {
	q.metrics.end()
	q.closed.Store(true)
	q.lockAll() // After this, no Add goes on that did not see it, and workers may end.
	q.unlockAll()
	q.idle.shutDown(drain)
}

// ShuttingDown implements [Queue].
func (q *sharded[T]) ShuttingDown() bool { return q.closed.Load() }
