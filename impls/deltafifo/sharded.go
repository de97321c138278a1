package deltafifo

import (
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
	"watchlab/impls/internal/keys"
	"watchlab/impls/internal/ring"
)

// sharded is a queue in shards, each with a range of key hashes, a lock and a backlog. Producers of
// different shards do not contend, nor do consumers: a pop takes from one shard, which no other
// consumer takes from until process has returned.
//
// # How it works
//
//  1. A producer makes the key and its hash, locks one shard, and appends the
//     event to the shard's buffer.
//  2. A producer that fills the buffer, a delete, Len and a consumer fold the
//     buffer into the backlog: several events at a time, so that their cache
//     misses overlap. A delete is folded at once because it may be ignored;
//     hence every event in a buffer will be popped.
//  3. A shard is idle, ready or held. Idle shards have no events. Ready shards
//     are in the channel ready, once each. A held shard is in process.
//  4. A consumer receives the first ready shard and pops once from it. When process
//     has returned, a shard with more events joins the end of the channel. So a key
//     is popped after at most one pop of each other shard for each key that its
//     shard has queued before it.
//
// Locks are taken in the order of the shards. None is held while process runs.
//
// # Replace and Resync
//
// They hold all locks: no event of another producer comes between their deltas, and no consumer
// pops before the last is queued. Each shard knows what its consumer processes, and known keys are
// split by hash, so that each shard treats its keys as a queue of one shard would. The initial list
// ends in each shard separately; HasSynced turns true with the last.
//
// For the wake-up of consumers see [ring.Ready], for that of producers that wait for room [ring.Slots].
type sharded struct {
	producers
	closed atomic.Bool // stored with all shards locked
	shards []shard
	// unsynced counts the shards that still have keys of the initial list. The first Replace sets
	// it with all shards locked. It is decremented under the lock of a shard. base.initial is
	// claimed under a shard's lock too, so that the first call is the first queued.
	unsynced atomic.Int64
	slots    ring.Slots         // counts the used capacity
	ready    ring.Ready[*shard] // the shards that have events and are not in process
}

const (
	maxShards     = 4096 // more than any machine has use for
	shardsPerProc = 4    // makes it unlikely that two running goroutines contend
	foldRun       = 16   // events that are folded at a time
)

type shardState uint8

const (
	idle shardState = iota
	ready
	held
)

// shard has a range of the key hashes.
type shard struct {
	mu      sync.Mutex // guards the fields down to known
	state   shardState
	closed  bool
	n       int
	run     [foldRun]keyedItem // n events that are not merged into the backlog yet
	backlog *perKey            // the queued keys and the keys in process
	initial *keys.InitialList  // its part of the initial list, from the first Replace of the queue on
	known   *knownPart         // nil if KnownObjects is nil
	// throttle makes the shard's producers wait, by the deltas of the shard.
	throttle throttle
	values   interfaces // owned by the consumer that holds the shard
	_        [128]byte  // keeps the mutexes of neighbouring shards on different cache lines
}

// keyedItem is an event with its key and hash.
type keyedItem struct {
	item
	key  keys.Key
	hash uint64
}

// knownPart has the known keys of one shard.
type knownPart struct {
	cache.KeyListerGetter
	keys []string // set only during a Replace or Resync
}

func (k *knownPart) ListKeys() []string { return k.keys }

func shardedVariant() Variant {
	return newVariant("sharded", "shards by key hash, a lock each; many consumers, of which each has a shard at a time",
		limits{deliveries: []Delivery{PerKey}, maxShards: maxShards},
		func(o Options) (Queue, error) { return newSharded(o), nil },
		impls.Guarantees{
			Mode: string(PerKey), Order: impls.OrderPerShard, Coalesces: impls.CoalesceDeltas,
			Bounded: true, Consumers: impls.ManyConsumers, Unlocked: true, Throttles: impls.ThrottlesByOption,
			DropIn: "cache.QueueWithBatch",
		})
}

