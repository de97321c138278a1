package ring

import (
	"math"
	"sync/atomic"
)

// Slots is a capacity that several locks share. A producer takes a slot for each
// value that it queues; a consumer returns it. For the wake-up of producers see
// [EventCount].
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

// tryTake takes a slot. It returns false if no slot is free.
func (s *Slots) tryTake() bool {
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

// Take takes a slot and waits for a free one; after Close there may be none.
func (s *Slots) Take() {
	if !s.tryTake() {
		s.room.Wait(func() bool { return s.tryTake() || s.closed.Load() })
	}
}

// Give returns n slots and wakes up to n producers.
func (s *Slots) Give(n int) {
	if s.capacity == 0 || n == 0 {
		return
	}
	s.used.Add(int64(-n))
	s.room.Notify(n)
}

// Close ends all waits.
func (s *Slots) Close() {
	s.closed.Store(true)
	s.room.Notify(math.MaxInt)
}
