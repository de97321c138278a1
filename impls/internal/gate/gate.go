// Package gate is the lock of a queue, with a place for its consumer to wait.
package gate

import "sync"

// Gate is a mutex and a condition variable on which one goroutine at a time
// waits. What sets it apart from the two is that a producer signals only when
// the consumer waits, once for each wait, and after it has released the lock,
// into which the consumer would run at once otherwise. The zero value is open
// and unlocked.
type Gate struct {
	mu   sync.Mutex
	cond sync.Cond

	waiting bool

	closed bool
}

// Lock takes the lock.
func (g *Gate) Lock() { g.mu.Lock() }

// Unlock releases the lock. There is nothing new for the consumer.
func (g *Gate) Unlock() { g.mu.Unlock() }

// UnlockAndWake releases the lock and wakes the consumer if it waits: there is
// something to take.
func (g *Gate) UnlockAndWake() {
	wake := g.waiting
	g.waiting = false
	g.mu.Unlock()
	if wake {
		g.cond.Signal()
	}
}

// Wait releases the lock, waits for UnlockAndWake or Close, and takes the lock
// again. Only one goroutine may wait. The caller holds the lock.
func (g *Gate) Wait() {
	if g.cond.L == nil {
		g.cond.L = &g.mu
	}
	g.waiting = true
	g.cond.Wait()
}

// Closed reports whether Close was called. The caller holds the lock.
func (g *Gate) Closed() bool { return g.closed }

// IsClosed reports whether Close was called.
func (g *Gate) IsClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// Close marks the gate closed and wakes the consumer.
func (g *Gate) Close() {
	g.mu.Lock()
	g.closed = true
	g.UnlockAndWake()
}
