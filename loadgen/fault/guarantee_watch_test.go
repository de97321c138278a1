package fault_test

import (
	"context"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// watchChecker observes one watch of the client.
type watchChecker struct {
	c       *checker
	request int
	opts    metav1.ListOptions
	// from is the version before the first expected event; at is the version of the
	// last received event.
	from, at uint64
	// first: no event has come after the initial state.
	first bool
	// missing are omitted versions, which may still come late.
	missing map[uint64]bool
	// initial is the initial state until it is complete; nil for none.
	initial *partialState
	// marked: a bookmark ends the initial state.
	marked bool
	// unmarked are ADDED events without an end bookmark. The next event of another
	// type shows which of them belong to the initial state.
	unmarked []watch.Event
}

// Watch observes an accepted watch request. The caller passes its events to the result, in order.
func (c *checker) Watch(opts metav1.ListOptions) *watchChecker {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests++
	c.stats.Watches++
	w := &watchChecker{c: c, request: c.requests, opts: opts, first: true}
	version, err := strconv.ParseUint(opts.ResourceVersion, 10, 64)
	switch {
	case opts.SendInitialEvents != nil && *opts.SendInitialEvents:
		w.initial, w.marked = &partialState{}, opts.AllowWatchBookmarks
	case err == nil && version > 0:
		w.from, w.at = version, version
		if version > c.at {
			c.broken(errResumable, w.request, "the client goes on from version %d, it has seen up to %d", version, c.at)
		}
	case opts.SendInitialEvents == nil:
		w.initial = &partialState{}
	default:
		// From the current version; the first event shows it.
		w.from, w.at = ^uint64(0), ^uint64(0)
	}
	return w
}

// Event observes the next event.
func (w *watchChecker) Event(e watch.Event) {
	c := w.c
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e.Type {
	case watch.Error:
		c.stats.Errors++
		return
	case watch.Bookmark:
		c.stats.Bookmarks++
		w.bookmark(e.Object)
		return
	}
	c.stats.Events++
	switch {
	case w.initial == nil:
		w.event(e)
	case w.marked:
		w.add(e)
	case e.Type == watch.Added:
		w.unmarked = append(w.unmarked, e)
	default:
		w.settle(func() uint64 {
			if s, err := c.look(e.Object); err == nil {
				return s.version - 1
			}
			return 0
		}())
		w.event(e)
	}
}

// add observes an event of the initial state. The caller holds the checker's mu.
func (w *watchChecker) add(e watch.Event) {
	if e.Type != watch.Added {
		w.c.broken(errAtomic, w.request, "%s in the initial state", e.Type)
		return
	}
	w.initial.add(w.c, w.request, e.Object)
}

// settle splits the received ADDED events into an initial state and events up to a
// version; as many as possible count as events. The caller holds the checker's mu.
func (w *watchChecker) settle(upTo uint64) {
	c, all := w.c, w.unmarked
	w.unmarked = nil
	n := len(all)
	for at := upTo; n > 0; n, at = n-1, at-1 {
		s, err := c.look(all[n-1].Object)
		if err != nil || s.version != at || s.event == nil || s.event.Type != watch.Added {
			break
		}
	}
	for _, e := range all[:n] {
		w.initial.add(c, w.request, e.Object)
	}
	w.ends(upTo - uint64(len(all)-n))
	for _, e := range all[n:] {
		w.event(e)
	}
}

// ends ends the initial state, which is that of a version. The caller holds the checker's mu.
func (w *watchChecker) ends(version uint64) {
	w.initial.compare(w.c, w.request, version)
	w.c.notOlder(w.request, w.opts, version)
	w.initial = nil
	w.from, w.at = version, version
	w.c.reach(version)
}

// event observes an event after the initial state. The caller holds the checker's mu.
func (w *watchChecker) event(e watch.Event) {
	c := w.c
	s, ok := c.whole(w.request, e.Type, e.Object)
	if !ok {
		return
	}
	if w.at == ^uint64(0) {
		w.from, w.at = s.version-1, s.version-1
	}
	switch {
	case s.version == w.at+1:
	case s.version > w.at+1 && w.first:
		c.broken(errResumable, w.request, "a watch from version %d begins with %d (%s %s): events %d to %d are missing",
			w.at, s.version, e.Type, s.key, w.at+1, s.version-1)
		w.skip(s.version)
	case s.version > w.at+1:
		c.broken(errReliable, w.request, "%d (%s %s) follows %d: events %d to %d are missing",
			s.version, e.Type, s.key, w.at, w.at+1, s.version-1)
		w.skip(s.version)
	case s.version <= w.from:
		c.broken(errOrdered, w.request, "%d (%s %s) in a watch from version %d", s.version, e.Type, s.key, w.from)
		return
	case w.missing[s.version]:
		delete(w.missing, s.version)
		c.broken(errOrdered, w.request, "%d (%s %s) after %d", s.version, e.Type, s.key, w.at)
		return
	default:
		// All other versions up to here were received.
		c.broken(errUnique, w.request, "%d (%s %s) came already; the last was %d", s.version, e.Type, s.key, w.at)
		return
	}
	w.first = false
	w.at = s.version
	// After a resume, the client's version may be lower than before.
	c.reach(w.at)
}

// skip records the events before a version as missing. The caller holds the checker's mu.
func (w *watchChecker) skip(version uint64) {
	if w.missing == nil {
		w.missing = map[uint64]bool{}
	}
	for v := w.at + 1; v < version; v++ {
		w.missing[v] = true
	}
}

// bookmark observes a bookmark. The caller holds the checker's mu.
func (w *watchChecker) bookmark(o runtime.Object) {
	c := w.c
	m, ok := o.(metav1.Object)
	if !ok {
		c.broken(errBookmarkable, w.request, "a bookmark that is a %T", o)
		return
	}
	version, err := strconv.ParseUint(m.GetResourceVersion(), 10, 64)
	if err != nil {
		c.broken(errBookmarkable, w.request, "a bookmark of the version %q", m.GetResourceVersion())
		return
	}
	if w.initial != nil {
		if w.marked && m.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
			c.broken(errBookmarkable, w.request, "a bookmark of version %d in the initial state", version)
			return
		}
		if w.marked {
			w.ends(version)
		} else {
			w.settle(version)
		}
		return
	}
	if w.at == ^uint64(0) {
		w.from, w.at = version, version
		c.reach(version)
		return
	}
	switch {
	case version > w.at:
		c.broken(errBookmarkable, w.request, "a bookmark of version %d, events %d to %d have not come", version, w.at+1, version)
		// The client resumes from there.
		w.at = version
		c.reach(version)
	case version < w.at:
		c.broken(errBookmarkable, w.request, "a bookmark of version %d, but %d has come", version, w.at)
	}
}

