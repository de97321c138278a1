//go:build mutants

package queue

import (
	"runtime"
	"sync/atomic"
	"time"

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
}

// Mutants returns one variant per bug. Each is a variant of this package with a
// method or an option replaced.
func Mutants() []Mutant {
	return []Mutant{
		mutant("lost-wake-up", "does not wake the consumer for an update", "every wait is woken", condVariant(), newNoSignal),
		mutant("moved-back", "gives an updated key a new position", "objects keep their queue position", condVariant(), newMovedBack),
		mutant("synced-early", "counts a key of the initial list before process returns", "HasSynced waits for process", condVariant(), newSyncedEarly),
		mutant("one-too-many", "accepts one key more than the capacity", "capacity is exact", condVariant(), newOneTooMany),
		mutant("no-wake-up-for-room", "does not wake producers that wait for room", "a producer blocks when full", condVariant(), newNoRoomWakeUp),
		mutant("lost-at-close", "drops the last key at Close", "queued events survive Close", ringVariant(), newLostAtClose),
		mutant("stale", "reads the inbox only when the backlog is empty", "Pop sees the latest call", ringVariant(), newStale),
		mutant("late-end", "reports the end before the last keys", "queued events survive Close", ringVariant(), newLateEnd),
		mutant("owner-left", "leaves its goroutine behind", "no goroutine leaks", channelVariant(), newOwnerLeft),
		mutant("gap-at-close", "drops an event at Close and accepts later ones", "Close during pushes", channelVariant(), newGapAtClose),
		mutant("accepts-after-close", "queues events after Close", "calls after Close have no effect", condVariant(), newAcceptsAfterClose),
		mutant("released-early", "releases a key before process returns", "concurrent consumers", shardedVariant(), newReleasedEarly),
		mutant("torn-replace", "replaces one shard after the other", "Replace is atomic", shardedVariant(), newTornReplace),
		mutant("forgotten-key", "wakes no consumer for a key that was in process", "consumers pass over a key in process", shardedVariant(), newForgottenKey),
		mutant("unfair", "takes from the first shard with keys", "no key starves", shardedVariant(), newUnfair),
	}
}

func mutant(name, broken, check string, of Variant, build func(Options) Queue) Mutant {
	return Mutant{
		Variant: Variant{Name: name, Summary: broken, Guarantees: of.Guarantees, New: func(o Options) (Queue, error) {
			o, err := o.complete(limits{capacity: true, shards: true})
			if err != nil {
				return nil, err
			}
			return build(o), nil
		}},
		Broken: broken,
		Check:  check,
	}
}

type noSignal struct{ *cond }

func newNoSignal(o Options) Queue { return noSignal{newCond(o)} }

func (q noSignal) Update(obj any) error {
	q.mu.Lock()
	away := q.away
	q.away = false
	q.mu.Unlock()
	err := q.Add(obj)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.away = away
	return err
}

type movedBack struct{ *cond }

func newMovedBack(o Options) Queue { return movedBack{newCond(o)} }

func (q movedBack) Update(obj any) error {
	if err := q.Delete(obj); err != nil {
		return err
	}
	return q.Add(obj)
}

type syncedEarly struct{ *cond }

func newSyncedEarly(o Options) Queue { return syncedEarly{newCond(o)} }

func (q syncedEarly) Pop(process cache.PopProcessFunc) (any, error) {
	q.consumer.Lock()
	defer q.consumer.Unlock()
	obj, epoch, ok := q.take()
	if !ok {
		return nil, cache.ErrFIFOClosed
	}
	initial := !q.initial.HasSynced()
	q.initial.left(epoch)
	return obj, process(obj, initial)
}

func newOneTooMany(o Options) Queue {
	if o.Capacity > 0 {
		o.Capacity++
	}
	return newCond(o)
}

type noRoomWakeUp struct{ *cond }

func newNoRoomWakeUp(o Options) Queue { return noRoomWakeUp{newCond(o)} }

func (q noRoomWakeUp) Pop(process cache.PopProcessFunc) (any, error) {
	// Producers that are woken find no slot.
	q.slots.Used.Add(1)
	defer func() {
		time.Sleep(time.Millisecond)
		q.slots.Used.Add(-1)
	}()
	return q.cond.Pop(process)
}

func mutantInbox(size int) (inbox, error) { return ring.NewBounded[item](size) }

func newBrokenBuffered(o Options) *buffered {
	o.Shards = 0
	q, err := newBuffered(o, "ring", mutantInbox)
	if err != nil {
		panic(err)
	}
	return q.(*buffered)
}

type lostAtClose struct{ *buffered }

func newLostAtClose(o Options) Queue { return lostAtClose{newBrokenBuffered(o)} }

