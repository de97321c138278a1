// Package storm generates storms: streams of watch events with intended times. Parameters and
// a seed determine a storm completely.
//
//  1. [NewProfile] returns one of ten profiles, such as rollout or nodeloss, with
//     its default parameters. [Profile.Resize] scales it.
//  2. [Profile.Generator] yields the events without holding them in memory;
//     [Profile.Set] returns them as storms, one [Storm] for each resource.
//  3. [Storm.AtLeast], [Storm.ForNode], [Storm.Select] and others derive storms
//     from storms, recorded ones included.
package storm

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/fault"
)

// Event is one watch event with its intended time.
//
// The object's resourceVersion is the event's sequence number, so every stage can look up the
// event of an object. All cells of a run share events and objects, which must not be changed.
type Event struct {
	Type     watch.EventType // ADDED, MODIFIED or DELETED; sources add bookmarks
	Seq      uint64          // numbers the events of a storm from 1, without gaps
	At       time.Duration   // intended time, from the start of the storm
	Key      string          // object's key, namespace/name
	KeyIndex int32           // numbers the keys of the storm from 0, in order of appearance
	Object   runtime.Object  // typed object after the event; for DELETED, its last state
}

// Storm is a whole stream in memory.
type Storm struct {
	Name     string                      // profile, recording or path that the storm comes from
	Resource schema.GroupVersionResource // resource of the events, such as pods
	Kind     schema.GroupVersionKind     // kind of the objects
	Initial  int                         // length of the initial list, the ADDED events at the start
	Events   []Event                     // in order of Seq: Events[i].Seq == i+1
	Keys     int                         // number of different keys
	Marks    []Mark                      // interruptions of the stream, in order of After
}

// Mark is an interruption of the stream.
type Mark struct {
	After uint64   // number of the event before it: at least [Storm.Initial], before the last event
	Type  MarkType // kind of interruption
}

// MarkType is the type of a [Mark].
type MarkType string

const (
	// MarkRelist: the watch's version has expired (410 Gone). Clients list again, and a queue
	// receives the whole state by Replace.
	MarkRelist MarkType = "relist"
	MarkResync MarkType = "resync" // every known object goes to the handlers again
)

// Set is the storms of one cluster, one [Storm] per resource, on one clock. It is shared and
// must not be changed.
type Set struct {
	Name   string   // profile, recording or path that the set comes from
	Storms []*Storm // one storm per resource; pipelines play the first by default
	Phases []Phase  // in order of From; empty if unknown
}

// Phase is a named stretch of a storm: baseline, storm or drain.
type Phase struct {
	Name     string
	From, To time.Duration // times from the start of the storm
}

// MarkFaults returns the relists of the first storm as faults, for a server that plays the set
// to any client so many times as fast. Pipelines handle marks themselves.
func (s *Set) MarkFaults(speed float64) (out []fault.Spec) {
	if len(s.Storms) == 0 {
		return nil
	}
	first := s.Storms[0]
	for _, m := range first.Marks {
		if m.Type == MarkRelist && m.After > 0 {
			out = append(out, fault.Spec{Name: fault.Relist, At: fault.Duration(float64(first.Events[m.After-1].At) / speed)})
		}
	}
	return out
}

// ErrInvalid is wrapped by the error for a storm that no API server would send.
var ErrInvalid = errors.New("invalid storm")

// Validate checks that an API server could send the storm and that its numbers are consistent:
//
//   - Events are numbered from 1 without gaps, and their times do not decrease. Each
//     object has the event's number as resourceVersion, and the event's key.
//   - ADDED requires a missing key; MODIFIED and DELETED require an existing key.
//   - The initial list has ADDED events only.
//   - KeyIndex follows the order of appearance, and Keys is the number of keys.
//   - Marks have a known type, are in order, and lie between the initial list and the last event.
//
// The error wraps [ErrInvalid] and names the first event that breaks a rule. O(events).
func (s *Storm) Validate() error {
	if s.Initial < 0 || s.Initial > len(s.Events) {
		return fmt.Errorf("%w: an initial list of %d events in a storm of %d", ErrInvalid, s.Initial, len(s.Events))
	}
	type state struct {
		index  int32
		exists bool
	}
	keys := make(map[string]*state, s.Keys)
	var last time.Duration
	for i := range s.Events {
		e := &s.Events[i]
		fail := func(format string, args ...any) error {
			return fmt.Errorf("%w: event %d (%s %s): %s", ErrInvalid, i+1, e.Type, e.Key, fmt.Sprintf(format, args...))
		}
		k, seen := keys[e.Key]
		if !seen {
			k = &state{index: int32(len(keys))}
			keys[e.Key] = k
		}
		switch {
		case e.Seq != uint64(i+1):
			return fail("its number is %d", e.Seq)
		case e.At < last:
			return fail("its time %v is before its predecessor's %v", e.At, last)
		case e.KeyIndex != k.index:
			return fail("key index %d, but the key is number %d in order of appearance", e.KeyIndex, k.index)
		case i < s.Initial && e.Type != watch.Added:
			return fail("the initial list has ADDED only")
		case e.Type != watch.Added && e.Type != watch.Modified && e.Type != watch.Deleted:
			return fail("the type is none of ADDED, MODIFIED, DELETED")
		case e.Type == watch.Added && k.exists:
			return fail("the object exists already")
		case e.Type != watch.Added && !k.exists:
			return fail("the object does not exist")
		case e.Object == nil:
			return fail("no object")
		}
		o, err := meta.Accessor(e.Object)
		if err != nil {
			return fail("%v", err)
		}
		if rv := o.GetResourceVersion(); rv != strconv.FormatUint(e.Seq, 10) {
			return fail("its object has resourceVersion %q", rv)
		}
		if key := ObjectKey(o.GetNamespace(), o.GetName()); key != e.Key {
			return fail("its object is %s", key)
		}
		k.exists, last = e.Type != watch.Deleted, e.At
	}
	if s.Keys != len(keys) {
		return fmt.Errorf("%w: Keys is %d, but there are %d", ErrInvalid, s.Keys, len(keys))
	}
	after := uint64(s.Initial)
	for i, m := range s.Marks {
		switch {
		case m.Type != MarkRelist && m.Type != MarkResync:
			return fmt.Errorf("%w: mark %d has type %q (allowed: %s, %s)", ErrInvalid, i+1, m.Type, MarkRelist, MarkResync)
		case m.After < after || m.After >= uint64(len(s.Events)):
			return fmt.Errorf("%w: mark %d (%s) after event %d (allowed: %d or more, fewer than %d)", ErrInvalid, i+1, m.Type, m.After, after, len(s.Events))
		}
		after = m.After
	}
	return nil
}

// ObjectKey returns namespace/name, or only the name for an object without a namespace, like
// client-go's cache.MetaNamespaceKeyFunc.
func ObjectKey(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// Final returns the state after the last event: the last sequence number of each key that
// exists. O(events).
func (s *Storm) Final() map[string]uint64 {
	final := make(map[string]uint64, s.Keys)
	for i := range s.Events {
		if e := &s.Events[i]; e.Type == watch.Deleted {
			delete(final, e.Key)
		} else {
			final[e.Key] = e.Seq
		}
	}
	return final
}

// Peak returns the maximum number of keys that exist at the same time. O(events).
func (s *Storm) Peak() int {
	live, peak := 0, 0
	for i := range s.Events {
		switch s.Events[i].Type {
		case watch.Added:
			live++
			peak = max(peak, live)
		case watch.Deleted:
			live--
		}
	}
	return peak
}
