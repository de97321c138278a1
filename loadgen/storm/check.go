package storm

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/watch"
)

// ErrInvalid is wrapped by the error for a storm that no API server would
// send.
var ErrInvalid = errors.New("invalid storm")

// Validate checks that the storm is one that an API server could send, and
// that its numbers are right:
//
//   - Events are numbered from 1 without gaps, their times don't decrease, and
//     each object carries its event's number as resourceVersion, and its key.
//   - A key is ADDED when it is not there, and MODIFIED or DELETED when it is.
//   - The initial list is all ADDED.
//   - KeyIndex follows the order of appearance, and Keys is their count.
//   - Marks are known, in order, and lie between the initial list and the last
//     event.
//
// The error wraps [ErrInvalid] and names the first event that breaks a rule.
// O(events).
func (s *Storm) Validate() error {
	if s.Initial < 0 || s.Initial > len(s.Events) {
		return fmt.Errorf("%w: an initial list of %d events in a storm of %d", ErrInvalid, s.Initial, len(s.Events))
	}
	type state struct {
		index int32
		alive bool
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
			return fail("it is numbered %d", e.Seq)
		case e.At < last:
			return fail("its time %v is before its predecessor's %v", e.At, last)
		case e.KeyIndex != k.index:
			return fail("key index %d, but the key is number %d in order of appearance", e.KeyIndex, k.index)
		case i < s.Initial && e.Type != watch.Added:
			return fail("the initial list has ADDED only")
		}
		switch e.Type {
		case watch.Added:
			if k.alive {
				return fail("it is there already")
			}
		case watch.Modified, watch.Deleted:
			if !k.alive {
				return fail("it is not there")
			}
		default:
			return fail("the type is none of ADDED, MODIFIED, DELETED")
		}
		k.alive = e.Type != watch.Deleted
		if e.Object == nil {
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
		last = e.At
	}
	if s.Keys != len(keys) {
		return fmt.Errorf("%w: %d keys are counted where there are %d", ErrInvalid, s.Keys, len(keys))
	}
	return s.validateMarks()
}

func (s *Storm) validateMarks() error {
	after := uint64(s.Initial)
	for i, m := range s.Marks {
		switch {
		case m.What != MarkRelist && m.What != MarkResync:
			return fmt.Errorf("%w: mark %d is a %q (allowed: %s, %s)", ErrInvalid, i+1, m.What, MarkRelist, MarkResync)
		case m.After < after || m.After >= uint64(len(s.Events)):
			return fmt.Errorf("%w: mark %d (%s) after event %d (allowed: %d or more, fewer than %d)", ErrInvalid, i+1, m.What, m.After, after, len(s.Events))
		}
		after = m.After
	}
	return nil
}

// ObjectKey returns namespace/name, or the name alone for an object without a
// namespace: the key that client-go's cache.MetaNamespaceKeyFunc makes.
func ObjectKey(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// Final returns what is there after the last event: the sequence number of the
// last version of each key that is not deleted. O(events).
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

// Peak returns the most keys that are there at the same time. O(events).
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