func (q lostAtClose) Close() {
	q.owner.Lock()
	q.shorten(0)
	var last *entry
	for e := range q.backlog.waiting.All {
		last = e
	}
	if !q.away && last != nil {
		q.backlog.waiting.Remove(last)
	}
	q.owner.Unlock()
	q.buffered.Close()
}

type stale struct{ *buffered }

func newStale(o Options) Queue { return stale{newBrokenBuffered(o)} }

func (q stale) Pop(process cache.PopProcessFunc) (any, error) {
	q.consumer.Lock()
	defer q.consumer.Unlock()
	q.owner.Lock()
	if q.backlog.len() == 0 {
		q.owner.Unlock()
		obj, epoch, ok := q.take()
		if !ok {
			return nil, cache.ErrFIFOClosed
		}
		defer q.initial.left(epoch)
		return obj, process(obj, !q.initial.HasSynced())
	}
	obj, epoch := q.backlog.take()
	q.release()
	q.owner.Unlock()
	defer q.initial.left(epoch)
	return obj, process(obj, !q.initial.HasSynced())
}

type lateEnd struct{ *buffered }

func newLateEnd(o Options) Queue { return lateEnd{newBrokenBuffered(o)} }

func (q lateEnd) Pop(process cache.PopProcessFunc) (any, error) {
	if q.closed.Load() {
		q.owner.Lock()
		n := q.backlog.len()
		q.owner.Unlock()
		if n == 0 {
			return nil, cache.ErrFIFOClosed
		}
	}
	return q.buffered.Pop(process)
}

type ownerLeft struct{ *channel }

func newOwnerLeft(o Options) Queue {
	go func() { select {} }() // Like an owner that no consumer drains.
	return ownerLeft{newChannel(o)}
}

type gapAtClose struct {
	*channel

	closing atomic.Bool
}

func newGapAtClose(o Options) Queue { return &gapAtClose{channel: newChannel(o)} }

func (q *gapAtClose) Add(obj any) error {
	if q.closing.CompareAndSwap(true, false) {
		return nil
	}
	return q.channel.Add(obj)
}

func (q *gapAtClose) Close() {
	q.closing.Store(true)
	for range 3 {
		runtime.Gosched()
	}
	q.channel.Close()
}

type acceptsAfterClose struct{ *cond }

func newAcceptsAfterClose(o Options) Queue { return acceptsAfterClose{newCond(o)} }

func (q acceptsAfterClose) Add(obj any) error {
	closed := q.IsClosed()
	q.mu.Lock()
	q.closed = false
	q.mu.Unlock()
	err := q.cond.Add(obj)
	q.mu.Lock()
	q.closed = closed
	q.mu.Unlock()
	return err
}

type releasedEarly struct{ *sharded }

func newReleasedEarly(o Options) Queue { return releasedEarly{newSharded(o)} }

func (q releasedEarly) Pop(process cache.PopProcessFunc) (any, error) {
	e, i, ok := q.take()
	if !ok {
		return nil, cache.ErrFIFOClosed
	}
	if !e.Value.placeless {
		q.slots.Give(1)
	}
	q.done(i, &entry{Key: e.Key, Hash: e.Hash})
	defer q.initial.left(e.Value.epoch)
	return e.Value.obj, process(e.Value.obj, !q.initial.HasSynced())
}

type tornReplace struct{ *sharded }

func newTornReplace(o Options) Queue { return tornReplace{newSharded(o)} }

func (q tornReplace) Replace(list []any, _ string) error {
	r, err := newReplacement(q.keys, list)
	if err != nil {
		return err
	}
	for i := range q.shards {
		s := &q.shards[i]
		s.mu.Lock()
		q.slots.Give(s.backlog.placed)
		s.backlog.clear()
		s.held = 0
		for j := range r.list {
			if q.shardOf(r.list[j].hash) == i {
				s.hold(s.backlog.list(&r.list[j]))
			}
		}
		q.mark(i)
		s.mu.Unlock()
		q.wakeAll()
		runtime.Gosched()
	}
	return nil
}

type forgottenKey struct{ *sharded }

func newForgottenKey(o Options) Queue { return forgottenKey{newSharded(o)} }

func (q forgottenKey) Pop(process cache.PopProcessFunc) (any, error) {
	return q.sharded.Pop(func(obj any, initial bool) error {
		err := process(obj, initial)

		q.sleepers.Lock()
		q.asleep.Store(0)
		q.sleepers.Unlock()

		q.ready.Store(0)
		return err
	})
}

type unfair struct{ *sharded }

func newUnfair(o Options) Queue { return unfair{newSharded(o)} }

func (q unfair) Pop(process cache.PopProcessFunc) (any, error) {
	q.next.Store(0)
	return q.sharded.Pop(process)
}
