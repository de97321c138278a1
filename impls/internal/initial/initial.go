// Package initial keeps the account of a queue's initial list: when it is
// known, and when it has been processed.
package initial

import (
	"sync/atomic"

	"k8s.io/client-go/tools/cache"
)

// List says when the initial list has been processed. HasSynced, Done and Name
// may be called by anyone; the other methods by one goroutine at a time, as
// under the lock of the queue that owns the list.
//
// Its rule is client-go's: the initial list is that of the first Replace, if
// nothing else came before it; otherwise it is empty.
type List struct {
	name string
	done chan struct{}
	// synced is set, once, before done is closed.
	synced atomic.Bool
	// populated: the initial list is known.
	populated bool
	// left is how much of it is still to be processed.
	left int
}

var _ cache.DoneChecker = (*List)(nil)

// New returns the account of a queue of that name.
func New(name string) *List { return &List{name: name, done: make(chan struct{})} }

// Name implements [cache.DoneChecker].
func (l *List) Name() string { return l.name }

// Done implements [cache.DoneChecker].
func (l *List) Done() <-chan struct{} { return l.done }

// HasSynced reports whether the initial list has been processed.
func (l *List) HasSynced() bool { return l.synced.Load() }

// Populated reports whether the initial list is known.
func (l *List) Populated() bool { return l.populated }

// Touch notes that something else than Replace came: if it is the first, the
// initial list is empty.
func (l *List) Touch() {
	if !l.populated {
		l.Set(0)
	}
}

// Set says how long the initial list is.
func (l *List) Set(n int) {
	l.populated, l.left = true, n
	l.check()
}

// Left returns how much of the initial list is still to be processed.
func (l *List) Left() int { return l.left }

// Processed notes that n more have been processed. What comes after the
// initial list does not count.
func (l *List) Processed(n int) {
	if l.left > 0 {
		l.left = max(0, l.left-n)
		l.check()
	}
}

func (l *List) check() {
	if l.populated && l.left == 0 && !l.synced.Load() {
		l.synced.Store(true)
		close(l.done)
	}
}
