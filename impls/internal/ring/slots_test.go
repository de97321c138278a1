package ring

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// TestSlots: at most capacity slots are in use, and no producer sleeps while one is free.
func TestSlots(t *testing.T) {
	const capacity, producers, each = 3, 8, 500
	var s Slots
	s.Init(capacity, errors.New("closed"))
	var held atomic.Int64
	var wg sync.WaitGroup
	for range producers {
		wg.Go(func() {
			for range each {
				if err := s.Take(t.Context()); err != nil {
					t.Error(err)
				}
				if n := held.Add(1); n > capacity {
					t.Errorf("%d hold one of %d slots", n, capacity)
				}
				runtime.Gosched()
				held.Add(-1)
				s.Give(1)
			}
		})
	}
	wg.Wait()
	if s.used.Load() != 0 || s.room.waiting.Load() != 0 {
		t.Errorf("in the end %d slots are in use and %d producers wait", s.used.Load(), s.room.waiting.Load())
	}
}
