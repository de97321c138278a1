//go:build mutants

package deltafifo

import (
	"math"
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

// Mutants returns one variant per bug. Each is cond or sharded with one part replaced.
func Mutants() []Mutant {
	const anywhere, perKey, perKeyKnown = "././././.", "per-key/././././.", "per-key/true/./././."
	return append([]Mutant{
		mutant("forgotten-wake-up", "does not wake the consumer for a Replace", "every wait is woken", "././0", onInbox(newForgotten)),
		mutant("lost-wake-up", "checks for work before it announces that it sleeps", "nothing lost, reordered or duplicated among producers", "././0", onInbox(newLostWakeUp)),
		mutant("dropped-at-close", "drops the last event at Close", "queued events survive Close", "././0", onInbox(newDroppedAtClose)),
		mutant("producer-left-asleep", "does not wake producers that wait for room at Close", "Close wakes blocked producers", "././7", newUnfair),
		mutant("spins", "polls for work while idle", "idle costs no CPU time", "in-order/false/0", onInbox(newSpinning)),
		mutant("capacity-exceeded", "has room for one more than Capacity", "capacity is exact", "././7", newExceeded),
		mutant("capacity-lost", "frees one unit of capacity too few", "folded deltas free capacity", "per-key/./7", onBacklog(func(b backlog) backlog { return &capacityLost{b} })),
		mutant("tombstones-last", "delivers the list of a Replace before its tombstones", "Replace queues tombstones first", "in-order/true", onInOrder(func(b *inOrder) backlog { return &tombstonesLast{b} })),
		mutant("key-twice", "puts a key into a batch twice", "no key twice in a batch", "in-order/./0", onInOrder(func(b *inOrder) backlog { return &keyTwice{b} })),
		mutant("beyond-the-list", "lets a batch go beyond the initial list", "a batch ends with the initial list", "in-order/true/0", onInOrder(func(b *inOrder) backlog { return &beyondList{b} })),
		mutant("separate-deletes-merged", "merges two deletions with an addition between them", "separate deletes are kept", perKey, onPerKey(func(b *keysMutant) { b.fold = deletesAnywhere })),
		mutant("latest-is-first", "keeps the oldest delta of a key, not the newest", "only the newest delta of a key", perKey, onPerKey(func(b *keysMutant) { b.fold = anything })),
		mutant("queue-position-lost", "moves an updated key to the end", "keys keep their queue position", perKey, onPerKey(func(b *keysMutant) { b.toTheEnd = true })),
		mutant("resync-overtakes", "resyncs a key with a queued update", "Resync skips keys with a queued update", perKeyKnown, onPerKey(func(b *keysMutant) { b.resyncsAll = true })),
		mutant("delete-lost-in-process", "ignores the deletion of a key in process", "delete of a key in process is popped", perKeyKnown, onPerKey(func(b *keysMutant) { b.forgetsInProcess = true })),
		mutant("lent-too-early", "writes to lent memory while process runs", "lent memory is stable until process returns", "per-key/./0/lent", onPerKey(func(b *keysMutant) { b.overwritesLent = true })),
		mutant("memory-reused", "delivers owned memory twice", "owned memory is never reused", "././0/owned", onBacklog(func(b backlog) backlog { return &memoryReused{backlog: b} })),
		mutant("objects-kept", "keeps references to popped objects", "popped objects can be collected", "././0", onBacklog(func(b backlog) backlog { return &keepsObjects{backlog: b} })),
		mutant("synced-early", "counts the initial list as processed when it is taken", "HasSynced waits for process", "././0", onBacklog(func(b backlog) backlog { return &early{b} })),
		mutant("torn-replace", "queues a list object by object", "Replace is queued as one item", perKeyKnown, onQueue(func(q *buffered) Queue { return &tornReplace{q} })),
		mutant("replace-not-atomic", "lets other calls in between the tombstones of a Replace and its list", "linearizable", "in-order/true/0", onQueue(func(q *buffered) Queue { return &replaceTwice{q} })),
		mutant("shards-mixed", "spreads the events of a key over two queues", "nothing lost, reordered or duplicated among producers", "per-key/./0/./none", newMixed),
		mutant("two-at-once", "delivers to two consumers at once", "concurrent consumers", anywhere, onQueue(func(q *buffered) Queue { return &twoAtOnce{q} })),
		mutant("panic-ignored", "ignores a panic of process", "process panics", "././0", onQueue(newPanicky)),
		mutant("length-understates", "counts the backlog before the inbox", "Len never understates", "in-order/./0", onQueue(func(q *buffered) Queue { return &shortLength{q} })),
		mutant("goroutine-left", "leaves a goroutine behind", "no goroutine leaks", "././0", onQueue(func(q *buffered) Queue { go func() { select {} }(); return q })),
		mutant("accepts-after-close", "queues events after Close", "calls after Close have no effect", "././0", onQueue(func(q *buffered) Queue { return &acceptsAfterClose{q} })),
		mutant("transformed-twice", "applies the transformer twice", "transformer", "././0", onQueue(func(q *buffered) Queue { return &twiceTransformed{q} })),
		mutant("never-throttles", "never makes producers wait for process", "a long queue holds producers up", throttledOnly, onQueue(func(q *buffered) Queue { q.throttle.limit = math.MaxInt; return q })),
		mutant("throttled-for-ever", "does not wake producers when process returns", "a long queue holds producers up", throttledOnly, onQueue(newSticky)),
		mutant("throttled-after-close", "does not wake producers that wait for process at Close", "what ends the wait for process", throttledOnly, onQueue(func(q *buffered) Queue { return &closesInbox{q} })),
	}, shardMutants()...)
}

// maker builds a queue from complete options.
type maker func(Options) (Queue, error)

func mutant(name, broken, check, in string, m maker) Mutant {
	v := bufferedVariant(name, broken, func(capacity int) (inbox, error) { return ring.NewLocked[item](capacity) })
	v.New = func(o Options) (Queue, error) {
		o, err := o.complete(limits{
			deliveries: []Delivery{InOrder, PerKey},
			capacity:   true, batch: true, compaction: true, lend: true,
		})
		if err != nil {
			return nil, err
		}
		return m(o)
	}
	return Mutant{Variant: v, Broken: broken, Check: check, In: in}
}

func newCond(o Options) (*buffered, error) {
	l, err := ring.NewLocked[item](o.Capacity)
	if err != nil {
		return nil, err
	}
	return newBuffered(o, "mutant", l), nil
}

func onQueue(replace func(*buffered) Queue) maker {
	return func(o Options) (Queue, error) {
		q, err := newCond(o)
		if err != nil {
			return nil, err
		}
		return replace(q), nil
	}
}

func onInbox(replace func(inbox) inbox) maker {
	return onQueue(func(q *buffered) Queue { q.inbox = replace(q.inbox); return q })
}

func onBacklog(replace func(backlog) backlog) maker {
	return onQueue(func(q *buffered) Queue { q.backlog = replace(q.backlog); return q })
}

// onInOrder replaces the backlog of in-order delivery.
func onInOrder(replace func(*inOrder) backlog) maker {
	return onBacklog(func(b backlog) backlog {
		if o, ok := b.(*inOrder); ok {
			return replace(o)
		}
		return b
	})
}

// onPerKey adds a bug to the backlog of per-key delivery.
func onPerKey(how func(*keysMutant)) maker {
	return onBacklog(func(b backlog) backlog {
		k, ok := b.(*perKey)
		if !ok {
			return b
		}
		m := &keysMutant{perKey: k}
		how(m)
		return m
	})
}

const throttledOnly = "././0/owned/none/true/." // setups with Throttle

// sticky has another throttle, which is never opened.
type sticky struct {
	*buffered
	throttle
}

func newSticky(q *buffered) Queue {
	if q.throttle.limit > 0 {
		s := &sticky{buffered: q}
		q.engine, q.sink = s, s.init(Options{Throttle: true, BatchSize: q.throttle.limit / 2, Context: q.ctx}, 1, q)
	}
	return q
}

func (s *sticky) queued() int {
	s.throttle.begin(s.buffered.queued())
	return 0
}

func (s *sticky) done(synced bool) { s.buffered.done(synced) }

type closesInbox struct{ *buffered }

func (q *closesInbox) Close() { q.inbox.Close() }

type tornReplace struct{ *buffered }

func (q *tornReplace) Replace(list []any, _ string) error {
	for _, obj := range list {
		if err := q.push(item{obj: obj, kind: replaced}); err != nil {
			return err
		}
	}
	return nil
}

type replaceTwice struct{ *buffered }

func (q *replaceTwice) Replace(list []any, rv string) error {
	if err := q.buffered.Replace(nil, rv); err != nil {
		return err
	}
	runtime.Gosched()
	return q.buffered.Replace(list, rv)
}

type twoAtOnce struct{ *buffered }

func (q *twoAtOnce) Pop(process cache.PopProcessFunc) (any, error) {
	deltas, _ := q.take(false)
	if deltas == nil {
		return nil, cache.ErrFIFOClosed
	}
	return deltas, process(cache.Deltas(deltas), !q.HasSynced())
}

// panicky ignores a panic of process.
type panicky struct {
	*buffered
	after *afterPanic
}

type afterPanic struct {
	backlog
	panicked bool
}

func (a *afterPanic) done() {
	if !a.panicked {
		a.backlog.done()
	}
}

func newPanicky(q *buffered) Queue {
	a := &afterPanic{backlog: q.backlog}
	q.backlog = a
	return &panicky{q, a}
}

func (q *panicky) Pop(process cache.PopProcessFunc) (any, error) {
	return q.buffered.Pop(func(obj any, initial bool) error {
		q.after.panicked = true
		err := process(obj, initial)
		q.after.panicked = false
		return err
	})
}

type shortLength struct{ *buffered }

func (q *shortLength) Len() int {
	n := int(q.waiting.Load())
	runtime.Gosched()
	return n + q.inbox.Len()
}

type acceptsAfterClose struct{ *buffered }

func (q *acceptsAfterClose) Update(obj any) error {
	if !q.IsClosed() {
		return q.buffered.Update(obj)
	}
	q.owner.Lock()
	defer q.owner.Unlock()
	room := q.backlog.room(1)
	room[0] = item{obj: obj, kind: updated}
	q.backlog.put(room)
	q.account()
	return nil
}

type twiceTransformed struct{ *buffered }

func (q *twiceTransformed) Update(obj any) error {
	if q.transformer != nil {
		obj, _ = q.transform(obj)
	}
	return q.buffered.Update(obj)
}

// mixed has two queues and distributes events in turn.
type mixed struct {
	*buffered
	other *buffered
	turn  atomic.Int64
}

func newMixed(o Options) (Queue, error) {
	q, err := newCond(o)
	if err != nil {
		return nil, err
	}
	other, err := newCond(o)
	if err != nil {
		return nil, err
	}
	return &mixed{buffered: q, other: other}, nil
}

func (q *mixed) part() *buffered {
	if q.turn.Add(1)%2 == 0 {
		return q.other
	}
	return q.buffered
}

func (q *mixed) Add(obj any) error    { return q.part().Add(obj) }
func (q *mixed) Update(obj any) error { return q.part().Update(obj) }
func (q *mixed) Len() int             { return q.buffered.Len() + q.other.Len() }
func (q *mixed) Close()               { q.buffered.Close(); q.other.Close() }

// next returns a queue that has events or is closed.
func (q *mixed) next() *buffered {
	for {
		for range 2 {
			if p := q.part(); p.Len() > 0 || q.IsClosed() && q.Len() == 0 {
				return p
			}
		}
		runtime.Gosched()
	}
}

func (q *mixed) Pop(process cache.PopProcessFunc) (any, error) { return q.next().Pop(process) }

func (q *mixed) PopBatch(batch cache.ProcessBatchFunc, single cache.PopProcessFunc) error {
	return q.next().PopBatch(batch, single)
}
