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
	for at, now := l.base, time.Now(); at < l.Visible(); at++ {
		if e, was, err := l.Event(at); err == nil {
			f(changeOf(Origin{By: Storm}, now, e, was, l.Version(at+1)))
		}
	}
}

// Settle returns when the events that are visible now have been observed.
func (l *Log) Settle() {
	l.write.Lock()
	l.write.Unlock() //nolint:staticcheck // observers run under it
}
