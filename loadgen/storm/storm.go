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
	Type watch.EventType

	Seq uint64

	At time.Duration

	Key string

	KeyIndex int32

	Object runtime.Object
}

// Storm is a whole stream, held in memory.
type Storm struct {
	Name string

	Resource schema.GroupVersionResource

	Kind schema.GroupVersionKind

	Initial int

	Events []Event

	Keys int

	Marks []Mark
}

// Mark is something that happens to the stream between two events.
type Mark struct {
	After uint64

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
