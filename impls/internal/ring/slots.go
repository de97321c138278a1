package ring

import (
	"context"
	"math"
	"sync/atomic"
)

// Slots is a capacity that several locks share. A producer takes a slot for each
// value that it queues; a consumer returns it. It serves queues whose producers
// learn under a lock whether they need a slot, and release that lock to wait. For
// the wake-up of producers see [EventCount].
type Slots struct {
	capacity int64
	closed   atomic.Bool
	_        [pad]byte

	// used is the number of slots in use. Producers and consumers write it, so it
	// has a cache line of its own.
	used atomic.Int64
	_    [pad]byte

	room EventCount // where producers wait
}

// Init sets the capacity; 0 means unbounded.
func (s *Slots) Init(capacity int) { s.capacity = int64(capacity) }

// Bounded reports whether the capacity is limited.
func (s *Slots) Bounded() bool { return s.capacity > 0 }

// TryTake takes a slot. It returns false if no slot is free.
func (s *Slots) TryTake() bool {
	if s.capacity == 0 {
		return true
	}
	for {
		n := s.used.Load()
		if n >= s.capacity {
			return false
		}
		if s.used.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Take takes a slot and waits for a free one; after Close there may be none. The error is that of ctx.
func (s *Slots) Take(ctx context.Context) error {
	if s.TryTake() {
		return nil
	}
	return s.room.Wait(ctx, func() bool { return s.TryTake() || s.closed.Load() })
}

// Wait returns nil when a slot was free, or after Close. The caller then calls
// TryTake. If another producer was faster, it waits again. If it no longer needs a
// slot, it calls Wake. The error is that of ctx.
func (s *Slots) Wait(ctx context.Context) error {
	return s.room.Wait(ctx, func() bool { return s.used.Load() < s.capacity || s.closed.Load() })
}

// Give returns n slots and wakes up to n producers.
func (s *Slots) Give(n int) {
	if s.capacity == 0 || n == 0 {
		return
	}
	s.used.Add(int64(-n))
	s.Wake(n)
}

// Wake wakes producers for n free slots.
func (s *Slots) Wake(n int) { s.room.Notify(n) }

// Close ends all waits.
func (s *Slots) Close() {
	s.closed.Store(true)
	s.room.Notify(math.MaxInt)
}
