// Package stream makes the events of a storm visible one by one and answers the
// questions of lists and watches about them: what is visible, what the state at a
// version is, and when there is more.
//
// A resourceVersion is a position: the sequence number of the last event that it
// includes. Position 0 is before the first event. Nothing is copied for a watch,
// so any number of them cost the same, and a slow one delays no other.
package stream

import (
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/storm"
)

// Stream is a storm whose first events are visible: a complete one ([New]) or one
// that is still being written ([NewLog]). Its methods are safe for concurrent use.
type Stream struct {
	Position

	// events has its final length, so that events never move.
	events []storm.Event
	// byKey has the indexes of all keys in order; nil for a log.
	byKey []int32

	mu      sync.Mutex
	initial uint64
	keys    map[string]int32
	exists  []bool
	refused uint64
	sealed  bool
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

// NewLog returns an empty stream for [Stream.Append]. It holds at most capacity
// events.
func NewLog(capacity int) *Stream {
	return &Stream{events: make([]storm.Event, capacity), keys: make(map[string]int32)}
}

// Append adds an event of a key: obj is its object, deleted says that the object no
// longer exists. The state of the key decides the type of the event; deleting an
// object that does not exist is no event. The event has a copy of the object with
// its number as resourceVersion. Append returns false where the log is full or
// sealed. O(1).
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

// EndInitial makes all events so far the initial list.
func (s *Stream) EndInitial() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.initial = s.Visible()
}

// Seal refuses all later events. It returns the last position.
func (s *Stream) Seal() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sealed = true
	return s.Visible()
}

// Refused returns the number of events that a full log refused.
func (s *Stream) Refused() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

// Storm returns the events up to a position as a storm. It is valid where times
// did not decrease, and shares the stream's events.
func (s *Stream) Storm(upto uint64) *storm.Storm {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &storm.Storm{Initial: int(min(s.initial, upto)), Events: s.events[:upto:upto]}
	for i := range out.Events {
		out.Keys = max(out.Keys, int(out.Events[i].KeyIndex)+1)
	}
	return out
}

// Events returns the events after position from, up to position to. They are
// shared and must not be changed.
func (s *Stream) Events(from, to uint64) []storm.Event { return s.events[from:to] }

// State returns the newest event of every key that exists at a position, as
// indexes of events, in order of key. O(position + keys), in a log O(position +
// keys × log keys).
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

func (s *Stream) bounds() Bounds {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Bounds{Visible: s.Visible(), First: s.initial}
}

// Start reads the options of a watch; see [Bounds.Start].
func (s *Stream) Start(version string, sendInitialEvents *bool, bookmarks bool) (Start, error) {
	return s.bounds().Start(version, sendInitialEvents, bookmarks)
}

// ListAt returns the position whose state a list returns; see [Bounds.ListAt].
func (s *Stream) ListAt(version string, match metav1.ResourceVersionMatch) (uint64, error) {
	return s.bounds().ListAt(version, match)
}
