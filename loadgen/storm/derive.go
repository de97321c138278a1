package storm

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/apiserver/wire"
)

// NodeName is the node to which [Storm.ForNode] binds its pods.
const NodeName = "node-0"

// ErrNotPods is wrapped by the errors of operations that only support pods.
var ErrNotPods = errors.New("not a storm of pods")

// AtLeast returns a storm of at least n events: the events of s, then laps over the events
// after the initial list. It is valid if s is valid.
//
// A lap starts from the final state of the lap before it: ADDED of an existing key becomes
// MODIFIED, MODIFIED of a missing key becomes ADDED, and DELETED of a missing key is dropped.
// Times continue at the pace of the storm, and each lap repeats the marks. Each event has its
// own copy of the object's struct (about 1 kB for a pod). O(n).
//
// It returns s itself if it has n events, or if all events after the initial list are DELETED.
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

// First returns a storm of the first n events, or s itself if it has n events or fewer. The
// result is valid if s is valid and n is at least Initial. O(n).
func (s *Storm) First(n int) *Storm {
	if len(s.Events) <= n {
		return s
	}
	out := *s
	out.Events, out.Keys = s.Events[:n:n], 0
	for i := range out.Events {
		out.Keys = max(out.Keys, int(out.Events[i].KeyIndex)+1)
	}
	out.Marks = within(s.Marks, n)
	return &out
}

func within(marks []Mark, n int) []Mark {
	for len(marks) > 0 && marks[len(marks)-1].After >= uint64(n) {
		marks = marks[:len(marks)-1]
	}
	return slices.Clip(marks)
}

// Selection is the events of some keys of a storm.
type Selection struct {
	*Storm             // selected events, renumbered, at their original times; valid if the whole is
	Places       []int // event i of Storm is event Places[i] of the whole storm, both from 0
	Whole        int   // number of events of the whole storm
	WholeInitial int   // length of its initial list
}

// Select returns the events of [Storm.AtLeast](n) whose keys pass keep, renumbered, in the
// same order and at the same times. Marks stay after the same events; a mark after the last
// event is dropped. O(events of s + selected events).
func (s *Storm) Select(n int, keep func(key string) bool) Selection {
	p, index := s.filter(func(e *Event) bool { return keep(e.Key) })
	if len(s.Events) < n {
		p.addLaps(s, n, index)
	}
	p.Marks = within(p.Marks, len(p.Events))
	return p
}

// filter returns the events that keep accepts and may change, and the KeyIndex of each key in
// the selection; -1 for the other keys.
func (s *Storm) filter(keep func(*Event) bool) (p Selection, index []int32) {
	p = Selection{Whole: len(s.Events), WholeInitial: s.Initial}
	out := *s
	out.Events, out.Marks, out.Initial, out.Keys = nil, nil, 0, 0
	p.Storm = &out
	index = slices.Repeat([]int32{-1}, s.Keys)
	marks := s.Marks
	for i, e := range s.Events {
		p.addMarks(&marks, e.Seq)
		if !keep(&e) {
			continue
		}
		if index[e.KeyIndex] < 0 {
			index[e.KeyIndex] = int32(out.Keys)
			out.Keys++
		}
		if i < s.Initial {
			out.Initial++
		}
		e.KeyIndex = index[e.KeyIndex]
		p.add(e, 0, i)
	}
	return p, index
}

// addLaps adds as many laps as the whole storm needs for n events.
func (p *Selection) addLaps(s *Storm, n int, index []int32) {
	lap, period := s.lap()
	if len(lap) == 0 {
		return
	}
	selected := 0
	for _, e := range lap {
		if index[e.KeyIndex] >= 0 {
			selected++
		}
	}
	more := selected * ((n - p.Whole + len(lap) - 1) / len(lap))
	p.Events, p.Places = slices.Grow(p.Events, more), slices.Grow(p.Places, more)
	for shift := period; p.Whole < n; shift += period {
		marks := s.Marks
		for i, e := range lap {
			p.addMarks(&marks, e.Seq)
			if at := index[e.KeyIndex]; at >= 0 {
				e.KeyIndex = at
				p.add(e, shift, p.Whole+i)
			}
		}
		p.addMarks(&marks, s.Events[len(s.Events)-1].Seq)
		p.Whole += len(lap)
	}
}

// addMarks moves the pending marks before event seq.
func (s *Storm) addMarks(marks *[]Mark, seq uint64) {
	for len(*marks) > 0 && (*marks)[0].After < seq {
		s.Marks = append(s.Marks, Mark{After: uint64(len(s.Events)), Type: (*marks)[0].Type})
		*marks = (*marks)[1:]
	}
}

func (p *Selection) add(e Event, shift time.Duration, place int) {
	e.At += shift
	if seq := uint64(len(p.Events) + 1); seq != e.Seq || shift > 0 {
		e.Seq = seq
		e.Object = Renumber(e.Object, seq)
	}
	p.Events = append(p.Events, e)
	p.Places = append(p.Places, place)
}

// First returns the selection for the first n events of the whole storm; see [Storm.First].
func (p Selection) First(n int) Selection {
	if p.Whole <= n {
		return p
	}
	have, _ := slices.BinarySearch(p.Places, n)
	p.Storm, p.Places, p.Whole = p.Storm.First(have), p.Places[:have:have], n
	return p
}

