package ring

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// room is where producers of a full queue sleep.
//
// # Why no wake-up is missed
//
// A producer enlists, which increments waiting, and then tries to push. The consumer advances freed
// and then loads waiting. In the total order of Go's atomics one of them sees the other: the
// producer finds the free slot, or the consumer finds the producer. The same holds for Close,
// because the push checks the closed bit.
//
// Each freed slot sends one token to one waiter. A waiter may leave with an unused token: it found
// a slot by itself, or its context ended. It then passes the token on. If a waiter uses its token
// but another producer took the slot, the waiter enlists again at the front.
type room struct {
	// waiting counts the enlisted waiters. It is written under mu. The consumer
	// loads it once per batch, and skips the lock if it is 0.
	waiting atomic.Int64

	mu          sync.Mutex
	first, last *waiter // the ends of the list of enlisted waiters
	free        *waiter // a list, linked by next, of nfree waiters for reuse, at most maxFree
	nfree       int
}

// waiter is a waiting producer. room.mu guards all fields but token.
type waiter struct {
	token      chan struct{} // of capacity 1; wake fills it when it removes the waiter from the list
	prev, next *waiter
	enlisted   bool
}

const maxFree = 64 // bounds the waiters that are kept for reuse

// pushSlow pushes to a full queue and waits for room.
func pushSlow[T any](ctx context.Context, q Queue[T], r *room, v T) error {
	return r.wait(ctx, func() error { return q.TryPush(v) })
}

// wait waits for room until try returns another error than [ErrFull], or ctx ends.
func (r *room) wait(ctx context.Context, try func() error) error {
	w := r.waiter()
	for overtaken := false; ; overtaken = true {
		r.enlist(w, overtaken)
		if err := try(); !errors.Is(err, ErrFull) {
			r.leave(w)
			return err
		}
		select {
		case <-w.token:
		case <-ctx.Done():
			r.leave(w)
			return ctx.Err()
		}
		if err := try(); !errors.Is(err, ErrFull) {
			r.keep(w)
			return err
		}
	}
}

// waiter returns a waiter that is not enlisted. The caller returns it with leave or keep.
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

// enlist adds w at the end, or at the front. The caller then tries to push.
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

// unlink removes w from the list. The caller holds mu.
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

// made wakes one waiter per freed slot. The caller has advanced freed or set the closed bit.
func (r *room) made(places int) {
	if r.waiting.Load() == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wake(places)
}

// wake sends a token to the first n waiters. The caller holds mu.
func (r *room) wake(n int) {
	for ; n > 0 && r.first != nil; n-- {
		w := r.first
		r.unlink(w)
		w.token <- struct{}{}
	}
}

// leave ends the wait of a waiter that has not received its token.
func (r *room) leave(w *waiter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w.enlisted {
		r.unlink(w)
	} else {
		// Tokens are sent under mu, so the token is here.
		<-w.token
		r.wake(1)
	}
	r.recycle(w)
}

// keep ends the wait of a waiter that has used its token.
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
