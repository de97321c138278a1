package queue

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"

	"watchlab/impls/internal/ring"
)

// inbox carries calls of producers to the owner of the backlog, in one order.
type inbox = ring.Queue[item]

// buffered is a queue in two parts:
//
//  1. The inbox. Each producer call pushes one item.
//  2. The backlog, which the consumer owns. It computes keys and merges
//     events, many at a time.
//
// Delete and Replace go through the inbox like Add, so that they keep their
// position in the order. Pop first merges all items that were in the inbox when
// it began, so that it returns the newest object of a key.
//
// The inbox is short. Behind a slow handler, memory grows with the number of keys
// and not of events. A producer that finds the inbox full merges half of it and
// leaves the other half to the consumer. The slots of merged items are freed many
// at a time, so that a producer finds room for many items.
type buffered struct {
	front
	inbox  inbox // safe for all producers; only the holder of owner takes from it
	closed atomic.Bool

	yielder ring.Yielder

	// owner guards the backlog and the consumer's end of the inbox. It is taken
	// after consumer and held briefly: not while process runs, and not while the consumer waits.
	owner sync.Mutex
	// away: the consumer waits at the inbox, and no other goroutine may take from
	// it. owner guards the fields below.
	away    bool
	back    sync.Cond // where producers wait for the consumer to return
	backlog backlog
	held    int // counts the items taken from the inbox whose slots are still in use
	buf     [chunk]item
}

const (
	chunk = 256 // items moved from inbox to backlog at a time: they fit a first-level cache
	// inboxSize is the length of the inbox. Folding half of it takes a producer a quarter of a
	// millisecond, and happens too seldom to show in the 99.9th percentile of a call's latency.
	inboxSize = 8192
)

// newBuffered returns a queue with an inbox for inboxSize items.
func newBuffered(o Options, name string, in inbox) *buffered {
	q := &buffered{front: front{base: newBase(o, name)}, inbox: in}
	q.engine = q
	q.backlog = q.newBacklog()
	q.back.L = &q.owner
	q.yielder.Init()
	return q
}

func (q *buffered) settle() {
	q.owner.Lock()
	defer q.owner.Unlock()
	q.foldAllBut(0)
}

func (q *buffered) push(i item) {
	err := q.inbox.TryPush(i)
	if err == nil {
		q.yielder.Yield()
	} else if errors.Is(err, ring.ErrFull) {
		q.pushFull(i)
	}
}

// pushFull is push for a full inbox. It folds to make room.
func (q *buffered) pushFull(i item) {
	q.owner.Lock()
	defer q.owner.Unlock()
	for q.foldAllBut(inboxSize / 2); errors.Is(q.inbox.TryPush(i), ring.ErrFull); q.foldAllBut(0) {
		q.yield() // Others are about to publish their items.
	}
}

// yield lets producers publish the positions that they have claimed. The caller holds owner.
func (q *buffered) yield() {
	q.owner.Unlock()
	runtime.Gosched()
	q.owner.Lock()
}

// foldAllBut folds the inbox but for some items that are left to the consumer, and returns how many it
// has folded. If the consumer sleeps with items in the inbox, it first waits for the consumer to
// wake up. The caller holds owner, which may be released meanwhile.
func (q *buffered) foldAllBut(leave int) int {
	for q.away && q.inbox.Len() > 0 {
		q.back.Wait()
	}
	if q.away {
		return 0
	}
	return q.fold(q.inbox.Len() - leave)
}

// fold moves up to n items of the inbox to the backlog, and returns how many. The
// caller holds owner.
func (q *buffered) fold(n int) int {
	for left := n; left > 0; {
		most := min(left, chunk)
		got := q.inbox.TakeBatch(q.buf[:most])
		q.backlog.put(q.buf[:got])
		clear(q.buf[:got])
		q.held += got
		q.release()
		left -= got
		if got < most {
			return n - left
		}
	}
	return n
}

// release gives back the slots of the inbox, if they are many. The caller holds owner.
func (q *buffered) release() {
	if q.held >= inboxSize/2 {
		q.inbox.Release(q.held)
		q.held = 0
	}
}

// foldAll folds everything that was in the inbox when it was called. The caller is
// the consumer and holds owner.
func (q *buffered) foldAll() {
	for n := q.inbox.Len(); n > 0; {
		if n -= q.fold(n); n > 0 {
			// A producer has claimed its position and not published it yet, though
			// later ones may have returned.
			_ = q.wait()
		}
	}
}

// wait waits for the inbox. The caller is the consumer and holds owner, which is
// released meanwhile.
func (q *buffered) wait() error {
	q.away = true
	q.owner.Unlock()
	q.yielder.Asleep()
	err := q.inbox.Wait()
	q.yielder.Awake()
	q.owner.Lock()
	q.away = false
	q.back.Broadcast()
	return err
}

func (q *buffered) take() (obj any, epoch uint32, ok bool) {
	q.owner.Lock()
	defer q.owner.Unlock()
	for {
		q.foldAll()
		if q.backlog.len() > 0 {
			obj, epoch = q.backlog.take()
			q.yielder.Took(1)
			return obj, epoch, true
		}
		// A producer that found the inbox full may have folded meanwhile.
		if q.wait() != nil && q.backlog.len() == 0 {
			return nil, 0, false
		}
	}
}

func (q *buffered) Close() {
	q.closed.Store(true)
	q.inbox.Close()
}

func (q *buffered) IsClosed() bool { return q.closed.Load() }

// Len implements [Queue]. It folds the inbox; O(1) apart from that.
func (q *buffered) Len() int {
	q.owner.Lock()
	defer q.owner.Unlock()
	for n := q.inbox.Len(); n > 0; n = min(n, q.inbox.Len()) {
		got := q.foldAllBut(0)
		if n -= got; n > 0 && got == 0 {
			// A producer has claimed its position and not published it yet, though
			// later ones may have returned. Only the consumer may sleep at the inbox.
			q.yield()
		}
	}
	return q.backlog.len()
}
