package stream

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// Position is a position that only rises, with followers that wake up when it
// does. The zero value is at position 0. Its methods are safe for concurrent use.
//
// A rise is cheap while no follower waits: busy followers look for themselves, and
// only those that sleep are woken. So a follower that falls behind is woken less
// often and takes more at once.
type Position struct {
	visible   atomic.Uint64
	asleep    atomic.Int32
	followers atomic.Pointer[[]*Follower]

	// blocked is set while WaitRoom waits on room.
	blocked atomic.Bool

	mu   sync.Mutex
	room chan struct{}
}

// Visible returns the position.
func (p *Position) Visible() uint64 { return p.visible.Load() }

// Raise raises the position, if it is lower, and wakes the followers that wait. It
// never blocks. O(1) where no follower waits, else O(followers).
func (p *Position) Raise(to uint64) {
	for {
		have := p.visible.Load()
		if have >= to {
			return
		}
		if p.visible.CompareAndSwap(have, to) {
			break
		}
	}
	// A follower sets asleep and then reads visible again; here the order is
	// reversed. So one of the two sees the other.
	if p.asleep.Load() == 0 {
		return
	}
	for _, f := range p.all() {
		if f.asleep.Load() && f.asleep.CompareAndSwap(true, false) {
			p.asleep.Add(-1)
			notify(f.wake)
		}
	}
}

func (p *Position) all() []*Follower {
	if all := p.followers.Load(); all != nil {
		return *all
	}
	return nil
}

// Follow adds a follower that has seen everything up to position at.
func (p *Position) Follow(at uint64) *Follower {
	f := &Follower{position: p, wake: make(chan struct{}, 1)}
	f.seen.Store(at)
	p.mu.Lock()
	next := append(slices.Clone(p.all()), f)
	p.followers.Store(&next)
	p.mu.Unlock()
	p.signalRoom()
	return f
}

// WaitRoom returns when there is a follower and none is window events or more
// behind, or with ctx's error. For one goroutine.
func (p *Position) WaitRoom(ctx context.Context, window uint64) error {
	if p.hasRoom(window) {
		return nil
	}
	p.mu.Lock()
	if p.room == nil {
		p.room = make(chan struct{}, 1)
	}
	room := p.room // A goroutine that sees blocked set sees it.
	p.mu.Unlock()
	for !p.hasRoom(window) {
		p.blocked.Store(true)
		if p.hasRoom(window) {
			p.blocked.Store(false)
			return nil
		}
		select {
		case <-room:
		case <-ctx.Done():
			p.blocked.Store(false)
			return ctx.Err()
		}
	}
	return nil
}

func (p *Position) hasRoom(window uint64) bool {
	followers := p.all()
	visible := p.visible.Load()
	for _, f := range followers {
		// A follower may be ahead of the position that was read here.
		if seen := f.seen.Load(); visible > seen && visible-seen >= window {
			return false
		}
	}
	return len(followers) > 0
}

func (p *Position) signalRoom() {
	if p.blocked.Load() && p.blocked.CompareAndSwap(true, false) {
		notify(p.room)
	}
}

// Follower is a watch's place behind a [Position]. It is for one goroutine.
type Follower struct {
	position *Position
	wake     chan struct{}
	asleep   atomic.Bool
	seen     atomic.Uint64
}

// Poll returns the position. Where that is not beyond what the follower has seen,
// [Follower.Wake] gets a token as soon as there is more.
func (f *Follower) Poll() uint64 {
	seen := f.seen.Load()
	if v := f.position.visible.Load(); v > seen {
		return v
	}
	if f.asleep.CompareAndSwap(false, true) {
		f.position.asleep.Add(1)
	}
	v := f.position.visible.Load()
	if v > seen {
		f.awake()
	}
	return v
}

// awake takes back that the follower sleeps.
func (f *Follower) awake() {
	if f.asleep.CompareAndSwap(true, false) {
		f.position.asleep.Add(-1)
	}
}

// Wake has a token when it is time to Poll again.
func (f *Follower) Wake() <-chan struct{} { return f.wake }

// Seen notes that the follower has passed on everything up to position at. The
// window is that of WaitRoom; 0 where nothing calls it.
func (f *Follower) Seen(at, window uint64) {
	f.seen.Store(at)
	// WaitRoom wakes up at half the window, so that the two sides do not take
	// turns at every event.
	if f.position.blocked.Load() && f.position.visible.Load() <= at+window/2 {
		f.position.signalRoom()
	}
}

// Close removes the follower.
func (f *Follower) Close() {
	p := f.position
	p.mu.Lock()
	next := slices.DeleteFunc(slices.Clone(p.all()), func(o *Follower) bool { return o == f })
	p.followers.Store(&next)
	p.mu.Unlock()
	f.awake()
	p.signalRoom()
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