// Wrap returns a ListerWatcher for one client that reports to the checker.
func (c *checker) Wrap(lw cache.ListerWatcher) cache.ListerWatcher {
	return &checkedListerWatcher{c: c, inner: lw, lw: cache.ToListerWatcherWithContext(lw)}
}

type checkedListerWatcher struct {
	c     *checker
	inner cache.ListerWatcher
	lw    cache.ListerWatcherWithContext
}

var _ cache.ListerWatcherWithContext = (*checkedListerWatcher)(nil)

// IsWatchListSemanticsUnSupported forwards client-go's query.
func (w *checkedListerWatcher) IsWatchListSemanticsUnSupported() bool {
	u, ok := w.inner.(interface{ IsWatchListSemanticsUnSupported() bool })
	return ok && u.IsWatchListSemanticsUnSupported()
}

func (w *checkedListerWatcher) List(opts metav1.ListOptions) (runtime.Object, error) {
	return w.ListWithContext(context.Background(), opts)
}

func (w *checkedListerWatcher) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	list, err := w.lw.ListWithContext(ctx, opts)
	if err == nil {
		w.c.List(opts, list)
	}
	return list, err
}

func (w *checkedListerWatcher) Watch(opts metav1.ListOptions) (watch.Interface, error) {
	return w.WatchWithContext(context.Background(), opts)
}

func (w *checkedListerWatcher) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	in, err := w.lw.WatchWithContext(ctx, opts)
	if err != nil {
		return nil, err
	}
	t := &checkedWatch{Interface: in, out: make(chan watch.Event), stop: make(chan struct{})}
	go t.run(w.c.Watch(opts))
	return t, nil
}

// checkedWatch forwards the events of a watch.
type checkedWatch struct {
	watch.Interface
	out chan watch.Event
	// stop is closed by Stop.
	stop chan struct{}
	once sync.Once
}

// run forwards events until the client stops.
func (t *checkedWatch) run(w *watchChecker) {
	defer close(t.out)
	for e := range t.Interface.ResultChan() {
		select {
		case <-t.stop:
			continue // drain the inner watch
		default:
		}
		w.Event(e)
		select {
		case t.out <- e:
		case <-t.stop:
		}
	}
}

func (t *checkedWatch) ResultChan() <-chan watch.Event { return t.out }

func (t *checkedWatch) Stop() {
	t.once.Do(func() {
		close(t.stop)
		t.Interface.Stop()
	})
}
