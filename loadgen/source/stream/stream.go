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
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/storm"
)

// Stream is a storm of which a prefix is visible. It is complete ([New]) or still being
// written ([NewLog]). Its methods are safe for concurrent use.
type Stream struct {
	Position

	// events has its final length from the start, so events never move. Events up to the visible
	// position are immutable and readable without a lock. Later ones are guarded by mu.
	events []storm.Event
	byKey  []int32 // indexes of all keys in order of key; nil for a log

	mu      sync.Mutex       // guards the fields below
	initial uint64           // position after the initial list
	keys    map[string]int32 // index of each key
	exists  []bool           // by key index
	refused uint64           // number of events that the full log rejected
	sealed  bool             // Append accepts no more events
}

// New returns a stream of a valid storm (see [storm.Storm.Validate]) whose initial
// list is visible. O(events + keys × log keys).
func New(s *storm.Storm) *Stream {
	st := &Stream{events: s.Events, initial: uint64(s.Initial), byKey: make([]int32, s.Keys), sealed: true}
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

// NewLog returns an empty stream for [Stream.Append]. Its capacity is a number of events.
func NewLog(capacity int) *Stream {
	return &Stream{events: make([]storm.Event, capacity), keys: make(map[string]int32)}
}

// Capacity is the largest number of events.
func (s *Stream) Capacity() int { return len(s.events) }

// Append adds an event of a key. obj is the object; deleted means that it no longer exists.
// The state of the key decides the type of the event. A deletion of a missing object is
// ignored. The event has a copy of the object, with the event's number as resourceVersion.
// Append returns false if the log is full or sealed. O(1).
func (s *Stream) Append(key string, obj runtime.Object, deleted bool, at time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sealed {
		return false
	}
	k, known := s.keys[key]
	exists := known && s.exists[k]
	e := storm.Event{At: at, Key: key, Type: watch.Modified}
	switch {
	case deleted && !exists:
		return true
	case deleted:
		e.Type = watch.Deleted
	case !exists:
		e.Type = watch.Added
	}
	n := s.Visible()
	if n == uint64(len(s.events)) {
		s.refused++
		return false
	}
	if !known {
		k = int32(len(s.exists))
		s.keys[key], s.exists = k, append(s.exists, false)
	}
	s.exists[k] = !deleted
	e.KeyIndex, e.Seq = k, n+1
	e.Object = storm.Renumber(obj, e.Seq)
	s.events[n] = e
	s.Raise(n + 1)
	return true
}

// EndInitial marks all events so far as the initial list.
func (s *Stream) EndInitial() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.initial = s.Visible()
}

// Seal makes the stream reject all later events. It returns the last position.
func (s *Stream) Seal() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sealed = true
	return s.Visible()
}

// Refused returns the number of events that the full log rejected.
func (s *Stream) Refused() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

// Storm returns the events up to a position as a storm, which shares the stream's events. It
// is valid if times did not decrease.
func (s *Stream) Storm(upto uint64) *storm.Storm {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &storm.Storm{Initial: int(min(s.initial, upto)), Events: s.events[:upto:upto]}
	for i := range out.Events {
		out.Keys = max(out.Keys, int(out.Events[i].KeyIndex)+1)
	}
	return out
}

// Events returns the events after position from, up to position to. The events are shared and
// must not be changed.
func (s *Stream) Events(from, to uint64) []storm.Event { return s.events[from:to] }

// State returns the newest event of every key that exists at a position, as indexes of events
// in order of key. O(position + keys); in a log O(position + keys × log keys).
func (s *Stream) State(at uint64) []int32 {
	last := make([]int32, len(s.byKey))
	for i := range last {
		last[i] = -1
	}
	for i := range s.events[:at] {
		e := &s.events[i]
		for int(e.KeyIndex) >= len(last) {
			last = append(last, -1)
		}
		last[e.KeyIndex] = int32(i)
		if e.Type == watch.Deleted {
			last[e.KeyIndex] = -1
		}
	}
	if s.byKey == nil {
		last = slices.DeleteFunc(last, func(i int32) bool { return i < 0 })
		slices.SortFunc(last, func(a, b int32) int { return strings.Compare(s.events[a].Key, s.events[b].Key) })
		return last
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
	s.mu.Lock()
	defer s.mu.Unlock()
	return Bounds{Visible: s.Visible(), First: s.initial}
}
