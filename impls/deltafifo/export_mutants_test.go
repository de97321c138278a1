//go:build mutants

package deltafifo

import (
	"runtime"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls/internal/ring"
)

// Mutant is a variant with a deliberate bug.
type Mutant struct {
	Variant
	// Broken describes the bug.
	Broken string
	// Check is the name of the subtest that must detect it.
	Check string
	// In restricts the setups by a pattern of their subtest names; empty means all.
	In string
}

// Mutants returns one variant for each named invariant. Each is cond or sharded with one part replaced.
func Mutants() []Mutant {
	return []Mutant{
		mutant("lost-wake-up", "checks for work before it announces that it sleeps", "nothing lost, reordered or duplicated among producers", "././0", onInbox(newLostWakeUp)),
		mutant("dropped-at-close", "drops the last event at Close", "random operations", "././0", onInbox(newDroppedAtClose)),
		mutant("capacity-exceeded", "has room for one more than Capacity", "a producer blocks when full", "././7", newExceeded),
		mutant("lent-too-early", "writes to lent memory while process runs", "random operations", "per-key/./0/lent", onBacklog(newLentTooEarly)),
		mutant("synced-early", "counts the initial list as processed when it is taken", "random operations", "././0", onBacklog(func(b backlog) backlog { return &early{b} })),
		mutant("replace-not-atomic", "lets other calls in between the tombstones of a Replace and its list", "linearizable", "in-order/true/0", onQueue(func(q *buffered) Queue { return &replaceTwice{q} })),
		shardMutant("shards-by-turn", "reorders the events of a key across shards", "nothing lost, reordered or duplicated among producers", "././0", func(q *sharded) Queue { return &byTurn{sharded: q} }),
		shardMutant("released-early", "releases a shard before process has returned", "concurrent consumers", "././0", func(q *sharded) Queue { return &releasedEarly{q} }),
	}
}

// maker builds a queue from complete options.
type maker func(Options) (Queue, error)

func mutant(name, broken, check, in string, m maker) Mutant {
	v := bufferedVariant(name, broken, func(capacity int) inbox { return ring.NewLocked[item](capacity) })
	v.New = func(o Options) (Queue, error) {
		o, err := o.complete(limits{deliveries: []Delivery{InOrder, PerKey}, maxShards: 1})
		if err != nil {
			return nil, err
		}
		return m(o)
	}
	return Mutant{Variant: v, Broken: broken, Check: check, In: in}
}

func newCond(o Options) *buffered { return newBuffered(o, "mutant", ring.NewLocked[item](o.Capacity)) }

func onQueue(replace func(*buffered) Queue) maker {
	return func(o Options) (Queue, error) { return replace(newCond(o)), nil }
}

func onInbox(replace func(inbox) inbox) maker {
	return onQueue(func(q *buffered) Queue { q.inbox = replace(q.inbox); return q })
}

func onBacklog(replace func(backlog) backlog) maker {
	return onQueue(func(q *buffered) Queue { q.backlog = replace(q.backlog); return q })
}

type replaceTwice struct{ *buffered }

func (q *replaceTwice) Replace(list []any, rv string) error {
	if err := q.buffered.Replace(nil, rv); err != nil {
		return err
	}
	runtime.Gosched()
	return q.buffered.Replace(list, rv)
}

type lostWakeUp struct {
	inbox
	waiting, closed atomic.Bool
	wake            chan struct{}
}

func newLostWakeUp(l inbox) inbox { return &lostWakeUp{inbox: l, wake: make(chan struct{}, 1)} }

func (l *lostWakeUp) Push(i item) error {
	err := l.inbox.Push(i)
	if l.waiting.CompareAndSwap(true, false) {
		l.wake <- struct{}{}
	}
	return err
}

func (l *lostWakeUp) Wait() error {
	if l.Len() == 0 && !l.closed.Load() {
		runtime.Gosched()
		l.waiting.Store(true)
		<-l.wake
	}
	return l.inbox.Wait()
}

func (l *lostWakeUp) Close() {
	l.inbox.Close()
	l.closed.Store(true)
	if l.waiting.CompareAndSwap(true, false) {
		l.wake <- struct{}{}
	}
}

type droppedAtClose struct {
	inbox
	closed atomic.Bool
}

func newDroppedAtClose(l inbox) inbox { return &droppedAtClose{inbox: l} }

func (l *droppedAtClose) Close() { l.closed.Store(true); l.inbox.Close() }

func (l *droppedAtClose) TakeBatch(dst []item) int {
	if n := l.Len(); l.closed.Load() {
		dst = dst[:min(len(dst), max(0, n-1))]
	}
	return l.inbox.TakeBatch(dst)
}

func (l *droppedAtClose) Wait() error {
	if l.closed.Load() && l.Len() <= 1 {
		return ring.ErrClosed
	}
	return l.inbox.Wait()
}

func newExceeded(o Options) (Queue, error) {
	if o.Capacity > 0 {
		o.Capacity++
	}
	return newCond(o), nil
}

type early struct{ backlog }

func (b *early) take(batch bool) ([]cache.Delta, bool) {
	deltas, batched := b.backlog.take(batch)
	if deltas != nil {
		b.backlog.done()
	}
	return deltas, batched
}

type lentTooEarly struct{ *perKey }

func newLentTooEarly(b backlog) backlog {
	if k, ok := b.(*perKey); ok {
		return lentTooEarly{k}
	}
	return b
}

func (b lentTooEarly) put(items []item) {
	n := len(items)
	b.perKey.put(items)
	for i := range min(n, len(b.memory.lent)) {
		b.memory.lent[i] = cache.Delta{Type: "scratch"}
	}
}

func shardMutant(name, broken, check, in string, replace func(*sharded) Queue) Mutant {
	v := shardedVariant()
	v.Name, v.Summary = name, broken
	v.New = func(o Options) (Queue, error) {
		q, err := shardedVariant().New(o)
		if err != nil {
			return nil, err
		}
		return replace(q.(*sharded)), nil
	}
	return Mutant{Variant: v, Broken: broken, Check: check, In: in}
}

type byTurn struct {
	*sharded
	turn atomic.Int64
}

func (q *byTurn) Update(obj any) error {
	key, hash, err := q.keys.Hashed(obj)
	if err != nil {
		return err
	}
	q.slots.Take()
	q.slots.Give(q.put(&q.shards[int(q.turn.Add(1))%len(q.shards)], keyedItem{item{obj: obj, kind: updated}, key, hash}))
	return nil
}

type releasedEarly struct{ *sharded }

func (q *releasedEarly) Pop(process cache.PopProcessFunc) (any, error) {
	h, ok := q.take(false)
	if !ok {
		return nil, cache.ErrFIFOClosed
	}
	deltas := append(cache.Deltas(nil), h.deltas...)
	q.done(h)
	return nil, process(deltas, h.initial)
}

func (q *releasedEarly) PopBatch(_ cache.ProcessBatchFunc, single cache.PopProcessFunc) error {
	_, err := q.Pop(single)
	return err
}
