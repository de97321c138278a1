// Package stream makes the events of a storm visible one by one. For lists and watches it
// answers three questions: which events are visible, what is the state at a version, and when
// do more events follow.
//
// A resourceVersion is a position: the sequence number of the last included event. Position 0
// is before the first event. Watches share the events without copies, so their number does not
// matter and a slow watch delays no other.
package stream

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/storm"
)

// Stream is a storm of which a prefix is visible. Its methods are safe for concurrent use.
type Stream struct {
	Position

	events  []storm.Event
	byKey   []int32 // indexes of all keys in order of key
	initial uint64  // position after the initial list
}

// New returns a stream of a valid storm (see [storm.Storm.Validate]) whose initial
// list is visible. O(events + keys × log keys).
func New(s *storm.Storm) *Stream {
	st := &Stream{events: s.Events, initial: uint64(s.Initial), byKey: make([]int32, s.Keys)}
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

// Events returns the events after position from, up to position to. The events are shared and
// must not be changed.
func (s *Stream) Events(from, to uint64) []storm.Event { return s.events[from:to] }

// State returns the newest event of every key that exists at a position, as indexes of events
// in order of key. O(position + keys).
func (s *Stream) State(at uint64) []int32 {
	last := make([]int32, len(s.byKey))
	for i := range last {
		last[i] = -1
	}
	for i := range s.events[:at] {
		e := &s.events[i]
		last[e.KeyIndex] = int32(i)
		if e.Type == watch.Deleted {
			last[e.KeyIndex] = -1
		}
	}
	state := make([]int32, 0, len(last))
	for _, k := range s.byKey {
		if last[k] >= 0 {
			state = append(state, last[k])
		}
	}
	return state
}

// Bounds returns the positions that a client may request.
func (s *Stream) Bounds() Bounds {
	return Bounds{Visible: s.Visible(), First: s.initial}
}
