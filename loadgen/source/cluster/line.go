package cluster

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
)

// Breaks tell how often a [Tee] was without its watch, and what became of what
// happened meanwhile.
type Breaks struct {
	Resumed int

	Relisted int

	Added, Modified, Deleted, Unchanged int

	Gap, Longest time.Duration

	Down bool
}

// Found is how many events stand for what was found by comparing.
func (b Breaks) Found() int { return b.Added + b.Modified + b.Deleted }

// line is what a Tee's Reflector lists and watches through. It passes everything on,
// and notes when there is a watch and when there is none. Its methods are safe for
// concurrent use.
//
// That a server takes a watch doesn't mean that it goes on: kube-apiserver says 410
// in the first event of a watch that it has taken. So a watch is not believed until
// it has said something, and counts from its beginning then.
type line struct {
	lw   cache.ListerWatcherWithContext
	list bool

	mu sync.Mutex

	breaks Breaks

	synced, closed bool

	down, again time.Time

	last error
}

func newLine(lw cache.ListerWatcher) *line {
	return &line{lw: cache.ToListerWatcherWithContext(lw), list: watchlist.DoesClientNotSupportWatchListSemantics(lw)}
}

var (
	_ cache.ListerWatcherWithContext = (*line)(nil)
	_ cache.ListerWatcher            = (*line)(nil)
)

// IsWatchListSemanticsUnSupported is how a Reflector asks whether it is to list.
func (l *line) IsWatchListSemanticsUnSupported() bool { return l.list }

func (l *line) List(opts metav1.ListOptions) (runtime.Object, error) {
	return l.ListWithContext(context.Background(), opts)
}

func (l *line) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	list, err := l.lw.ListWithContext(ctx, opts)
	if err != nil {
		l.refused(err)
	}
	return list, err
}

func (l *line) Watch(opts metav1.ListOptions) (watch.Interface, error) {
	return l.WatchWithContext(context.Background(), opts)
}

func (l *line) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	w, err := l.lw.WatchWithContext(ctx, opts)
	if err != nil {
		l.refused(err)
		return nil, err
	}
	if opts.SendInitialEvents == nil || !*opts.SendInitialEvents {
		l.opened()
	}
	return &watching{Interface: w, line: l}, nil
}

// watching is a watch whose end is noted. Whoever reads it stops it when it has
// ended, so that no event has to pass through here.
type watching struct {
	watch.Interface
	line *line
	once sync.Once
}

func (w *watching) Stop() {
	w.Interface.Stop()
	w.once.Do(w.line.ended)
}

func (l *line) opened() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.down.IsZero() {
		l.again = time.Now()
	}
}

// ended notes that a watch has: if it never said anything, there has been none since
// the one before it.
func (l *line) ended() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.again = time.Time{}
	l.lost()
}

func (l *line) refused(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = err
	l.lost()
}

// lost begins a gap, unless there is one. The caller holds mu.
func (l *line) lost() {
	if l.synced && !l.closed && l.down.IsZero() {
		l.down = time.Now()
	}
}

// said notes that the present watch has said something.
func (l *line) said() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.again.IsZero() {
		l.breaks.Resumed++
		l.over(l.again)
	}
}

// listed notes that a list has come: the first one, or what ends a gap. It returns
// false for the first.
func (l *line) listed() (again bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.synced {
		l.synced = true
		return false
	}
	l.breaks.Relisted++
	if !l.down.IsZero() {
		l.over(time.Now())
	}
	return true
}

// over ends the gap at a time. The caller holds mu.
func (l *line) over(at time.Time) {
	gap := at.Sub(l.down)
	l.breaks.Gap += gap
	l.breaks.Longest = max(l.breaks.Longest, gap)
	l.down, l.again = time.Time{}, time.Time{}
}

// found counts what comparing a list with what was known has found.
func (l *line) found(added, modified, deleted, unchanged int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.breaks.Added += added
	l.breaks.Modified += modified
	l.breaks.Deleted += deleted
	l.breaks.Unchanged += unchanged
}

// sofar is what there is to be told now. A watch that stands and has said nothing is
// believed: in a quiet cluster nothing is said.
func (l *line) sofar() Breaks {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.breaks
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

// close: what ends from now on was ended by the Tee itself.
func (l *line) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

func (l *line) lastError() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}
