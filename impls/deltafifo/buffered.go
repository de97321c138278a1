package deltafifo

import (
	"math"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls/internal/ring"
)

// buffered is a queue in two parts:
//
//  1. The inbox. Each producer call pushes one item.
//  2. The backlog, which the consumer owns. It computes keys, merges deltas
//     and cuts batches.
//
// Replace, Resync and Bookmark go through the inbox like events, so that they
// keep their position in the order. If they depend on the consumer's store
// (KnownObjects), they are commands. The owner of the backlog executes them: the
// consumer in its next pop, or the caller if the backlog is not locked.
type buffered struct {
	front
	inbox  inbox // safe for all producers; only the holder of owner takes from it
	closed atomic.Bool

	// owner guards the backlog and the consumer's end of the inbox. It is taken after consumer. The
	// consumer holds it until it has popped, also while it waits.
	owner   sync.Mutex
	backlog backlog
	// waiting is at least the length of the backlog, for Len. It is raised before items leave the
	// inbox, and the owner stores it afterwards. Len loads it after the length of the inbox, so
	// that it misses no item that moves meanwhile.
	waiting atomic.Int64

	yielder ring.Yielder
	folded  ring.EventCount // where producers in await sleep
}

const chunk = 256 // items moved from inbox to backlog at a time: they fit a first-level cache

func newBuffered(o Options, name string, in inbox) *buffered {
	q := &buffered{front: front{producers: producers{base: newBase(o, name)}}, inbox: in}
	q.engine, q.sink = q, q
	q.throttle.init(o, 1)
	q.yielder.Init()
	q.backlog = newBacklog(o, q.initial)
	return q
}

func (q *buffered) push(i item) {
	q.throttle.wait()
	if q.inbox.Push(i) != nil {
		return // It is closed.
	}
	switch {
	case i.kind >= replaceCommand:
		q.await(i.obj.(*command).executed.Load)
	case !q.initial.Begun() && i.kind != syncAll && i.kind != bookmark:
		q.await(q.initial.Begun)
	}
	q.yielder.Yield()
}

// await folds the inbox, or waits until the owner of the backlog has folded the caller's item, which
// executed reports. The owner wakes it when it unlocks the backlog and before it sleeps.
func (q *buffered) await(executed func() bool) {
	owns := false
	q.folded.Wait(func() bool {
		if executed() {
			return true
		}
		owns = q.owner.TryLock()
		return owns
	})
	if owns {
		defer q.unlock()
		q.foldAll()
	}
}

// wake wakes producers in await.
func (q *buffered) wake() { q.folded.Notify(math.MaxInt) }

func (q *buffered) unlock() {
	q.owner.Unlock()
	q.wake()
}

// settle folds the inbox into the backlog, unless the backlog is locked.
func (q *buffered) settle() {
	if q.owner.TryLock() {
		defer q.unlock()
		q.fold(q.inbox.Len())
	}
}

// fold moves up to n items of the inbox to the backlog, and returns how many.
// The caller holds owner.
func (q *buffered) fold(n int) int {
	left := n
	for left > 0 {
		room := q.backlog.room(left)
		q.waiting.Add(int64(len(room)))
		got := q.inbox.TakeBatch(room)
		q.backlog.put(room[:got])
		left -= got
		q.account()
		if got < len(room) {
			break
		}
	}
	return n - left
}

// account updates Len and gives capacity back. The caller holds owner.
func (q *buffered) account() {
	q.waiting.Store(int64(q.backlog.len()))
	if n := q.backlog.freed(); n > 0 {
		q.inbox.Release(n)
	}
}

func (q *buffered) take(batch bool) (deltas []cache.Delta, batched bool) {
	q.owner.Lock()
	defer q.unlock()
	for {
		q.gather(batch)
		if deltas, batched = q.backlog.take(batch); deltas != nil {
			q.account()
			q.yielder.Took(len(deltas))
			return deltas, batched
		}
		q.wake()
		q.yielder.Asleep()
		err := q.inbox.Wait()
		q.yielder.Awake()
		if err != nil {
			return nil, false
		}
	}
}

// gather folds what the next pop depends on. The caller holds owner.
func (q *buffered) gather(batch bool) {
	if q.atomicLists {
		for !q.backlog.enough(batch) && q.fold(chunk) == chunk {
			// The inbox may have more.
		}
		return
	}
	// A key is popped with all deltas that were queued before.
	q.foldAll()
}

// foldAll folds all calls that have returned. The caller holds owner.
func (q *buffered) foldAll() {
	for n := q.inbox.Len(); n > 0; {
		if n -= q.fold(n); n == 0 {
			return
		}
		// A producer has claimed its position and not published it yet, though
		// later ones have returned.
		if q.inbox.Wait() != nil {
			return
		}
	}
}

func (q *buffered) done(bool) {
	q.owner.Lock()
	defer q.unlock()
	q.backlog.done()
}

func (q *buffered) Close() {
	q.closed.Store(true)
	q.inbox.Close()
	q.throttle.close()
}

func (q *buffered) queued() int {
	q.owner.Lock()
	defer q.unlock()
	return q.inbox.Len() + q.backlog.size()
}

func (q *buffered) IsClosed() bool { return q.closed.Load() }

// Len implements [Queue]. With per-key delivery, each event counts that a busy
// consumer has not folded yet.
func (q *buffered) Len() int {
	if q.perKey {
		q.settle()
	}
	n := q.inbox.Len()
	return n + int(q.waiting.Load())
}
