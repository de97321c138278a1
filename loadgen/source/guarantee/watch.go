package guarantee

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// Watch is one watch of the client.
type Watch struct {
	c         *Checker
	request   int
	opts      metav1.ListOptions
	begun, at uint64
	first     bool
	missing   map[uint64]bool
	initial   *state
	marked    bool
	unmarked  []watch.Event
}

// Watch takes a watch request that was accepted. Its events go to what it
// returns, in order.
func (c *Checker) Watch(opts metav1.ListOptions) *Watch {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests++
	c.stats.Watches++
	w := &Watch{c: c, request: c.requests, opts: opts, first: true}
	version, err := strconv.ParseUint(opts.ResourceVersion, 10, 64)
	switch {
	case opts.SendInitialEvents != nil && *opts.SendInitialEvents:
		w.initial, w.marked = &state{}, opts.AllowWatchBookmarks
	case err == nil && version > 0:
		w.begun, w.at = version, version
		if version > c.at {
			c.broken(ErrResumable, w.request, "the client goes on from version %d, it has seen up to %d", version, c.at)
		}
	case opts.SendInitialEvents == nil:
		w.initial = &state{}
	default:
		// From now on, whenever that is: the first event tells.
		w.begun, w.at = ^uint64(0), ^uint64(0)
	}
	return w
}

// Event takes the next event.
func (w *Watch) Event(e watch.Event) {
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

// add takes an event of the initial state. Guarded by the checker's mu.
func (w *Watch) add(e watch.Event) {
	if e.Type != watch.Added {
		w.c.broken(ErrAtomic, w.request, "%s in the initial state", e.Type)
		return
	}
	w.initial.add(w.c, w.request, e.Object)
}

// settle says that the events that came are the state of some version and then
// all up to another: as many as possible are taken for events. Guarded by the
// checker's mu.
func (w *Watch) settle(upTo uint64) {
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

// ends says that the initial state is over, and that of a version. Guarded by
// the checker's mu.
func (w *Watch) ends(version uint64) {
	w.initial.compare(w.c, w.request, version)
	w.c.notOlder(w.request, w.opts, version)
	w.initial = nil
	w.begun, w.at = version, version
	w.c.reach(version)
}

// event takes an event that isn't part of the initial state. Guarded by the
// checker's mu.
func (w *Watch) event(e watch.Event) {
	c := w.c
	s, ok := c.whole(w.request, e.Type, e.Object)
	if !ok {
		return
	}
	if w.at == ^uint64(0) {
		w.begun, w.at = s.version-1, s.version-1
	}
	switch {
	case s.version == w.at+1:
	case s.version > w.at+1 && w.first:
		c.broken(ErrResumable, w.request, "a watch from version %d begins with %d (%s %s): events %d to %d are missing",
			w.at, s.version, e.Type, s.key, w.at+1, s.version-1)
		w.skip(s.version)
	case s.version > w.at+1:
		c.broken(ErrReliable, w.request, "%d (%s %s) follows %d: events %d to %d are missing",
			s.version, e.Type, s.key, w.at, w.at+1, s.version-1)
		w.skip(s.version)
	case s.version <= w.begun:
		c.broken(ErrOrdered, w.request, "%d (%s %s) in a watch from version %d", s.version, e.Type, s.key, w.begun)
		return
	case w.missing[s.version]:
		delete(w.missing, s.version)
		c.broken(ErrOrdered, w.request, "%d (%s %s) after %d", s.version, e.Type, s.key, w.at)
		return
	default:
		// All others between the beginning and here have come.
		c.broken(ErrUnique, w.request, "%d (%s %s) came already; the last was %d", s.version, e.Type, s.key, w.at)
		return
	}
	w.first = false
	w.at = s.version
	// A client that resumed from further back has to get there again first.
	c.reach(w.at)
}

// skip notes that the events before a version have not come. Guarded by the
// checker's mu.
func (w *Watch) skip(version uint64) {
	if w.missing == nil {
		w.missing = map[uint64]bool{}
	}
	for v := w.at + 1; v < version; v++ {
		w.missing[v] = true
	}
}

// bookmark takes a bookmark. Guarded by the checker's mu.
func (w *Watch) bookmark(o runtime.Object) {
	c := w.c
	m, ok := o.(metav1.Object)
	if !ok {
		c.broken(ErrBookmarkable, w.request, "a bookmark that is a %T", o)
		return
	}
	version, err := strconv.ParseUint(m.GetResourceVersion(), 10, 64)
	if err != nil {
		c.broken(ErrBookmarkable, w.request, "a bookmark of the version %q", m.GetResourceVersion())
		return
	}
	if w.initial != nil {
		if w.marked && m.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
			c.broken(ErrBookmarkable, w.request, "a bookmark of version %d in the initial state", version)
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
		w.begun, w.at = version, version
		c.reach(version)
		return
	}
	switch {
	case version > w.at:
		c.broken(ErrBookmarkable, w.request, "a bookmark of version %d, events %d to %d have not come", version, w.at+1, version)
		// The client goes on from there, and can't know better.
		w.at = version
		c.reach(version)
	case version < w.at:
		c.broken(ErrBookmarkable, w.request, "a bookmark of version %d, but %d has come", version, w.at)
	}
}
