package ring

import (
	"sync"
	"sync/atomic"
)

// EventCount is a condition variable for conditions that change without its lock: producers of a full
// queue sleep on it. A change costs one load while nobody sleeps. The zero value is ready.
//
// # Why no wake-up is missed
//
// A sleeper takes the lock, increments asleep and then checks its condition. A change comes first, and
// then Notify loads asleep. In the total order of Go's atomics one of them sees the other: the sleeper
// finds its condition true, or Notify finds the sleeper. It then waits for the lock, which the sleeper
// has until it sleeps.
type EventCount struct {
	asleep atomic.Int64 // written under mu; Notify skips the lock if it is 0
	mu     sync.Mutex
	change sync.Cond // its L is mu from the first Wait on
}

// Wait sleeps until ready returns true. ready must not wait; it is called with the lock.
func (e *EventCount) Wait(ready func() bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.change.L = &e.mu
	e.asleep.Add(1)
	defer e.asleep.Add(-1)
	for !ready() {
		e.change.Wait()
	}
}

// Notify wakes the first n sleepers. The caller has changed their condition before.
func (e *EventCount) Notify(n int) {
	if e.asleep.Load() == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for range min(n, int(e.asleep.Load())) {
		e.change.Signal()
	}
}
