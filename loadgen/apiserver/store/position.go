package store

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// Position is a monotonic position, of a log or of another source of events, with followers that wake up when it rises. The zero value
// is at position 0. Its methods are safe for concurrent use.
//
// A rise is cheap if no follower sleeps: busy followers poll by themselves, and only sleeping
// followers get a wake-up. A slow follower therefore gets fewer wake-ups and takes more events
// at once.
type Position struct {
	visible atomic.Uint64 // the position
	// asleep is the number of sleeping followers. A follower increments asleep and then reads
	// visible again; Raise stores visible and then reads asleep. So at least one of them sees
	// the other's write, and no wake-up is lost.
	asleep atomic.Int32
	// followers is replaced as a whole with mu held, so Raise reads it without a lock. nil
	// means none.
	followers atomic.Pointer[[]*Follower]

	blocked atomic.Bool // set while WaitRoom waits on room; room is written before blocked is set

	mu   sync.Mutex // guards replacing followers, and room
	room chan struct{}
}

// Visible returns the position.
func (p *Position) Visible() uint64 { return p.visible.Load() }

// Raise raises the position if to is higher, and wakes the sleeping followers. It never
// blocks. O(1) if no follower sleeps, else O(followers).
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
	// A follower sets asleep and then reads visible again; here the order is reversed. So at
	// least one side sees the other's write.
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

// Follow adds a follower that has seen all events up to position at.
func (p *Position) Follow(at uint64) *Follower {
	f := &Follower{position: p, wake: make(chan struct{}, 1)}
	f.seen.Store(at)
	p.mu.Lock()
	p.followers.Store(new(append(slices.Clone(p.all()), f)))
	p.mu.Unlock()
	p.signalRoom()
	return f
}

// WaitRoom returns when there is at least one follower and all followers are less than window
// events behind, or with ctx's error. Only one goroutine may call it.
func (p *Position) WaitRoom(ctx context.Context, window uint64) error {
	if p.hasRoom(window) {
		return nil
	}
	p.mu.Lock()
	if p.room == nil {
		p.room = make(chan struct{}, 1)
	}
	room := p.room // A goroutine that sees blocked set also sees room.
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
		// A follower may be ahead of the position that this goroutine read.
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

// Follower is the position of one watch behind a [Position]. It is not safe for concurrent use.
type Follower struct {
	position *Position
	// wake has capacity 1. A token may be left over from before, so a wake-up only means: Poll
	// again.
	wake   chan struct{}
	asleep atomic.Bool   // true while the follower counts in Position.asleep
	seen   atomic.Uint64 // position up to which the follower has passed on events
}

// Poll returns the position. If the follower has seen all events, [Follower.Wake] receives a
// token when the position rises.
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

func (f *Follower) awake() {
	if f.asleep.CompareAndSwap(true, false) {
		f.position.asleep.Add(-1)
	}
}

// Wake receives a token when it is time to call Poll again.
func (f *Follower) Wake() <-chan struct{} { return f.wake }

// Seen records that the follower has passed on all events up to position at. window is that of
// WaitRoom, or 0 if WaitRoom is not used.
func (f *Follower) Seen(at, window uint64) {
	f.seen.Store(at)
	// WaitRoom wakes up at half the window, so that the two sides do not alternate at every event.
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
