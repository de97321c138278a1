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
	"k8s.io/client-go/util/watchlist"
)

// Breaks counts the interruptions of a [Tee]'s watch: those that it resumed, those
// after which it listed again, with the differences that the lists showed, and
// their lengths.
type Breaks struct {
	Resumed  int
	Relisted int
	Changes
	Gap, Longest time.Duration
	// Down is set while there is no watch.
	Down bool
}

// Changes counts the objects of lists that follow a gap: those that differ from the
// state before it, and those that do not.
type Changes struct {
	Added, Modified, Deleted, Unchanged int
}

// Found returns the number of events for the differences.
func (c Changes) Found() int { return c.Added + c.Modified + c.Deleted }

// Version identifies a version of an object.
type Version struct {
	UID             types.UID
	ResourceVersion string
}

// Listed counts an object of a list. exists says that the key existed before the gap,
// in the version was. It returns the type of the event, which is empty for an
// unchanged object. again says that the object was deleted and created again, which
// is a DELETED before the ADDED.
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

// link is the ListerWatcher of a Tee's Reflector. It passes everything on and notes
// when there is a watch. Its methods are safe for concurrent use.
//
// A watch that starts may still fail: kube-apiserver sends 410 as the first event.
// So a watch only counts after its first event, and then from its start.
type link struct {
	lw   cache.ListerWatcherWithContext
	list bool

	mu             sync.Mutex
	total          Breaks
	synced, closed bool
	// The start of the present gap, and of the watch that may end it.
	down, again time.Time
	last        error // the last error of a request
}

func newLink(lw cache.ListerWatcher) *link {
	return &link{lw: cache.ToListerWatcherWithContext(lw), list: watchlist.DoesClientNotSupportWatchListSemantics(lw)}
}

var (
	_ cache.ListerWatcherWithContext = (*link)(nil)
	_ cache.ListerWatcher            = (*link)(nil)
)

// IsWatchListSemanticsUnSupported makes a Reflector list first.
func (l *link) IsWatchListSemanticsUnSupported() bool { return l.list }

func (l *link) List(opts metav1.ListOptions) (runtime.Object, error) {
	return l.ListWithContext(context.Background(), opts)
}

func (l *link) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	list, err := l.lw.ListWithContext(ctx, opts)
	if err != nil {
		l.failed(err)
	}
	return list, err
}

func (l *link) Watch(opts metav1.ListOptions) (watch.Interface, error) {
	return l.WatchWithContext(context.Background(), opts)
}

func (l *link) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
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

// notingWatch notes the end of a watch. A Reflector stops each watch that has ended,
// so events need not pass through here.
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

// ended notes the end of a watch. One without an event does not end a gap.
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

// lost starts a gap, unless there is one. The caller holds mu.
func (l *link) lost() {
	if l.synced && !l.closed && l.down.IsZero() {
		l.down = time.Now()
	}
}

// event notes an event of the present watch.
func (l *link) event() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.again.IsZero() {
		l.total.Resumed++
		l.over(l.again)
	}
}

// listed notes a list, which ends a gap. It returns false for the first one.
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
	gap := at.Sub(l.down)
	l.total.Gap += gap
	l.total.Longest = max(l.total.Longest, gap)
	l.down, l.again = time.Time{}, time.Time{}
}

// found adds the changes that a list showed.
func (l *link) found(c Changes) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total.Added += c.Added
	l.total.Modified += c.Modified
	l.total.Deleted += c.Deleted
	l.total.Unchanged += c.Unchanged
}

// breaks returns the counts up to now. Here a watch without an event ends a gap: a
// quiet cluster has no events.
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
	b.Longest = max(b.Longest, until.Sub(l.down))
	return b
}

// close makes the ends of watches from now on no gaps.
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
