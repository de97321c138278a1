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

// Ready is the FIFO of the shards of a queue that have something to pop, each once. Consumers receive from C.
//
// # Why no wake-up is missed
//
// Whoever gives a shard its first value that can be popped sends the shard to C before it unlocks it. C has
// room for all shards, so that a send never waits. A consumer sleeps only if C is empty.
//
// Close counts, with all shards locked, those that are not empty. Each that becomes empty counts down, under
// its lock; the last closes C.
type Ready[T any] struct {
	C    chan T
	left atomic.Int64 // after Close, the number of shards that are not empty
}

// Init sets the number of shards.
func (r *Ready[T]) Init(shards int) { r.C = make(chan T, shards) }

// Close begins the count. The caller then calls Drained for each empty shard.
func (r *Ready[T]) Close() { r.left.Store(int64(cap(r.C))) }

// Drained counts a shard of a closed queue that is empty.
func (r *Ready[T]) Drained() {
	if r.left.Add(-1) == 0 {
		close(r.C)
	}
}