func newSharded(o Options) *sharded {
	if o.Shards == 0 {
		o.Shards = defaultShards(runtime.GOMAXPROCS(0))
	}
	q := &sharded{producers: producers{base: newBase(o, "sharded")}, shards: make([]shard, o.Shards)}
	q.sink = q
	q.slots.Init(o.Capacity)
	q.ready.Init(o.Shards)
	for i := range q.shards {
		s := &q.shards[i]
		if q.known != nil {
			s.known = &knownPart{KeyListerGetter: q.known}
			o.KnownObjects = s.known
		}
		s.throttle.init(o, o.Shards)
		s.initial = keys.NewInitialList("shard")
		s.backlog = newPerKey(o, s.initial)
	}
	return q
}

// defaultShards is a power of two, so that it is equal on machines of similar size.
func defaultShards(procs int) int {
	return min(maxShards, 1<<bits.Len(uint(shardsPerProc*procs-1)))
}

// push implements [sink].
func (q *sharded) push(i item) {
	switch i.kind {
	case replaceCommand:
		q.replace(i.obj.(*command))
		return
	case resyncCommand:
		q.command(i.obj.(*command), func() {
			for i := range q.shards {
				q.shards[i].backlog.resync()
			}
		})
		return
	}
	// There is no error: the key was checked, and the transformer keeps it.
	obj, key, hash, _ := keyed(q.keys, i.obj)
	i.obj = obj
	s := q.shardOf(hash)
	s.throttle.wait()
	q.slots.Take()
	q.slots.Give(q.put(s, keyedItem{i, key, hash}))
}

func (q *sharded) shardOf(hash uint64) *shard { return &q.shards[q.number(hash)] }

// number returns the shard of a hash. It uses the upper bits, because the table
// of a backlog uses the lower ones.
func (q *sharded) number(hash uint64) int {
	n, _ := bits.Mul64(hash, uint64(len(q.shards)))
	return int(n)
}

// put appends an event to its shard and returns the number of freed slots. After Close it does nothing.
func (q *sharded) put(s *shard, e keyedItem) (freed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0
	}
	q.initial.Touch()
	s.run[s.n] = e
	s.n++
	if s.n == foldRun || e.kind == deleted {
		s.fold()
	}
	q.announce(s)
	return s.backlog.freed()
}

// fold moves the buffer to the backlog. The caller holds the lock.
func (s *shard) fold() {
	for i := range s.run[:s.n] {
		e := &s.run[i]
		s.backlog.event(e.item, e.key, e.hash)
	}
	clear(s.run[:s.n])
	s.n = 0
}

// waits reports whether the shard has events. The caller holds the lock.
func (s *shard) waits() bool { return s.n > 0 || s.backlog.len() > 0 }

// announce sends an idle shard with events. The caller holds its lock.
func (q *sharded) announce(s *shard) {
	if s.state == idle && s.waits() {
		s.state = ready
		q.ready.C <- s
	}
}

// replace deals a list to the shards and queues it, with all shards locked.
func (q *sharded) replace(c *command) {
	parts := make([][]any, len(q.shards))
	for _, obj := range c.list {
		if _, _, hash, err := keyed(q.keys, obj); err == nil {
			p := &parts[q.number(hash)]
			*p = append(*p, obj)
		}
	}
	q.command(c, func() { q.replaceParts(parts) })
}

// replaceParts passes each shard its part of a list. The caller holds all locks.
func (q *sharded) replaceParts(parts [][]any) {
	first := q.initial.Claim()
	unsynced := 0
	for i := range q.shards {
		s := &q.shards[i]
		if !first {
			// This is not the first call of the shard either.
			s.initial.Touch()
		}
		s.backlog.replace(parts[i])
		if s.initial.Left() > 0 {
			unsynced++
		}
	}
	if !first {
		return
	}
	q.unsynced.Store(int64(unsynced))
	if unsynced == 0 {
		q.initial.Set(0)
	}
}

// command takes a slot and runs do with all shards locked.
func (q *sharded) command(c *command, do func()) {
	for i := range q.shards {
		q.shards[i].throttle.wait()
	}
	q.slots.Take()
	q.slots.Give(1 + q.whole(c, do))
}

