// Package stream makes a storm visible event by event: what has been released
// so far, the state of the world at any point of it, and followers that are
// woken when there is more.
//
// A resourceVersion is a position: the sequence number of the last event that
// is part of what it names. Position 0 is before the first event.
//
// Nothing is copied for a follower, so any number of them cost the same, and
// a follower that is slow holds up nobody.
package stream

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/storm"
)

// Stream is a storm of which the first events are visible. Its methods are
// safe for concurrent use.
type Stream struct {
	events []storm.Event
	// initial is the position after the initial list.
	initial uint64
	// retain is how many of the newest visible events a watch may still start
	// before; 0 means all.
	retain uint64
	// byKey holds the key indexes in the order of their keys.
	byKey []int32

	// visible is the position up to which events are visible; it only grows.
	visible atomic.Uint64
	// followers is replaced as a whole, so that Release reads it without a
	// lock.
	followers atomic.Pointer[[]*Follower]

	// blocked is set while WaitRoom waits, room wakes it.
	blocked atomic.Bool
	room    chan struct{}

	// mu is held to replace followers.
	mu sync.Mutex
}

// New returns a stream of a valid storm (see [storm.Storm.Validate]) of which
// the initial list is visible. A watch may start at most retain events back;
// 0 or less means anywhere. O(events + keys × log keys).
func New(s *storm.Storm, retain int) *Stream {
	st := &Stream{
		events:  s.Events,
		initial: uint64(s.Initial),
		retain:  uint64(max(retain, 0)),
		byKey:   make([]int32, s.Keys),
		room:    make(chan struct{}, 1),
	}
	keys := make([]string, s.Keys)
	for i := range s.Events {
		keys[s.Events[i].KeyIndex] = s.Events[i].Key
	}
	for i := range st.byKey {
		st.byKey[i] = int32(i)
	}
	slices.SortFunc(st.byKey, func(a, b int32) int { return strings.Compare(keys[a], keys[b]) })
	st.visible.Store(st.initial)
	st.followers.Store(&[]*Follower{})
	return st
}

// Visible returns the position up to which events are visible.
func (s *Stream) Visible() uint64 { return s.visible.Load() }

// Events returns the events after position from, up to position to. They are
// shared and must not be changed.
func (s *Stream) Events(from, to uint64) []storm.Event { return s.events[from:to] }

// State returns the newest event of every key that is there at a position, as
// indexes into the storm's events, in order of key. O(position + keys).
func (s *Stream) State(at uint64) []int32 {
	last := make([]int32, len(s.byKey))
	for i := range last {
		last[i] = -1
	}
	live := 0
	for i := range s.events[:at] {
		e := &s.events[i]
		was := last[e.KeyIndex] >= 0
		if e.Type == watch.Deleted {
			last[e.KeyIndex] = -1
			if was {
				live--
			}
			continue
		}
		last[e.KeyIndex] = int32(i)
		if !was {
			live++
		}
	}
	state := make([]int32, 0, live)
	for _, k := range s.byKey {
		if last[k] >= 0 {
			state = append(state, last[k])
		}
	}
	return state
}

// Release makes the events up to seq visible and wakes the followers that wait
// for more. It never blocks; a seq that is visible already, or beyond the end
// of the storm, counts as the nearest that isn't. O(followers), and next to
// nothing where none of them waits.
func (s *Stream) Release(seq uint64) {
	seq = min(seq, uint64(len(s.events)))
	for {
		have := s.visible.Load()
		if have >= seq {
			return
		}
		if s.visible.CompareAndSwap(have, seq) {
			break
		}
	}
	// A follower sets asleep and then looks at visible once more; here it is
	// the other way round. So one of the two sees the other.
	for _, f := range *s.followers.Load() {
		if f.asleep.Load() && f.asleep.CompareAndSwap(true, false) {
			notify(f.wake)
		}
	}
}

// Follow adds a follower that has seen everything up to position at.
func (s *Stream) Follow(at uint64) *Follower {
	f := &Follower{stream: s, wake: make(chan struct{}, 1)}
	f.seen.Store(at)
	s.mu.Lock()
	next := append(slices.Clone(*s.followers.Load()), f)
	s.followers.Store(&next)
	s.mu.Unlock()
	s.signalRoom()
	return f
}

// WaitRoom returns when somebody follows and no follower is window events or
// more behind what is visible, or with ctx's error. For one goroutine.
func (s *Stream) WaitRoom(ctx context.Context, window uint64) error {
	for !s.hasRoom(window) {
		s.blocked.Store(true)
		if s.hasRoom(window) {
			s.blocked.Store(false)
			return nil
		}
		select {
		case <-s.room:
		case <-ctx.Done():
			s.blocked.Store(false)
			return ctx.Err()
		}
	}
	return nil
}

func (s *Stream) hasRoom(window uint64) bool {
	followers := *s.followers.Load()
	visible := s.visible.Load()
	for _, f := range followers {
		// A follower that started at a later position than this one has seen
		// may be ahead.
		if seen := f.seen.Load(); visible > seen && visible-seen >= window {
			return false
		}
	}
	return len(followers) > 0
}

func (s *Stream) signalRoom() {
	if s.blocked.Load() && s.blocked.CompareAndSwap(true, false) {
		notify(s.room)
	}
}

// Follower is one watch's place in a stream. It is for one goroutine.
type Follower struct {
	stream *Stream
	// wake has a token for a follower that was found asleep. A token may be
	// left over from before, so a wake-up says only that it is time to look.
	wake   chan struct{}
	asleep atomic.Bool
	// seen is the position up to which the follower has passed events on.
	seen atomic.Uint64
}

// Poll returns the position up to which events are visible. Where that is not
// beyond what the follower has seen, it has made sure that [Follower.Wake]
// gets a token as soon as there is more.
func (f *Follower) Poll() uint64 {
	seen := f.seen.Load()
	if v := f.stream.visible.Load(); v > seen {
		return v
	}
	f.asleep.Store(true)
	v := f.stream.visible.Load()
	if v > seen {
		f.asleep.Store(false)
	}
	return v
}

// Wake has a token when it is time to Poll again.
func (f *Follower) Wake() <-chan struct{} { return f.wake }

// Seen notes that the follower has passed on everything up to position at. The
// window is WaitRoom's; 0 where nobody calls that.
func (f *Follower) Seen(at, window uint64) {
	f.seen.Store(at)
	// Whoever waits for room is woken at half the window, so that the two
	// don't take turns at every event.
	if f.stream.blocked.Load() && f.stream.visible.Load() <= at+window/2 {
		f.stream.signalRoom()
	}
}

// Close takes the follower out of the stream.
func (f *Follower) Close() {
	s := f.stream
	s.mu.Lock()
	next := slices.DeleteFunc(slices.Clone(*s.followers.Load()), func(o *Follower) bool { return o == f })
	s.followers.Store(&next)
	s.mu.Unlock()
	s.signalRoom()
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
