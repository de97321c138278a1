package ring

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// room is where the producers of a bounded queue sleep until there is some.
//
// # Why no wake-up is missed
//
// A producer enlists, which counts up waiting, and then tries to push; the
// consumer moves freed and then looks at waiting. In the total order of Go's
// atomics one of the two sees the other: the producer finds the room, or the
// consumer finds the producer. The same holds for Close, which sets the closed
// bit that the producer's try looks at.
//
// For each place that became free one waiter is sent a token. A waiter that
// leaves with a token that it has not used, as it found room by itself or its
// context ended, passes it on. One that uses its token and finds that another
// producer was faster enlists again, in front, and tries once more.
type room struct {
	// waiting is how many are enlisted. Written under mu; the consumer loads it
	// once a batch, to see without the lock that nobody waits.
	waiting atomic.Int64

	mu sync.Mutex
	// first and last are the ends of the list of those enlisted.
	first, last *waiter
	// free is a list, linked by next, of at most maxFree waiters to use again.
	free  *waiter
	nfree int
}

// waiter is a producer that waits. Its fields, save token, are guarded by
// room.mu.
type waiter struct {
	// token has room for one; it holds one when the waiter was taken off the
	// list by made.
	token      chan struct{}
	prev, next *waiter
	enlisted   bool
}

// maxFree bounds what is kept for reuse.
const maxFree = 64

// pushSlow pushes to a queue that was full, waiting for room.
func pushSlow[T any](ctx context.Context, q Queue[T], r *room, v T) error {
	w := r.waiter()
	for overtaken := false; ; overtaken = true {
		r.enlist(w, overtaken)
		if err := q.TryPush(v); !errors.Is(err, ErrFull) {
			r.leave(w)
			return err
		}
		select {
		case <-w.token:
		case <-ctx.Done():
			r.leave(w)
			return ctx.Err()
		}
		if err := q.TryPush(v); !errors.Is(err, ErrFull) {
			r.keep(w)
			return err
		}
	}
}

// waiter returns one that isn't enlisted. It is given back by leave or keep.
func (r *room) waiter() *waiter {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.free
	if w == nil {
		return &waiter{token: make(chan struct{}, 1)}
	}
	r.free, r.nfree = w.next, r.nfree-1
	w.next = nil
	return w
}

// enlist appends w, or puts it in front. The caller then tries to push.
func (r *room) enlist(w *waiter, front bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.first == nil:
		r.first, r.last = w, w
	case front:
		w.next, r.first.prev = r.first, w
		r.first = w
	default:
		w.prev, r.last.next = r.last, w
		r.last = w
	}
	w.enlisted = true
	r.waiting.Add(1)
}

// unlink takes w off the list. The caller holds mu.
func (r *room) unlink(w *waiter) {
	if w.prev == nil {
		r.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		r.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next, w.enlisted = nil, nil, false
	r.waiting.Add(-1)
}

// made wakes as many as there are new places. The caller has moved freed, or has
// set the closed bit.
func (r *room) made(places int) {
	if r.waiting.Load() == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wake(places)
}

// wake sends a token to each of the first n. The caller holds mu.
func (r *room) wake(n int) {
	for ; n > 0 && r.first != nil; n-- {
		w := r.first
		r.unlink(w)
		w.token <- struct{}{}
	}
}

// leave ends the wait of one that has not received its token.
func (r *room) leave(w *waiter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w.enlisted {
		r.unlink(w)
	} else {
		// Tokens are sent under mu: it is there.
		<-w.token
		r.wake(1)
	}
	r.recycle(w)
}

// keep ends the wait of one that has received its token and used it.
func (r *room) keep(w *waiter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recycle(w)
}

func (r *room) recycle(w *waiter) {
	if r.nfree < maxFree {
		w.next = r.free
		r.free, r.nfree = w, r.nfree+1
	}
}