// whole runs do with all shards locked and returns the number of freed slots. After Close it does
// nothing.
func (q *sharded) whole(c *command, do func()) (freed int) {
	q.lockAll()
	defer q.unlockAll()
	if q.shards[0].closed {
		return 0
	}
	for i := range q.shards {
		q.shards[i].fold()
	}
	c.execute(func() {
		q.dealKnown()
		do()
	})
	for i := range q.shards {
		s := &q.shards[i]
		if s.known != nil {
			s.known.keys = nil
		}
		freed += s.backlog.freed()
		q.announce(s)
	}
	return freed
}

// dealKnown passes each shard its known keys. The caller holds all locks.
func (q *sharded) dealKnown() {
	if q.known == nil {
		return
	}
	for _, key := range q.known.ListKeys() {
		k := q.shardOf(keys.Split(key).Hash()).known
		k.keys = append(k.keys, key)
	}
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

// popped is the deltas of one pop.
type popped struct {
	shard   *shard
	deltas  []cache.Delta
	batch   bool // the deltas have different keys
	initial bool // the deltas are part of the initial list
}

// take pops from the first ready shard, which the caller holds until done. It
// returns false when the queue is closed and empty.
func (q *sharded) take(batch bool) (popped, bool) {
	s, open := <-q.ready.C
	if !open {
		return popped{}, false
	}
	h := popped{shard: s}
	s.mu.Lock()
	s.state = held
	s.fold()
	h.deltas, h.batch = s.backlog.take(batch)
	h.initial = s.backlog.fromInitial > 0
	s.throttle.begin(s.backlog.size())
	if s.closed && !s.waits() {
		q.ready.Drained()
	}
	freed := s.backlog.freed()
	s.mu.Unlock()
	q.slots.Give(freed)
	return h, true
}

// done handles the return of process and releases the shard.
func (q *sharded) done(h popped) {
	if q.lend {
		clear(h.deltas)
	}
	s := h.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	s.throttle.end()
	s.backlog.done()
	if h.initial && s.initial.Left() == 0 && q.unsynced.Add(-1) == 0 {
		q.initial.Set(0)
	}
	s.state = idle
	q.announce(s)
}

// Pop implements [cache.Queue]. process receives the [cache.Deltas] of one key.
// Pop returns them too, or nil where they are lent.
func (q *sharded) Pop(process cache.PopProcessFunc) (any, error) {
	h, ok := q.take(false)
	if !ok {
		return nil, cache.ErrFIFOClosed
	}
	defer q.done(h)
	obj := h.shard.values.value(h.deltas, q.lend)
	err := process(obj, h.initial)
	if q.lend {
		return nil, err
	}
	return obj, err
}

// PopBatch implements [cache.QueueWithBatch]. All deltas of a batch come from one shard.
func (q *sharded) PopBatch(processBatch cache.ProcessBatchFunc, processSingle cache.PopProcessFunc) error {
	h, ok := q.take(true)
	if !ok {
		return cache.ErrFIFOClosed
	}
	defer q.done(h)
	if h.batch {
		return processBatch(h.deltas, h.initial)
	}
	return processSingle(h.shard.values.value(h.deltas, q.lend), h.initial)
}

func (q *sharded) Close() {
	q.closeShards()
	q.slots.Close()
	for i := range q.shards {
		q.shards[i].throttle.close()
	}
}

func (q *sharded) closeShards() {
	q.lockAll()
	defer q.unlockAll()
	if q.closed.Swap(true) {
		return
	}
	q.ready.Close()
	for i := range q.shards {
		s := &q.shards[i]
		s.closed = true
		if !s.waits() {
			q.ready.Drained()
		}
	}
}

func (q *sharded) IsClosed() bool { return q.closed.Load() }

// Len implements [Queue]. O(shards).
func (q *sharded) Len() int {
	n, freed := 0, 0
	for i := range q.shards {
		s := &q.shards[i]
		s.mu.Lock()
		s.fold()
		n += s.backlog.len()
		freed += s.backlog.freed()
		s.mu.Unlock()
	}
	q.slots.Give(freed)
	return n
}
