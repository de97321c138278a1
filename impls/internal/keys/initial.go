package keys

import (
	"sync/atomic"

	"k8s.io/client-go/tools/cache"
)

// InitialList says when the initial list has been processed. HasSynced, Done, Name,
// Touch and Claim may be called by anyone; the other methods by one goroutine
// at a time, which owns the contents of the queue.
//
// Its rule is client-go's: the initial list is that of the first Replace, if
// nothing else came before it; otherwise it is empty.
type InitialList struct {
	name string
	done chan struct{}
	// state orders done: it is told only after done has been closed.
	state atomic.Uint32
	left  int
}

const (
	// untouched: nothing came yet.
	untouched = iota
	// listing: what came first is a Replace, whose list is being processed.
	listing
	// synced: the list has been processed, or there is none.
	synced
	// told: and done is closed.
	told
)

var _ cache.DoneChecker = (*InitialList)(nil)

// NewInitialList returns that of a queue of that name.
func NewInitialList(name string) *InitialList {
	return &InitialList{name: name, done: make(chan struct{})}
}

// Name implements [cache.DoneChecker].
func (l *InitialList) Name() string { return l.name }

// Done implements [cache.DoneChecker].
func (l *InitialList) Done() <-chan struct{} { return l.done }

// HasSynced reports whether the initial list has been processed.
func (l *InitialList) HasSynced() bool { return l.state.Load() >= synced }

// Begun reports whether anything came yet.
func (l *InitialList) Begun() bool { return l.state.Load() != untouched }

// Touch notes that something else than Replace came: if it is the first, the
// initial list is empty, and that is so when Touch returns, whoever was the
// first of several that came at once. After the first call it costs one load.
func (l *InitialList) Touch() {
	switch l.state.Load() {
	case listing, told:
		return
	case untouched:
		l.sync(untouched)
	}
	// Another may have been the first, and be about to say so.
	if l.state.Load() == synced {
		<-l.done
	}
}

// Claim notes that a Replace came, and reports whether it is the first of all:
// then Set must follow.
func (l *InitialList) Claim() bool { return l.state.CompareAndSwap(untouched, listing) }

// Set says how long the initial list is.
func (l *InitialList) Set(n int) {
	if l.left = n; n == 0 {
		l.sync(listing)
	}
}

// Left returns how much of the initial list is still to be processed.
func (l *InitialList) Left() int { return l.left }

// Processed notes that n more have been processed. What comes after the
// initial list does not count.
func (l *InitialList) Processed(n int) {
	if l.left > 0 {
		l.Set(max(0, l.left-n))
	}
}

// sync says that the list has been processed, if the state is as given.
func (l *InitialList) sync(from uint32) {
	if l.state.CompareAndSwap(from, synced) {
		close(l.done)
		l.state.Store(told)
	}
}
