package store

import (
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/storm"
)

// Storm is the origin of released events.
const Storm = "storm"

// Origin is the cause of an event.
type Origin struct {
	By       string
	Intended time.Time // zero if it is that of the event
}

// Change is an event that became visible.
type Change struct {
	Origin
	At     time.Time // just before it became visible
	Event  *storm.Event
	Before *storm.Event // previous event of its object, nil if there was no object
	// Version is that of the event.
	Version uint64
}

// Observe calls f for each visible event and for all further ones, in their order. It returns after the
// visible ones. f delays writes and releases, but no reader; it must not write to the log. Observe is
// called at most once and before any write.
func (l *Log) Observe(f func(Change)) {
	l.write.Lock()
	defer l.write.Unlock()
	l.observe = f
	if l.rec != nil {
		l.report(0, l.Visible(), time.Now(), nil)
	}
}

// report reports events of the recording. The caller holds write.
func (l *Log) report(from, to uint64, at time.Time, due func(time.Duration) time.Time) {
	before := l.rec.keys().before
	for ; from < to; from++ {
		c := Change{Origin: released(l.event(from), due), At: at, Event: l.event(from), Version: from + 1}
		if i := before[from]; i >= 0 && l.event(uint64(i)).Type != watch.Deleted {
			c.Before = l.event(uint64(i))
		}
		l.tell(c)
	}
}

// released is the origin of an event of the recording.
func released(e *storm.Event, due func(time.Duration) time.Time) Origin {
	by := Origin{By: Storm}
	if due != nil {
		by.Intended = due(e.At)
	}
	return by
}

// tell reports changes. The caller holds write.
func (l *Log) tell(changes ...Change) {
	for _, c := range changes {
		if c.Intended.IsZero() {
			c.Intended = c.At
		}
		l.observe(c)
	}
}

// Settle returns when the events that are visible now have been observed.
func (l *Log) Settle() {
	l.write.Lock()
	l.write.Unlock() //nolint:staticcheck // observers run under it
}
