package storm

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sort"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// NodeName is the node to which [Storm.ForNode] binds its pods.
const NodeName = "node-0"

// ErrNotPods is wrapped by the error of an operation that is for pods only.
var ErrNotPods = errors.New("not a storm of pods")

// AtLeast returns a storm of n events or more: this one, followed by as many
// whole laps over the events after the initial list as are needed. The result
// is valid where the storm is.
//
// A lap begins with what the lap before it left behind. So in later laps, an
// ADDED of a key that is there becomes MODIFIED, a MODIFIED of one that is not
// becomes ADDED, and a DELETED of one that is not is left out. Times go on from
// lap to lap at the pace of the storm, and marks are repeated with their lap. Each
// event has an object of its own: a
// copy of the struct, the data below it shared and never changed.
//
// There are fewer than n events where nothing can be repeated: no events after
// the initial list, or DELETED ones only. Where the storm has n events, it is
// returned as it is. O(n) time and, at the size of the object's struct (a pod's
// is about 1 kB), memory.
func (s *Storm) AtLeast(n int) *Storm {
	if len(s.Events) >= n {
		return s
	}
	longer := s.Select(n, func(string) bool { return true })
	if longer.Whole == len(s.Events) {
		return s
	}
	return longer.Storm
}

// First returns the storm that ends after n events, or the storm itself where it
// has no more. The result is valid where the storm is and n is not less than
// Initial. O(n).
func (s *Storm) First(n int) *Storm {
	if len(s.Events) <= n {
		return s
	}
	out := *s
	out.Events = s.Events[:n:n]
	out.Keys = 0
	for i := range out.Events {
		out.Keys = max(out.Keys, int(out.Events[i].KeyIndex)+1)
	}
	out.Marks = within(s.Marks, n)
	return &out
}

// within returns the marks that lie before the last of n events.
func within(marks []Mark, n int) []Mark {
	for len(marks) > 0 && marks[len(marks)-1].After >= uint64(n) {
		marks = marks[:len(marks)-1]
	}
	return slices.Clip(marks)
}

// ForNode returns the share of a pod storm that one kubelet would see if it
// had the pods of several nodes: the first nodes by name, as many as it takes
// until at least the given number of pods is bound to them at the same time,
// or all of them where there are fewer. The result is valid where the storm
// is.
//
// It is what a watch with the field selector spec.nodeName shows: a pod comes
// in sight with an ADDED when it is bound to one of the nodes, whatever the
// event was, and its earlier events are left out; if it were bound elsewhere it
// would leave with a DELETED. Pods are bound to [NodeName], in copies of their
// structs. Times stay as they are. To make it longer, use [Storm.AtLeast] on
// the result.
//
// It is an error wrapping [ErrNotPods] where the events are not of pods, and an
// error where pods is less than 1 or no pod is bound to a node.
// O(events × log nodes).
func (s *Storm) ForNode(pods int) (*Storm, error) {
	if pods < 1 {
		return nil, fmt.Errorf("storm %s: a node with %d pods (allowed: 1 or more)", s.Name, pods)
	}
	names := map[string]struct{}{}
	bound := make([]string, len(s.Events))
	for i := range s.Events {
		pod, ok := s.Events[i].Object.(*v1.Pod)
		if !ok {
			return nil, fmt.Errorf("storm %s: %w: event %d has a %T", s.Name, ErrNotPods, s.Events[i].Seq, s.Events[i].Object)
		}
		if bound[i] = pod.Spec.NodeName; bound[i] != "" {
			names[bound[i]] = struct{}{}
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("storm %s: no pod is bound to a node", s.Name)
	}
	nodes := slices.Sorted(maps.Keys(names))

	// With more nodes there are never fewer pods, so the number of nodes can
	// be searched for.
	types := make([]watch.EventType, len(s.Events))
	k := 1 + sort.Search(len(nodes)-1, func(k int) bool {
		return s.inSight(types, bound, nodes[:k+1]) >= pods
	})
	s.inSight(types, bound, nodes[:k])

	out := *s
	out.Initial, out.Events, out.Marks = 0, nil, nil
	index := map[string]int32{}
	marks := s.Marks
	for i, e := range s.Events {
		for len(marks) > 0 && marks[0].After < e.Seq {
			out.Marks = append(out.Marks, Mark{After: uint64(len(out.Events)), What: marks[0].What})
			marks = marks[1:]
		}
		if types[i] == "" {
			continue
		}
		if i < s.Initial {
			out.Initial++
		}
		if _, ok := index[e.Key]; !ok {
			index[e.Key] = int32(len(index))
		}
		e.Type = types[i]
		e.Seq = uint64(len(out.Events) + 1)
		e.KeyIndex = index[e.Key]
		pod := Renumber(e.Object, e.Seq).(*v1.Pod)
		pod.Spec.NodeName = NodeName
		e.Object = pod
		out.Events = append(out.Events, e)
	}
	out.Keys = len(index)
	out.Marks = within(out.Marks, len(out.Events))
	return &out, nil
}

// inSight fills types with what each event is to a watcher of the pods on the
// given nodes, empty where it doesn't see it, and returns the most pods that
// it sees at the same time.
func (s *Storm) inSight(types []watch.EventType, bound, nodes []string) int {
	chosen := make(map[string]struct{}, len(nodes))
	for _, n := range nodes {
		chosen[n] = struct{}{}
	}
	seen := make([]bool, s.Keys)
	live, peak := 0, 0
	for i := range s.Events {
		e := &s.Events[i]
		_, here := chosen[bound[i]]
		here = here && e.Type != watch.Deleted
		switch was := seen[e.KeyIndex]; {
		case here && was:
			types[i] = watch.Modified
		case here:
			types[i] = watch.Added
			live++
			peak = max(peak, live)
		case was:
			types[i] = watch.Deleted
			live--
		default:
			types[i] = ""
		}
		seen[e.KeyIndex] = here
	}
	return peak
}

// Metadata returns the storm with objects that have nothing but the metadata
// that a queue looks at: namespace, name, UID and resourceVersion, in
// [metav1.PartialObjectMetadata] as client-go's metadata informers have them.
// Played in laps, a storm of them takes a quarter of the memory of one of pods
// and next to none of the garbage collector's time, which would be put down to
// the queue otherwise. O(events).
func (s *Storm) Metadata() *Storm {
	out := *s
	out.Events = slices.Clone(s.Events)
	for i := range out.Events {
		e := &out.Events[i]
		o, err := meta.Accessor(e.Object)
		if err != nil {
			continue // It has no metadata to be cut down to.
		}
		e.Object = &metav1.PartialObjectMetadata{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
			},
		}
	}
	return &out
}

// Renumber returns a copy of the object's struct with the sequence number as
// its resourceVersion. What the struct points to is shared.
func Renumber(o runtime.Object, seq uint64) runtime.Object {
	var c runtime.Object
	switch v := reflect.ValueOf(o); {
	case v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct:
		c = o.DeepCopyObject()
	default:
		if _, ok := o.(runtime.Unstructured); ok {
			// Its metadata lies in a map, which the copy would share.
			c = o.DeepCopyObject()
			break
		}
		n := reflect.New(v.Elem().Type())
		n.Elem().Set(v.Elem())
		c = n.Interface().(runtime.Object)
	}
	if m, err := meta.Accessor(c); err == nil {
		m.SetResourceVersion(strconv.FormatUint(seq, 10))
	}
	return c
}
