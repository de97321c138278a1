package ring

import (
	"context"
	"sync"
	"sync/atomic"
)

// Slots is a capacity that several locks share: a producer takes a slot for what
// it queues, a consumer gives it back. It is for queues whose producers learn
// under a lock whether they need a slot, and release that lock to wait for one.
//
// # Why no wake-up is missed
//
// A producer that found no slot counts up Waiting and looks at Used again; a
// consumer counts down Used and then looks at Waiting. In the total order of Go's
// atomics one of the two sees the other. Between its second look and its sleep a
// producer holds mu, which whoever wakes it takes.
//
// One producer is woken for each slot. One that finds the slot taken by a faster
// producer waits again, and is woken for that one's slot or another; one that
// needs none after all calls Wake for the next. The end of the context and Close
// wake all.
type Slots struct {
	capacity  int64
	errClosed error
	_         [pad]byte

	// Used is the number of slots in use. Producers and consumers write it, so
	// that it has cache lines of its own.
	Used atomic.Int64
	_    [pad]byte

	// Waiting is the number of producers that wait. Given back slots read it after
	// they have written Used.
	Waiting atomic.Int64

	mu sync.Mutex
	// freed and closed are guarded by mu.
	freed  sync.Cond
	closed bool
}

// Init sets the capacity, 0 for none, and the error of [Slots.Wait] after Close.
func (s *Slots) Init(capacity int, errClosed error) {
	s.capacity, s.errClosed = int64(capacity), errClosed
	s.freed.L = &s.mu
}

// Bounded reports whether there is a capacity.
func (s *Slots) Bounded() bool { return s.capacity > 0 }

// TryTake takes a slot, or reports that there is none.
func (s *Slots) TryTake() bool {
	if s.capacity == 0 {
		return true
	}
	for {
		n := s.Used.Load()
		if n >= s.capacity {
			return false
		}
		if s.Used.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Take takes a slot and waits for one. The errors are those of [Slots.Wait].
func (s *Slots) Take(ctx context.Context) error {
	for !s.TryTake() {
		if err := s.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Wait returns nil when there was a slot: the caller tries to take it and, if
// another was faster, waits again, or calls Wake if it no longer needs one.
// Otherwise it returns the error of ctx, or that of a closed queue.
func (s *Slots) Wait(ctx context.Context) error {
	s.Waiting.Add(1)
	defer s.Waiting.Add(-1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.freed.Broadcast()
		})()
	}
	for s.Used.Load() >= s.capacity {
		if s.closed {
			return s.errClosed
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		s.freed.Wait()
	}
	return nil
}

// Give gives n slots back.
func (s *Slots) Give(n int) {
	if s.capacity == 0 || n == 0 {
		return
	}
	s.Used.Add(int64(-n))
	s.Wake(n)
}

// Wake wakes the producers that n slots are for.
func (s *Slots) Wake(n int) {
	waiting := s.Waiting.Load()
	if waiting == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if int64(n) >= waiting {
		s.freed.Broadcast()
		return
	}
	for range n {
		s.freed.Signal()
	}
}

// Close ends all waits.
func (s *Slots) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.freed.Broadcast()
}
