package stream

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// Tide is a position that only rises, and the followers that are woken when
// it does. The zero value is at position 0. Its methods are safe for concurrent
// use.
//
// A rise costs next to nothing while nobody waits for it: followers that are
// busy look for themselves, and only those that are asleep are woken. So a
// follower that falls behind is woken less often, not more, and takes more at
// once.
type Tide struct {
	visible atomic.Uint64

	asleep atomic.Int32

	followers atomic.Pointer[[]*Follower]

	blocked atomic.Bool
	room    chan struct{}

	mu sync.Mutex
}

// Visible returns the position.
func (t *Tide) Visible() uint64 { return t.visible.Load() }

// Raise lifts the position, if it is lower, and wakes the followers that wait
// for that. It never blocks. O(1) where none of them waits, else O(followers).
func (t *Tide) Raise(to uint64) {
	for {
		have := t.visible.Load()
		if have >= to {
			return
		}
		if t.visible.CompareAndSwap(have, to) {
			break
		}
	}
	// A follower says that it sleeps and then looks at visible once more; here
	// it is the other way round. So one of the two sees the other.
	if t.asleep.Load() == 0 {
		return
	}
	for _, f := range t.all() {
		if f.asleep.Load() && f.asleep.CompareAndSwap(true, false) {
			t.asleep.Add(-1)
			notify(f.wake)
		}
	}
}

func (t *Tide) all() []*Follower {
	if p := t.followers.Load(); p != nil {
		return *p
	}
	return nil
}

// Follow adds a follower that has seen everything up to position at.
func (t *Tide) Follow(at uint64) *Follower {
	f := &Follower{tide: t, wake: make(chan struct{}, 1)}
	f.seen.Store(at)
	t.mu.Lock()
	next := append(slices.Clone(t.all()), f)
	t.followers.Store(&next)
	t.mu.Unlock()
	t.signalRoom()
	return f
}

// WaitRoom returns when somebody follows and no follower is window events or
// more behind what is visible, or with ctx's error. For one goroutine.
func (t *Tide) WaitRoom(ctx context.Context, window uint64) error {
	if t.hasRoom(window) {
		return nil
	}
	room := t.roomChannel()
	for !t.hasRoom(window) {
		t.blocked.Store(true)
		if t.hasRoom(window) {
			t.blocked.Store(false)
			return nil
		}
		select {
		case <-room:
		case <-ctx.Done():
			t.blocked.Store(false)
			return ctx.Err()
		}
	}
	return nil
}

// roomChannel returns the channel that wakes WaitRoom, making it at first use.
// Whoever sees blocked set sees it.
func (t *Tide) roomChannel() chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.room == nil {
		t.room = make(chan struct{}, 1)
	}
	return t.room
}

func (t *Tide) hasRoom(window uint64) bool {
	followers := t.all()
	visible := t.visible.Load()
	for _, f := range followers {
		// A follower that started at a later position than this one has seen
		// may be ahead.
		if seen := f.seen.Load(); visible > seen && visible-seen >= window {
			return false
		}
	}
	return len(followers) > 0
}

func (t *Tide) signalRoom() {
	if t.blocked.Load() && t.blocked.CompareAndSwap(true, false) {
		notify(t.room)
	}
}

// Follower is one watch's place in a [Tide]. It is for one goroutine.
type Follower struct {
	tide *Tide

	wake   chan struct{}
	asleep atomic.Bool

	seen atomic.Uint64
}

// Poll returns the position up to which events are visible. Where that is not
// beyond what the follower has seen, it has made sure that [Follower.Wake]
// gets a token as soon as there is more.
func (f *Follower) Poll() uint64 {
	seen := f.seen.Load()
	if v := f.tide.visible.Load(); v > seen {
		return v
	}
	if f.asleep.CompareAndSwap(false, true) {
		f.tide.asleep.Add(1)
	}
	v := f.tide.visible.Load()
	if v > seen {
		f.rouse()
	}
	return v
}

// rouse takes back that the follower is asleep.
func (f *Follower) rouse() {
	if f.asleep.CompareAndSwap(true, false) {
		f.tide.asleep.Add(-1)
	}
}

// Wake has a token when it is time to Poll again.
func (f *Follower) Wake() <-chan struct{} { return f.wake }

// Seen notes that the follower has passed on everything up to position at. The
// window is WaitRoom's; 0 where nobody calls that.
func (f *Follower) Seen(at, window uint64) {
	f.seen.Store(at)
	// Whoever waits for room is woken at half the window, so that the two
	// don't take turns at every event.
	if f.tide.blocked.Load() && f.tide.visible.Load() <= at+window/2 {
		f.tide.signalRoom()
	}
}

// Close takes the follower out.
func (f *Follower) Close() {
	t := f.tide
	t.mu.Lock()
	next := slices.DeleteFunc(slices.Clone(t.all()), func(o *Follower) bool { return o == f })
	t.followers.Store(&next)
	t.mu.Unlock()
	f.rouse()
	t.signalRoom()
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
