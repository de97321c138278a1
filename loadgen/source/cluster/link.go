package cluster

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Breaks counts the interruptions of a [Tee]'s watch.
type Breaks struct {
	// Resumed counts watches that resumed at the last version: events arrived late, and none
	// is missing.
	Resumed int
	// Relisted counts lists after a watch could not resume: the version had expired (410 Gone)
	// or the connection failed. Of the changes in the gap, only the differences are known.
	Relisted int
	Changes  // the differences that these lists showed
	// Gap is the total time without a watch: from the end of a watch until the next watch or
	// list, including the Tee's backoff.
	Gap  time.Duration
	Down bool // there is no watch now
}

// Changes counts the objects of lists after a gap. Added, Modified and Deleted become events;
// Unchanged objects do not.
type Changes struct {
	Added, Modified, Deleted, Unchanged int // a recreated object counts as Deleted and Added
}

// Found returns the number of events for these differences.
func (c Changes) Found() int { return c.Added + c.Modified + c.Deleted }

// Version identifies a version of an object.
type Version struct {
	UID             types.UID // distinguishes objects that had the same name
	ResourceVersion string    // of the object
}

// Listed counts an object of a list. exists reports whether the key existed before the gap, in
// version was. It returns the type of the event; empty if unchanged. again reports that the
// object was deleted and recreated: a DELETED then precedes the ADDED.
func (c *Changes) Listed(was Version, exists bool, now Version) (t watch.EventType, again bool) {
	switch {
	case !exists:
		c.Added++
		return watch.Added, false
	case was.UID != now.UID:
		c.Added++
		c.Deleted++
		return watch.Added, true
	case was.ResourceVersion == now.ResourceVersion && now.ResourceVersion != "":
		c.Unchanged++
		return "", false
	default:
		c.Modified++
		return watch.Modified, false
	}
}

// link tracks the watch of a Tee's Reflector. Its methods are safe for concurrent use.
//
// A new watch may still fail: kube-apiserver sends 410 as the first event. So a watch counts
// only after its first event, but then from its start.
type link struct {
	lw cache.ListerWatcherWithContext

	mu             sync.Mutex // guards the fields below
	total          Breaks
	synced, closed bool // synced: the initial list is complete; no gap counts before it
	// down is the start of the present gap; zero while there is a watch. again is the start of
	// a watch that has had no event yet.
	down, again time.Time
	last        error // last error of a list or watch request
}

// track returns a ListerWatcher that forwards all calls to lw, and the link that tracks them.
func track(lw cache.ListerWatcher) (*link, cache.ListerWatcher) {
	l := &link{lw: cache.ToListerWatcherWithContext(lw)}
	return l, cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{ListWithContextFunc: l.list, WatchFuncWithContext: l.watch}, lw)
}

func (l *link) list(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	list, err := l.lw.ListWithContext(ctx, opts)
	if err != nil {
		l.failed(err)
	}
	return list, err
}

func (l *link) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	w, err := l.lw.WatchWithContext(ctx, opts)
	if err != nil {
		l.failed(err)
		return nil, err
	}
	if opts.SendInitialEvents == nil || !*opts.SendInitialEvents {
		l.opened()
	}
	return &notingWatch{Interface: w, link: l}, nil
}

// notingWatch records the end of a watch. A Reflector stops each ended watch, so events need
// not pass through here.
type notingWatch struct {
	watch.Interface
	link *link
	once sync.Once
}

func (w *notingWatch) Stop() {
	w.Interface.Stop()
	w.once.Do(w.link.ended)
}

func (l *link) opened() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.down.IsZero() {
		l.again = time.Now()
	}
}

// ended records the end of a watch. A watch without an event does not end the gap.
func (l *link) ended() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.again = time.Time{}
	l.lost()
}

func (l *link) failed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = err
	l.lost()
}

// lost starts a gap unless there is one. The caller holds mu.
func (l *link) lost() {
	if l.synced && !l.closed && l.down.IsZero() {
		l.down = time.Now()
	}
}

// event records an event of the current watch.
func (l *link) event() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.again.IsZero() {
		l.total.Resumed++
		l.over(l.again)
	}
}

// listed records a list, which ends a gap. It returns false for the first list.
func (l *link) listed() (again bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.synced {
		l.synced = true
		return false
	}
	l.total.Relisted++
	if !l.down.IsZero() {
		l.over(time.Now())
	}
	return true
}

// over ends the gap. The caller holds mu.
func (l *link) over(at time.Time) {
	l.total.Gap += at.Sub(l.down)
	l.down, l.again = time.Time{}, time.Time{}
}

// found adds the differences that a list showed.
func (l *link) found(c Changes) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total.Added += c.Added
	l.total.Modified += c.Modified
	l.total.Deleted += c.Deleted
	l.total.Unchanged += c.Unchanged
}

// breaks returns the counts so far. Here, a watch without an event ends a gap: a quiet cluster
// has no events.
func (l *link) breaks() Breaks {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.total
	if l.down.IsZero() {
		return b
	}
	until := l.again
	if until.IsZero() {
		until, b.Down = time.Now(), true
	} else {
		b.Resumed++
	}
	b.Gap += until.Sub(l.down)
	return b
}

// close ends the tracking: later ends of watches are not gaps.
func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

func (l *link) lastError() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}
