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
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/storm"
)

// Stream is a storm of which the first events are visible. Its methods are
// safe for concurrent use.
type Stream struct {
	Tide
	events []storm.Event

	initial uint64

	retain uint64

	byKey []int32
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
	}
	keys := make([]string, s.Keys)
	for i := range s.Events {
		keys[s.Events[i].KeyIndex] = s.Events[i].Key
	}
	for i := range st.byKey {
		st.byKey[i] = int32(i)
	}
	slices.SortFunc(st.byKey, func(a, b int32) int { return strings.Compare(keys[a], keys[b]) })
	st.Raise(st.initial)
	return st
}

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
func (s *Stream) Release(seq uint64) { s.Raise(min(seq, uint64(len(s.events)))) }

// bounds are the positions that may be asked for.
func (s *Stream) bounds() Bounds {
	visible := s.Visible()
	b := Bounds{Visible: visible, First: s.initial}
	if s.retain > 0 && visible > s.retain {
		b.Oldest = visible - s.retain
	}
	return b
}

// Start reads the options of a watch; see [Bounds.Start].
func (s *Stream) Start(version string, sendInitialEvents *bool, bookmarks bool) (Start, error) {
	return s.bounds().Start(version, sendInitialEvents, bookmarks)
}

// ListAt returns the position of which a list shows the state; see
// [Bounds.ListAt].
func (s *Stream) ListAt(version string, match metav1.ResourceVersionMatch) (uint64, error) {
	return s.bounds().ListAt(version, match)
}
