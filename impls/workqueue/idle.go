package workqueue

import (
	"sync"
	"sync/atomic"
)

// idle is where the workers of a queue sleep, and where ShutDownWithDrain waits. Its lock is taken
// before the locks of the queue, and never while one of them is held.
//
// An Add wakes at most one worker, and none while another one is waking up. A worker that was
// asleep wakes the next one, if it leaves items behind. So a burst of Adds pays for one wake-up.
//
// # Why no wake-up is missed
//
// A worker sets wanted and then looks whether the queue is ready. An Add makes the queue ready and
// then looks at wanted. In the total order of Go's atomics one of the two sees the other, unless
// wanted is false because another worker is waking up. That one looks at the queue later, and wakes
// the next one.
type idle struct {
	wanted       atomic.Bool // a worker sleeps and none is waking up; written under mu
	shuttingDown atomic.Bool // written under mu

	// Constant. ready reports whether a Get would find an item; busy, whether any is in process.
	ready, busy func() bool

	mu      sync.Mutex // guards the fields below
	arrival sync.Cond  // where workers sleep
	asleep  int        // counts them, without those that were signalled
	waking  bool       // a worker was signalled and did not run yet
	drained sync.Cond  // where ShutDownWithDrain waits
	drain   bool       // a ShutDownWithDrain was not followed by a ShutDown
}

func (w *idle) init(ready, busy func() bool) {
	w.ready, w.busy = ready, busy
	w.arrival.L, w.drained.L = &w.mu, &w.mu
}

// sleep returns true when the queue may be ready, or false when it is shut down and empty. slept says
// that the caller must call wake if it leaves items behind.
func (w *idle) sleep() (slept, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wanted.Store(!w.waking)
	switch {
	case w.ready():
		ok = true
	case w.shuttingDown.Load():
	default:
		w.asleep++
		w.arrival.Wait()
		slept, ok = true, true
		w.waking = false
	}
	w.wanted.Store(w.asleep > 0 && !w.waking)
	return slept, ok
}

// wake wakes a worker for a queued item.
func (w *idle) wake() {
	if w.wanted.Load() {
		w.wakeOne()
	}
}

func (w *idle) wakeOne() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asleep > 0 && !w.waking {
		w.asleep--
		w.waking = true
		w.wanted.Store(false)
		w.arrival.Signal()
	}
}

// shutDown is called when no Add can follow.
func (w *idle) shutDown(drain bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shuttingDown.Store(true)
	w.drain = drain
	w.asleep, w.waking = 0, false
	w.wanted.Store(false)
	w.arrival.Broadcast()
	w.drained.Broadcast()
	for w.drain && w.busy() {
		w.drained.Wait()
	}
}

// ended is called after each Done that sees shuttingDown.
func (w *idle) ended() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drained.Broadcast()
}
