package keys

import (
	"sync/atomic"

	"k8s.io/client-go/tools/cache"
)

// InitialList reports whether the initial list has been processed. HasSynced,
// Done, Name, Touch and Claim are safe for concurrent use. One goroutine at a
// time, the owner of the queue's contents, may call the other methods.
//
// The rule is client-go's: the initial list is that of the first Replace if no
// other call came before it; otherwise it is empty.
type InitialList struct {
	name  string
	done  chan struct{}
	state atomic.Uint32 // stored as told only after done is closed
	left  int
}

const (
	untouched = iota // no call yet
	listing          // the first call is a Replace, whose list is in process
	synced           // the list has been processed or is empty
	told             // done is closed too
)

var _ cache.DoneChecker = (*InitialList)(nil)

// NewInitialList returns the initial list of the named queue.
func NewInitialList(name string) *InitialList {
	return &InitialList{name: name, done: make(chan struct{})}
}

// Name implements [cache.DoneChecker].
func (l *InitialList) Name() string { return l.name }

// Done implements [cache.DoneChecker].
func (l *InitialList) Done() <-chan struct{} { return l.done }

// HasSynced reports whether the initial list has been processed.
func (l *InitialList) HasSynced() bool { return l.state.Load() >= synced }

// Begun reports whether there was a call yet.
func (l *InitialList) Begun() bool { return l.state.Load() != untouched }

// Touch records a call other than Replace. If it is the first call, the initial
// list is empty. This holds when any of several concurrent first calls returns.
// After the first call Touch costs one load.
func (l *InitialList) Touch() {
	switch l.state.Load() {
	case listing, told:
		return
	case untouched:
		l.sync(untouched)
	}
	// A concurrent first call may not have closed done yet.
	if l.state.Load() == synced {
		<-l.done
	}
}

// Claim records a Replace and reports whether it is the first call. Then Set must follow.
func (l *InitialList) Claim() bool { return l.state.CompareAndSwap(untouched, listing) }

// Set sets the length of the initial list, in items.
func (l *InitialList) Set(n int) {
	if l.left = n; n == 0 {
		l.sync(listing)
	}
}

// Left returns the number of unprocessed items of the initial list.
func (l *InitialList) Left() int { return l.left }

// Processed records n processed items. Items after the initial list are ignored.
func (l *InitialList) Processed(n int) {
	if l.left > 0 {
		l.Set(max(0, l.left-n))
	}
}

// sync marks the list as processed if the state is from.
func (l *InitialList) sync(from uint32) {
	if l.state.CompareAndSwap(from, synced) {
		close(l.done)
		l.state.Store(told)
	}
}
