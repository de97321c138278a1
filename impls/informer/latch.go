package informer

import "sync"

// latch is a mutex and a condition variable on which one goroutine, the
// consumer, waits. A producer signals only when the consumer waits, once for each
// wait, and after it has released the lock, on which the consumer would block
// otherwise. The zero value is ready.
type latch struct {
	sync.Mutex
	// The mutex guards the fields below. cond is where the consumer waits;
	// waiting is true while it waits and nobody has signalled.
	cond            sync.Cond
	waiting, closed bool
}

// UnlockAndWake releases the lock and wakes the consumer if it waits.
func (l *latch) UnlockAndWake() {
	wake := l.waiting
	l.waiting = false
	l.Unlock()
	if wake {
		l.cond.Signal()
	}
}

// Wait releases the lock, waits for UnlockAndWake or Close, and takes the lock
// again. The caller holds the lock.
func (l *latch) Wait() {
	if l.cond.L == nil {
		l.cond.L = &l.Mutex
	}
	l.waiting = true
	l.cond.Wait()
}

// Close sets closed and wakes the consumer.
func (l *latch) Close() {
	l.Lock()
	l.closed = true
	l.UnlockAndWake()
}
