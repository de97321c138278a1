// Package storm holds what a storm is, a stream of watch events with intended
// times, and makes storms of profiles, deterministically from a seed.
package storm

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// Event is one watch event with the time at which it is meant to happen.
//
// Object carries the event's sequence number as its resourceVersion, so that a
// stage that sees the object can name the event. Events and their objects are
// shared by every cell of a run and must not be changed.
type Event struct {
	// Type is ADDED, MODIFIED or DELETED. (Bookmarks are the source's to make.)
	Type watch.EventType
	// Seq numbers the events of a storm from 1, without gaps.
	Seq uint64
	// At is the intended time, from the start of the storm.
	At time.Duration
	// Key is the object's key, namespace/name.
	Key string
	// KeyIndex numbers the keys of the storm from 0 in order of appearance.
	KeyIndex int32
	// Object is the typed object (such as *v1.Pod) after the event; for
	// DELETED, its last state.
	Object runtime.Object
}

// Storm is a whole stream, held in memory.
type Storm struct {
	// Name says where it comes from: a recording's name or path.
	Name string
	// Resource that the events are of, such as pods in the core group.
	Resource schema.GroupVersionResource
	// Kind of the objects.
	Kind schema.GroupVersionKind
	// Initial is how many of the first events are the initial list: ADDED
	// events for what was there when the storm began.
	Initial int
	// Events in order of Seq. Events[i].Seq == i+1.
	Events []Event
	// Keys is how many different keys there are.
	Keys int
	// Marks are what happens to the stream as a whole, in order of After.
	Marks []Mark
}

// Mark is something that happens to the stream between two events.
type Mark struct {
	// After is the number of the event that it follows: [Storm.Initial] or
	// more, and less than the number of the last event.
	After uint64
	// What happens.
	What What
}

// What is the kind of a [Mark].
type What string

const (
	// MarkRelist: the watch ends and its version is gone (410), so that whoever
	// watches lists anew, and a queue is handed the whole state by Replace.
	MarkRelist What = "relist"
	// MarkResync: every known object is handed to the handlers once more, as
	// informers with a resync period do.
	MarkResync What = "resync"
)
