package queue

import (
	"math/bits"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
	"watchlab/impls/internal/keys"
	"watchlab/impls/internal/ring"
)

// shardedVariant is shards by key hash, for many producers and many consumers.
func shardedVariant() Variant {
	return ownVariant("sharded", "shards by key hash, each with its lock; many consumers, each key with one of them at a time",
		impls.ManyConsumers, func(o Options) (Queue, error) { return newSharded(o), nil })
}

// sharded is a queue in shards, each with a range of key hashes under a lock of
// its own. Producers fold.
//
// Consumers pop from the shards in turn, so that no shard starves, and the oldest
// key of a shard: they receive the number of a shard and send it again behind the others if the
// shard has more keys. A queued key that is in process keeps its position and is passed
// over by other consumers until that process has returned.
//
// Replace holds the locks of all shards, so that no consumer sees a part of it.
//
// For the wake-up of consumers see [ring.Ready]. A number in it may be late: then the consumer finds
// nothing and receives the next.
type sharded struct {
	base
	shards []shard
	ready  ring.Ready[int] // the numbers of the shards that have a key that may be popped
	closed atomic.Bool
}

const pad = 128 // between fields that different goroutines write; cache lines are fetched in pairs

type shard struct {
	mu        sync.Mutex // guards the fields below
	backlog   backlog
	inProcess []hashedKey // the keys in process
	held      int         // counts the queued keys that are also in process
	ready     bool        // sharded.ready has this shard
	_         [pad]byte
}

type hashedKey struct {
	key  keys.Key
	hash uint64
}

func newSharded(o Options) *sharded {
	n := o.Shards
	if n == 0 {
		// Enough that producers on all processors seldom contend.
		n = min(8*runtime.GOMAXPROCS(0), MaxShards)
	}
	q := &sharded{base: newBase(o, "sharded"), shards: make([]shard, n)}
	for i := range q.shards {
		q.shards[i].backlog = q.newBacklog()
	}
	q.ready.Init(n)
	return q
}

// shardOf returns the index of the shard of a hash.
func (q *sharded) shardOf(hash uint64) int {
	i, _ := bits.Mul64(hash, uint64(len(q.shards)))
	return int(i)
}

// Add queues an object, or replaces the queued one of its key. O(1).
func (q *sharded) Add(obj any) error { return q.event(put, obj) }

func (q *sharded) Update(obj any) error { return q.event(put, obj) }

// Delete removes an object's key from the queue. O(1).
func (q *sharded) Delete(obj any) error { return q.event(remove, obj) }

func (q *sharded) event(k kind, obj any) error {
	key, hash, err := q.keys.Hashed(obj)
	if err != nil {
		return err
	}
	i := q.shardOf(hash)
	s := &q.shards[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.closed.Load() {
		return nil
	}
	q.initial.Touch()
	if k == put {
		if e, fresh := s.backlog.put1(obj, key, hash); fresh {
			s.hold(e)
			q.announce(i)
		}
	} else if e := s.backlog.waiting.Get(hash, key); e != nil {
		if e.Value.held {
			s.held--
		}
		s.backlog.remove(key, hash)
	}
	return nil
}

// Replace is that of [front]. O(list).
func (q *sharded) Replace(list []any, _ string) error {
	r, err := newReplacement(q.keys, list)
	if err != nil {
		return err
	}
	q.lockAll()
	defer q.unlockAll()
	if q.closed.Load() {
		return nil
	}
	first := q.initial.Claim()
	for i := range q.shards {
		s := &q.shards[i]
		s.backlog.waiting.Clear()
		s.held = 0
	}
	for _, l := range r.list {
		q.shards[q.shardOf(l.hash)].backlog.put1(l.obj, l.key, l.hash)
	}
	n := 0
	for i := range q.shards {
		n += q.shards[i].backlog.len()
	}
	epoch := q.initial.begin(first, n)
	for i := range q.shards {
		s := &q.shards[i]
		for e := range s.backlog.waiting.All {
			e.Value.epoch = epoch
			s.hold(e)
		}
		q.announce(i)
	}
	return nil
}

func (q *sharded) lockAll() {
	for i := range q.shards {
		q.shards[i].mu.Lock()
	}
}

func (q *sharded) unlockAll() {
	for i := range q.shards {
		q.shards[i].mu.Unlock()
	}
}

// hold marks a new entry whose key is in process. The caller holds the lock.
func (s *shard) hold(e *entry) {
	for i := range s.inProcess {
		if s.inProcess[i].hash == e.Hash && s.inProcess[i].key == e.Key {
			e.Value.held = true
			s.held++
			return
		}
	}
}

// announce sends the number of a shard with a key that may be popped, unless it is in the channel. The
// caller holds the shard's lock.
func (q *sharded) announce(i int) {
	if s := &q.shards[i]; !s.ready && s.backlog.len() > s.held {
		s.ready = true
		q.ready.C <- i
	}
}

// take removes and returns the next key and its shard, or false when the queue is
// closed and empty. The key is then in process.
func (q *sharded) take() (e entry, i int, ok bool) {
	for i = range q.ready.C {
		if e, ok = q.takeFrom(i); ok {
			return e, i, true
		}
	}
	return entry{}, 0, false
}

func isHeld(k *queued) bool { return k.held }

// takeFrom takes from shard i, unless its keys are gone.
func (q *sharded) takeFrom(i int) (e entry, ok bool) {
	s := &q.shards[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = false
	if s.backlog.len() == s.held {
		return entry{}, false
	}
	e = s.backlog.waiting.Take(isHeld)
	s.inProcess = append(s.inProcess, hashedKey{e.Key, e.Hash})
	q.announce(i)
	if q.closed.Load() && s.backlog.len() == 0 {
		q.ready.Drained()
	}
	return e, true
}

// Pop implements [cache.Queue].
func (q *sharded) Pop(process cache.PopProcessFunc) (any, error) {
	e, i, ok := q.take()
	if !ok {
		return nil, cache.ErrFIFOClosed
	}
	defer q.done(i, &e)
	return e.Value.obj, process(e.Value.obj, !q.initial.HasSynced())
}

// done is the return of process: others may pop the key, and HasSynced may turn true only now.
func (q *sharded) done(i int, e *entry) {
	s := &q.shards[i]
	s.mu.Lock()
	at := slices.IndexFunc(s.inProcess, func(h hashedKey) bool { return h.hash == e.Hash && h.key == e.Key })
	s.inProcess[at] = s.inProcess[len(s.inProcess)-1]
	s.inProcess[len(s.inProcess)-1] = hashedKey{}
	s.inProcess = s.inProcess[:len(s.inProcess)-1]
	if s.held > 0 {
		if w := s.backlog.waiting.Get(e.Hash, e.Key); w != nil {
			w.Value.held = false
			s.held--
			q.announce(i)
		}
	}
	s.mu.Unlock()
	q.initial.left(e.Value.epoch)
}

func (q *sharded) Close() {
	q.lockAll()
	defer q.unlockAll()
	if q.closed.Swap(true) {
		return
	}
	q.ready.Close()
	for i := range q.shards {
		if q.shards[i].backlog.len() == 0 {
			q.ready.Drained()
		}
	}
}

func (q *sharded) IsClosed() bool { return q.closed.Load() }

// Len is O(shards).
func (q *sharded) Len() int {
	n := 0
	for i := range q.shards {
		s := &q.shards[i]
		s.mu.Lock()
		n += s.backlog.len()
		s.mu.Unlock()
	}
	return n
}
