package store

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// Change is one event that became visible.
type Change struct {
	At       time.Time // just before it became visible
	Intended time.Time // when it was due: that of the storm or of its [Origin]; else At
	By       string    // its origin: [Storm] for released events
	Type     watch.EventType
	Resource schema.GroupVersionResource // in the stored version; a log leaves it to the observer
	Key      string                      // namespace/name
	Version  uint64
	// Object is the object after the change, and Before the one before it, nil for ADDED. For DELETED,
	// Object is the last state. They are shared and must not be changed.
	Object, Before runtime.Object
}

// changeOf returns the change of an event. before is the previous event of its object, nil if there was no object.
func changeOf(by Origin, at time.Time, e, before *storm.Event, version uint64) Change {
	c := Change{At: at, Intended: by.Intended, By: by.By, Type: e.Type, Key: e.Key, Version: version, Object: e.Object}
	if before != nil {
		c.Before = before.Object
	}
	if c.Intended.IsZero() {
		c.Intended = at
	}
	return c
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
		var was *storm.Event
		if i := before[from]; i >= 0 && l.event(uint64(i)).Type != watch.Deleted {
			was = l.event(uint64(i))
		}
		l.observe(changeOf(released(l.event(from), due), at, l.event(from), was, from+1))
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

// Settle returns when the events that are visible now have been observed.
func (l *Log) Settle() {
	l.write.Lock()
	l.write.Unlock() //nolint:staticcheck // observers run under it
}
