package informer

import (
	"slices"
	"sync"
	"time"
)

// audience is the handlers of an informer.
type audience struct {
	tellers sync.WaitGroup

	mu sync.Mutex

	running bool

	listeners []*listener
}

// start calls handlers from now on.
func (a *audience) start() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running = true
	for _, l := range a.listeners {
		a.tellers.Go(l.run)
	}
}

// stop ends all handlers' listeners and waits for those that are being called.
// What they have not been told is dropped.
func (a *audience) stop() {
	a.mu.Lock()
	for _, l := range a.listeners {
		a.dismiss(l)
	}
	a.listeners, a.running = nil, false
	a.mu.Unlock()
	// Nobody joins any more: the informer is stopped.
	a.tellers.Wait()
}

// join adds a listener.
func (a *audience) join(l *listener) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listeners = append(a.listeners, l)
	if a.running {
		a.tellers.Go(l.run)
	}
}

// leave removes a listener; one that isn't there doesn't matter. O(listeners).
func (a *audience) leave(l *listener) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := slices.Index(a.listeners, l); i >= 0 {
		a.listeners = slices.Delete(a.listeners, i, i+1)
		a.dismiss(l)
	}
}

// dismiss stops a listener. The caller holds mu.
func (a *audience) dismiss(l *listener) {
	l.stop()
	if !a.running {
		// No goroutine will say so.
		close(l.finished)
	}
}

// tell passes notices on, in their order. It doesn't wait for any handler.
func (a *audience) tell(notices []notice) {
	if len(notices) == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.listeners {
		l.add(notices, l.resyncing)
	}
}

// upstreamHasSynced says that all of the initial list has been told.
func (a *audience) upstreamHasSynced() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.listeners {
		l.tracker.UpstreamHasSynced()
	}
}

// shouldResync decides which listeners get the next resync, and reports whether
// there are any. The Reflector calls it at each of its resync checks.
func (a *audience) shouldResync() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	due := false
	for _, l := range a.listeners {
		l.resyncing = l.resyncPeriod > 0 && !now.Before(l.nextResync)
		if l.resyncing {
			l.nextResync = now.Add(l.resyncPeriod)
			due = true
		}
	}
	return due
}
