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

// Log is a storm that is still being written: what has been appended is
// visible, to any number of followers. It has room for as many events as it was
// made for, so that none is ever moved; what comes after that is refused. Its
// methods are safe for concurrent use.
type Log struct {
	Tide

	events []storm.Event

	mu sync.Mutex

	initial uint64

	keys  map[string]int32
	there []bool

	refused uint64

	sealed bool
}

// NewLog returns an empty log with room for so many events.
func NewLog(room int) *Log {
	return &Log{events: make([]storm.Event, room), keys: make(map[string]int32)}
}

// Append appends what happened to a key at a time: obj is its object
// afterwards, and deleted says that it is gone. The type of the event follows
// from what the key was before; a deletion of what isn't there is no event. The
// object is copied as far as its own resourceVersion, which becomes the event's
// number. It returns false where there is no room, or the log is sealed. O(1).
func (l *Log) Append(key string, obj runtime.Object, deleted bool, at time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sealed {
		return false
	}
	k, known := l.keys[key]
	there := known && l.there[k]
	e := storm.Event{At: at, Key: key, Type: watch.Modified}
	switch {
	case deleted && !there:
		return true
	case deleted:
		e.Type = watch.Deleted
	case !there:
		e.Type = watch.Added
	}
	n := l.Visible()
	if n == uint64(len(l.events)) {
		l.refused++
		return false
	}
	if !known {
		k = int32(len(l.there))
		l.keys[key], l.there = k, append(l.there, false)
	}
	l.there[k] = !deleted
	e.KeyIndex, e.Seq = k, n+1
	e.Object = storm.Renumber(obj, e.Seq)
	l.events[n] = e
	l.Raise(n + 1)
	return true
}

// EndInitial says that what has been appended so far is the initial list.
func (l *Log) EndInitial() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.initial = l.Visible()
}

// Seal ends the log: what comes later is left out. It returns the last position.
func (l *Log) Seal() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sealed = true
	return l.Visible()
}

// Refused returns how many events there was no room for.
func (l *Log) Refused() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refused
}

// Storm returns what has been appended up to a position as a storm, valid where
// times didn't decrease. It shares the log's events.
func (l *Log) Storm(upto uint64) *storm.Storm {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &storm.Storm{Initial: int(min(l.initial, upto)), Events: l.events[:upto:upto]}
	for i := range s.Events {
		s.Keys = max(s.Keys, int(s.Events[i].KeyIndex)+1)
	}
	return s
}

// Events returns the events after position from, up to position to. They are
// shared and must not be changed.
func (l *Log) Events(from, to uint64) []storm.Event { return l.events[from:to] }

// State returns the newest event of every key that is there at a position, as
// indexes into the log's events, in order of key. O(position + keys × log
// keys).
func (l *Log) State(at uint64) []int32 {
	var last []int32
	for i := range l.events[:at] {
		e := &l.events[i]
		for int(e.KeyIndex) >= len(last) {
			last = append(last, -1)
		}
		last[e.KeyIndex] = int32(i)
		if e.Type == watch.Deleted {
			last[e.KeyIndex] = -1
		}
	}
	last = slices.DeleteFunc(last, func(i int32) bool { return i < 0 })
	slices.SortFunc(last, func(a, b int32) int { return strings.Compare(l.events[a].Key, l.events[b].Key) })
	return last
}

func (l *Log) bounds() Bounds {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Bounds{Visible: l.Visible(), First: l.initial}
}

// Start reads the options of a watch; see [Bounds.Start].
func (l *Log) Start(version string, sendInitialEvents *bool, bookmarks bool) (Start, error) {
	return l.bounds().Start(version, sendInitialEvents, bookmarks)
}

// ListAt returns the position of which a list shows the state; see
// [Bounds.ListAt].
func (l *Log) ListAt(version string, match metav1.ResourceVersionMatch) (uint64, error) {
	return l.bounds().ListAt(version, match)
}
