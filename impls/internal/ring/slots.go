package ring

import (
	"context"
	"sync"
	"sync/atomic"
)

// Slots is a capacity that several locks share. A producer takes a slot for each
// value that it queues; a consumer returns it. It serves queues whose producers
// learn under a lock whether they need a slot, and release that lock to wait.
//
// # Why no wake-up is missed
//
// A producer without a slot increments Waiting and then loads Used again. A
// consumer decrements Used and then loads Waiting. In the total order of Go's
// atomics one of them sees the other. The producer holds mu from its second load
// to its sleep, and the waker takes mu.
//
// Each slot wakes one producer. If a faster producer takes the slot, the woken
// one waits again. If the woken producer no longer needs a slot, it calls Wake
// for the next one. The end of a context and Close wake all producers.
type Slots struct {
	capacity  int64
	errClosed error
	_         [pad]byte

	// Used is the number of slots in use. Producers and consumers write it, so it
	// has a cache line of its own.
	Used atomic.Int64
	_    [pad]byte

	// Waiting is the number of waiting producers. Give loads it after it has
	// decremented Used.
	Waiting atomic.Int64

	mu sync.Mutex
	// mu guards freed and closed.
	freed  sync.Cond
	closed bool
}

// Init sets the capacity and the error that [Slots.Wait] returns after Close.
// Capacity 0 means unbounded.
func (s *Slots) Init(capacity int, errClosed error) {
	s.capacity, s.errClosed = int64(capacity), errClosed
	s.freed.L = &s.mu
}

// Bounded reports whether the capacity is limited.
func (s *Slots) Bounded() bool { return s.capacity > 0 }

// TryTake takes a slot. It returns false if no slot is free.
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

// Take takes a slot and waits for a free one. The errors are those of
// [Slots.Wait].
func (s *Slots) Take(ctx context.Context) error {
	for !s.TryTake() {
		if err := s.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Wait returns nil when a slot was free. The caller then calls TryTake. If
// another producer was faster, it waits again. If it no longer needs a slot, it
// calls Wake. The error is that of ctx, or that of a closed queue.
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

// Give returns n slots and wakes up to n producers.
func (s *Slots) Give(n int) {
	if s.capacity == 0 || n == 0 {
		return
	}
	s.Used.Add(int64(-n))
	s.Wake(n)
}

// Wake wakes producers for n free slots.
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
