package ring

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// EventCount is a condition variable for conditions that change without its lock: producers of a full
// queue sleep on it. A change costs one load while nobody sleeps. The zero value is ready.
//
// # Why no wake-up is missed
//
// A sleeper enlists, which increments asleep, and then checks its condition. A change comes first, and
// then Notify loads asleep. In the total order of Go's atomics one of them sees the other: the sleeper
// finds its condition true, or Notify finds the sleeper.
//
// Notify sends one token to each of the first n sleepers. A sleeper may leave with an unused token: its
// condition came true by itself, or its context ended. It then passes the token on. A sleeper whose
// condition is false again, because another goroutine was faster, enlists again at the front.
type EventCount struct {
	// asleep is the length of sleepers. It is written under mu. Notify loads it, and skips the lock if
	// it is 0.
	asleep atomic.Int64

	mu       sync.Mutex      // guards the fields below
	sleepers []chan struct{} // in the order of their waits; each has capacity 1
	free     []chan struct{} // for reuse, at most maxFree
}

const maxFree = 64 // bounds the channels that are kept for reuse

// Wait sleeps until ready returns true, or ctx ends; then it returns the error of ctx. ready must not
// wait. O(sleepers).
func (e *EventCount) Wait(ctx context.Context, ready func() bool) error {
	var token chan struct{}
	for {
		token = e.enlist(token)
		if ready() {
			e.leave(token)
			return nil
		}
		select {
		case <-token:
		case <-ctx.Done():
			e.leave(token)
			return ctx.Err()
		}
	}
}

// enlist adds a sleeper at the end, or at the front if it has a token channel already.
func (e *EventCount) enlist(token chan struct{}) chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	at := 0
	if token == nil {
		at = len(e.sleepers)
		if last := len(e.free) - 1; last >= 0 {
			token, e.free = e.free[last], e.free[:last]
		} else {
			token = make(chan struct{}, 1)
		}
	}
	e.sleepers = slices.Insert(e.sleepers, at, token)
	e.asleep.Add(1)
	return token
}

// Notify wakes the first n sleepers. The caller has changed their condition before.
func (e *EventCount) Notify(n int) {
	if e.asleep.Load() == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.wake(n)
}

// wake is Notify. The caller holds mu.
func (e *EventCount) wake(n int) {
	n = min(n, len(e.sleepers))
	for _, token := range e.sleepers[:n] {
		token <- struct{}{}
	}
	e.sleepers = slices.Delete(e.sleepers, 0, n)
	e.asleep.Add(int64(-n))
}

// leave ends the wait of a sleeper.
func (e *EventCount) leave(token chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if at := slices.Index(e.sleepers, token); at >= 0 {
		e.sleepers = slices.Delete(e.sleepers, at, at+1)
		e.asleep.Add(-1)
	} else {
		// Tokens are sent under mu, so the token is here.
		<-token
		e.wake(1)
	}
	if len(e.free) < maxFree {
		e.free = append(e.free, token)
	}
}
