package informer

import (
	"slices"
	"sync"
	"time"
)

// distributor passes notifications to the handlers of an informer, as upstream's
// sharedProcessor does.
type distributor struct {
	wg sync.WaitGroup // counts the goroutines of the listeners

	// mu guards the fields below and the resync fields of the listeners. It is taken before the lock
	// of a listener, and never held while a handler runs.
	mu        sync.Mutex
	running   bool        // between start and stop
	listeners []*listener // in the order of registration
}

func (d *distributor) start() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running = true
	for _, l := range d.listeners {
		d.wg.Go(l.run)
	}
}

// stop stops all listeners and waits for handlers that run. Notifications that are
// still queued are dropped.
func (d *distributor) stop() {
	d.mu.Lock()
	for _, l := range d.listeners {
		d.dismiss(l)
	}
	d.listeners, d.running = nil, false
	d.mu.Unlock()
	// The informer is stopped: no listener is added any more.
	d.wg.Wait()
}

func (d *distributor) add(l *listener) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.listeners = append(d.listeners, l)
	if d.running {
		d.wg.Go(l.run)
	}
}

// remove removes a listener, if it is there. O(listeners).
func (d *distributor) remove(l *listener) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.Index(d.listeners, l); i >= 0 {
		d.listeners = slices.Delete(d.listeners, i, i+1)
		d.dismiss(l)
	}
}

// dismiss stops a listener. The caller holds mu.
func (d *distributor) dismiss(l *listener) {
	l.stop()
	if !d.running {
		// There is no goroutine that closes it.
		close(l.finished)
	}
}

func (d *distributor) backlogs() []Backlog {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]Backlog, len(d.listeners))
	for i, l := range d.listeners {
		all[i] = Backlog{Handler: l.tracker.Name(), Waiting: l.waiting()}
	}
	return all
}

// distribute queues notices for each listener, in their order. It does not wait for handlers.
func (d *distributor) distribute(notices []notice) {
	if len(notices) == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.listeners {
		l.add(notices)
	}
}

// upstreamHasSynced is called when the whole initial list has been distributed.
func (d *distributor) upstreamHasSynced() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.listeners {
		l.tracker.UpstreamHasSynced()
	}
}

// shouldResync decides which listeners get the next resync, and reports whether
// there are any. The Reflector calls it at each of its resync checks.
func (d *distributor) shouldResync() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	due := false
	for _, l := range d.listeners {
		l.resyncing = l.resyncPeriod > 0 && !now.Before(l.nextResync)
		if l.resyncing {
			l.nextResync = now.Add(l.resyncPeriod)
			due = true
		}
	}
	return due
}