// lap returns the events of a later lap, and its length. All laps after the first are alike.
func (s *Storm) lap() (lap []Event, period time.Duration) {
	exists := make([]bool, s.Keys)
	for i := range s.Events {
		exists[s.Events[i].KeyIndex] = s.Events[i].Type != watch.Deleted
	}
	own := s.Events[s.Initial:]
	if len(own) == 0 {
		return nil, 0
	}
	// From the end of the initial list, so that the gap before the first event repeats too.
	period = own[len(own)-1].At
	if s.Initial > 0 {
		period -= s.Events[s.Initial-1].At
	}
	for _, e := range own {
		switch was := exists[e.KeyIndex]; {
		case e.Type == watch.Deleted && !was:
			continue
		case e.Type == watch.Deleted:
		case was:
			e.Type = watch.Modified
		default:
			e.Type = watch.Added
		}
		exists[e.KeyIndex] = e.Type != watch.Deleted
		lap = append(lap, e)
	}
	return lap, period
}

// ForNode returns the pod events that one kubelet receives. The kubelet gets the pods of
// several nodes: the first nodes by name, until the peak number of bound pods reaches pods, or
// all nodes. The result is valid if s is valid.
//
// These are the events of a watch with the field selector spec.nodeName. A pod appears with
// ADDED when it is bound to one of the nodes, whatever the type of the event; its earlier
// events are dropped. A pod that moves to another node disappears with DELETED. The pods are
// copies, bound to [NodeName]. Times do not change. [Storm.AtLeast] makes the result longer.
//
// The error wraps [ErrNotPods] if events have other objects. O(events × log nodes).
func (s *Storm) ForNode(pods int) (*Storm, error) {
	if pods < 1 {
		return nil, fmt.Errorf("storm %s: a node with %d pods (allowed: 1 or more)", s.Name, pods)
	}
	objects, names := make([]*v1.Pod, len(s.Events)), map[string]bool{}
	for i := range s.Events {
		pod, ok := s.Events[i].Object.(*v1.Pod)
		if !ok {
			return nil, fmt.Errorf("storm %s: %w: event %d has a %T", s.Name, ErrNotPods, s.Events[i].Seq, s.Events[i].Object)
		}
		objects[i], names[pod.Spec.NodeName] = pod, true
	}
	delete(names, "")
	if len(names) == 0 {
		return nil, fmt.Errorf("storm %s: no pod is bound to a node", s.Name)
	}
	nodes := slices.Sorted(maps.Keys(names))

	// The peak never falls with more nodes, so binary search finds the number.
	types := make([]watch.EventType, len(s.Events))
	k := 1 + sort.Search(len(nodes)-1, func(k int) bool {
		return s.watchNodes(types, objects, nodes[:k+1]) >= pods
	})
	s.watchNodes(types, objects, nodes[:k])

	p, _ := s.filter(func(e *Event) bool {
		if e.Type = types[e.Seq-1]; e.Type == "" {
			return false
		}
		pod := Renumber(e.Object, e.Seq).(*v1.Pod)
		pod.Spec.NodeName = NodeName
		e.Object = pod
		return true
	})
	p.Marks = within(p.Marks, len(p.Events))
	return p.Storm, nil
}

// watchNodes stores the type of each event for a watch of the pods on the given nodes. The
// type is empty if the watch does not receive the event. It returns the peak number of pods.
func (s *Storm) watchNodes(types []watch.EventType, pods []*v1.Pod, nodes []string) int {
	chosen := sets.New(nodes...)
	seen := make([]bool, s.Keys)
	live, peak := 0, 0
	for i := range s.Events {
		e := &s.Events[i]
		here := chosen.Has(pods[i].Spec.NodeName) && e.Type != watch.Deleted
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

// Metadata returns the storm with [metav1.PartialObjectMetadata] objects. They have the
// metadata that a queue reads: namespace, name, UID and resourceVersion. Laps then take a
// quarter of the memory, and garbage collection does not count against the queue. O(events).
func (s *Storm) Metadata() *Storm {
	out := *s
	out.Events = slices.Clone(s.Events)
	for i := range out.Events {
		e := &out.Events[i]
		o, err := meta.Accessor(e.Object)
		if err != nil {
			continue // No metadata to copy.
		}
		e.Object = &metav1.PartialObjectMetadata{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
			},
		}
	}
	return &out
}

// Fresh returns the storm with an object of its own for each event, as a decoder makes it. Namespace,
// name and UID share no memory with those of other events; with whole, nothing of a pod does.
// O(events).
func (s *Storm) Fresh(whole bool) *Storm {
	out := *s
	out.Events = slices.Clone(s.Events)
	for i := range out.Events {
		e := &out.Events[i]
		if pod, ok := e.Object.(*v1.Pod); ok && whole {
			if data, err := pod.Marshal(); err == nil {
				own := &v1.Pod{TypeMeta: pod.TypeMeta}
				if err := own.Unmarshal(data); err == nil {
					e.Object = own
					continue
				}
			}
		}
		e.Object = Renumber(e.Object, e.Seq)
		if o, err := meta.Accessor(e.Object); err == nil {
			o.SetNamespace(strings.Clone(o.GetNamespace()))
			o.SetName(strings.Clone(o.GetName()))
			o.SetUID(types.UID(strings.Clone(string(o.GetUID()))))
		}
	}
	return &out
}

// Renumber returns a copy of the object's struct with the sequence number as its
// resourceVersion. The copy shares what the struct points to.
func Renumber(o runtime.Object, seq uint64) runtime.Object {
	return wire.AtVersion(o, strconv.FormatUint(seq, 10))
}
