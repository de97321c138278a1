package storm_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"pgregory.net/rapid"

	"watchlab/loadgen/storm"
)

// script returns a storm of pods from lines of "TYPE name [node]". Each pod's UID is the
// number of its event, which no operation changes. Events are 1 s apart.
func script(initial int, lines ...string) *storm.Storm {
	s := &storm.Storm{Name: "script", Initial: initial}
	index := map[string]int32{}
	for i, line := range lines {
		f := append(strings.Fields(line), "")
		key := "ns/" + f[1]
		if _, ok := index[key]; !ok {
			index[key] = int32(len(index))
		}
		s.Events = append(s.Events, storm.Event{
			Type:     watch.EventType(f[0]),
			Seq:      uint64(i + 1),
			At:       time.Duration(i) * time.Second,
			Key:      key,
			KeyIndex: index[key],
			Object: &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Namespace:       "ns",
					Name:            f[1],
					UID:             types.UID(strconv.Itoa(i + 1)),
					ResourceVersion: strconv.Itoa(i + 1),
					Labels:          map[string]string{"of": line},
				},
				Spec: v1.PodSpec{NodeName: f[2]},
			},
		})
	}
	s.Keys = len(index)
	return s
}

// lines is the inverse of script, with the UID of each object.
func lines(s *storm.Storm) []string {
	var out []string
	for _, e := range s.Events {
		pod := e.Object.(*v1.Pod)
		l := fmt.Sprintf("%s %s %s", e.Type, pod.Name, pod.Spec.NodeName)
		out = append(out, strings.TrimSpace(l)+" #"+string(pod.UID))
	}
	return out
}

func deepCopy(s *storm.Storm) *storm.Storm {
	c := *s
	c.Events = slices.Clone(s.Events)
	for i := range c.Events {
		c.Events[i].Object = c.Events[i].Object.DeepCopyObject()
	}
	return &c
}

// drawStorm draws a valid storm with marks, of pods that are bound at their first event, at a later event,
// or never.
func drawStorm(t *rapid.T) *storm.Storm {
	alive, node := map[string]bool{}, map[string]string{}
	draw := func(name string, types []string) string {
		if alive[name] {
			types = slices.DeleteFunc(slices.Clone(types), func(s string) bool { return s == "ADDED" })
		} else {
			types = []string{"ADDED"}
			node[name] = ""
		}
		if node[name] == "" {
			node[name] = rapid.SampledFrom([]string{"", "n1", "n10", "n2"}).Draw(t, "node")
		}
		typ := rapid.SampledFrom(types).Draw(t, "type")
		alive[name] = typ != "DELETED"
		return typ + " " + name + " " + node[name]
	}
	var out []string
	initial := rapid.IntRange(0, 5).Draw(t, "initial")
	for i := range initial {
		out = append(out, draw("p"+strconv.Itoa(i), []string{"ADDED"}))
	}
	for range rapid.IntRange(0, 30).Draw(t, "events") {
		name := "p" + strconv.Itoa(rapid.IntRange(0, 7).Draw(t, "pod"))
		out = append(out, draw(name, []string{"ADDED", "MODIFIED", "DELETED"}))
	}
	s := script(initial, out...)
	for after := initial; after < len(s.Events) && len(s.Marks) < 3; after = rapid.IntRange(after+1, len(s.Events)).Draw(t, "after") {
		s.Marks = append(s.Marks, storm.Mark{After: uint64(after), Type: storm.MarkResync})
	}
	return s
}

func TestValidate(t *testing.T) {
	good := func() *storm.Storm {
		return script(2, "ADDED a", "ADDED b", "MODIFIED a", "DELETED a", "ADDED a", "ADDED c")
	}
	noError(t, good().Validate())
	if err := (&storm.Storm{}).Validate(); err != nil {
		t.Errorf("no events: %v", err)
	}
	for _, tc := range []struct {
		name  string
		spoil func(*storm.Storm)
		want  string
	}{
		{"gap in sequence", func(s *storm.Storm) { s.Events[2].Seq = 4 }, "event 3 (MODIFIED ns/a): its number is 4"},
		{"time", func(s *storm.Storm) { s.Events[3].At = 0 }, "event 4 (DELETED ns/a): its time 0s is before its predecessor's 2s"},
		{"key index", func(s *storm.Storm) { s.Events[5].KeyIndex = 1 }, "event 6 (ADDED ns/c): key index 1, but the key is number 2 in order of appearance"},
		{"initial list", func(s *storm.Storm) { s.Initial = 3 }, "event 3 (MODIFIED ns/a): the initial list has ADDED only"},
		{"initial too long", func(s *storm.Storm) { s.Initial = 7 }, "an initial list of 7 events in a storm of 6"},
		{"added twice", func(s *storm.Storm) { s.Events[2].Type = watch.Added }, "event 3 (ADDED ns/a): the object exists already"},
		{"modified after deletion", func(s *storm.Storm) { s.Events[4].Type = watch.Modified }, "event 5 (MODIFIED ns/a): the object does not exist"},
		{"deleted when gone", func(s *storm.Storm) { s.Events[4].Type = watch.Deleted }, "event 5 (DELETED ns/a): the object does not exist"},
		{"type", func(s *storm.Storm) { s.Events[4].Type = watch.Bookmark }, "event 5 (BOOKMARK ns/a): the type is none of ADDED, MODIFIED, DELETED"},
		{"no object", func(s *storm.Storm) { s.Events[0].Object = nil }, "event 1 (ADDED ns/a): no object"},
		{"object without metadata", func(s *storm.Storm) { s.Events[0].Object = &metav1.Status{} }, "event 1 (ADDED ns/a): object does not implement the Object interfaces"},
		{"resourceVersion", func(s *storm.Storm) { s.Events[1].Object.(*v1.Pod).ResourceVersion = "7" }, `event 2 (ADDED ns/b): its object has resourceVersion "7"`},
		{"other object", func(s *storm.Storm) { s.Events[1].Object.(*v1.Pod).Name = "z" }, "event 2 (ADDED ns/b): its object is ns/z"},
		{"mark", func(s *storm.Storm) { s.Marks = []storm.Mark{{After: 3, Type: "quake"}} }, `mark 1 has type "quake" (allowed: relist, resync)`},
		{"mark in the list", func(s *storm.Storm) { s.Marks = []storm.Mark{{After: 1, Type: storm.MarkRelist}} }, "mark 1 (relist) after event 1 (allowed: 2 or more, fewer than 6)"},
		{"mark at the end", func(s *storm.Storm) { s.Marks = []storm.Mark{{After: 6, Type: storm.MarkResync}} }, "mark 1 (resync) after event 6 (allowed: 2 or more, fewer than 6)"},
		{"marks out of order", func(s *storm.Storm) {
			s.Marks = []storm.Mark{{After: 4, Type: storm.MarkResync}, {After: 3, Type: storm.MarkResync}}
		}, "mark 2 (resync) after event 3 (allowed: 4 or more, fewer than 6)"},
		{"keys", func(s *storm.Storm) { s.Keys = 4 }, "Keys is 4, but there are 3"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := good()
			tc.spoil(s)
			err := s.Validate()
			if !errors.Is(err, storm.ErrInvalid) {
				t.Fatalf("Validate = %v", err)
			}
			if got := strings.TrimPrefix(err.Error(), "invalid storm: "); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestFinalAndPeak(t *testing.T) {
	s := script(0, "ADDED a", "ADDED b", "MODIFIED a", "ADDED c", "DELETED b", "DELETED c", "ADDED c")
	if diff := cmp.Diff(map[string]uint64{"ns/a": 3, "ns/c": 7}, s.Final()); diff != "" {
		t.Error(diff)
	}
	if got := s.Peak(); got != 3 {
		t.Errorf("Peak = %d", got)
	}
}

func TestAtLeast(t *testing.T) {
	s := script(2,
		"ADDED a", "ADDED b", // initial
		"DELETED b", "MODIFIED a", "ADDED c", "ADDED d", "DELETED d",
	)
	got := s.AtLeast(8)
	noError(t, got.Validate())
	want := []string{
		"ADDED a #1", "ADDED b #2",
		"DELETED b #3", "MODIFIED a #4", "ADDED c #5", "ADDED d #6", "DELETED d #7",
		// b is already deleted, c still exists.
		"MODIFIED a #4", "MODIFIED c #5", "ADDED d #6", "DELETED d #7",
	}
	if diff := cmp.Diff(want, lines(got)); diff != "" {
		t.Error(diff)
	}
	// The laps start at the end of the initial list, at 1 s, and last 5 s.
	if at := got.Events[7].At; at != 3*time.Second+5*time.Second {
		t.Errorf("the second lap's MODIFIED a is at %v", at)
	}
	if got.Initial != 2 || got.Keys != 4 {
		t.Errorf("Initial %d, Keys %d", got.Initial, got.Keys)
	}
}

// TestMarks: marks stay between the same events.
func TestMarks(t *testing.T) {
	s := script(2,
		"ADDED a n1", "ADDED b n2", // initial
		"MODIFIED a n1", "MODIFIED b n2", "DELETED b n2", "MODIFIED a n1",
	)
	s.Marks = []storm.Mark{{After: 2, Type: storm.MarkResync}, {After: 4, Type: storm.MarkRelist}, {After: 5, Type: storm.MarkResync}}
	noError(t, s.Validate())
	node := must(s.ForNode(1))(t)
	for title, tc := range map[string]struct {
		got  *storm.Storm
		want []storm.Mark
	}{
		"as it is": {s.AtLeast(3), s.Marks},
		// The second lap is complete, because b is created again.
		"two laps": {s.AtLeast(7), append(slices.Clone(s.Marks),
			storm.Mark{After: 6, Type: storm.MarkResync}, storm.Mark{After: 8, Type: storm.MarkRelist}, storm.Mark{After: 9, Type: storm.MarkResync})},
		"the first four": {s.First(4), s.Marks[:1]},
		"the first five": {s.First(5), s.Marks[:2]},

		"a node": {node, []storm.Mark{{After: 1, Type: storm.MarkResync}, {After: 2, Type: storm.MarkRelist}, {After: 2, Type: storm.MarkResync}}},
	} {
		if err := tc.got.Validate(); err != nil {
			t.Errorf("%s: %v", title, err)
		}
		if diff := cmp.Diff(tc.want, tc.got.Marks); diff != "" {
			t.Errorf("%s: %s", title, diff)
		}
	}
	if len(s.Marks) != 3 {
		t.Errorf("the storm itself has %v", s.Marks)
	}
}

func TestAtLeastEmpty(t *testing.T) {
	for name, s := range map[string]*storm.Storm{
		"nothing after the initial list": script(1, "ADDED a"),
		"only deletions after it":        script(2, "ADDED a", "ADDED b", "DELETED a", "DELETED b"),
		"empty":                          script(0),
	} {
		got := s.AtLeast(100)
		if len(got.Events) != len(s.Events) || got.Validate() != nil {
			t.Errorf("%s: %q, %v", name, lines(got), got.Validate())
		}
	}
}

func TestAtLeastUnstructured(t *testing.T) {
	s := script(0, "ADDED a", "MODIFIED a")
	for i := range s.Events {
		u := must(runtime.DefaultUnstructuredConverter.ToUnstructured(s.Events[i].Object))(t)
		s.Events[i].Object = &unstructured.Unstructured{Object: u}
	}
	if err := errors.Join(s.Validate(), s.AtLeast(6).Validate()); err != nil {
		t.Error(err)
	}
}

// TestDerivedProperties: a storm that is longer, or the view of a node, is valid and leaves its origin as it is.
func TestDerivedProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawStorm(t)
		if err := s.Validate(); err != nil {
			t.Fatalf("drawStorm: %v", err)
		}
		before := deepCopy(s)
		n, pods := rapid.IntRange(0, 200).Draw(t, "n"), rapid.IntRange(1, 6).Draw(t, "pods")
		got := s.AtLeast(n)
		noError(t, got.Validate())
		lap := s.Events[s.Initial:]
		onlyDeletes := !slices.ContainsFunc(lap, func(e storm.Event) bool { return e.Type != watch.Deleted })
		if len(got.Events) < n && !onlyDeletes || len(got.Events) >= n+len(lap) && len(got.Events) > len(s.Events) {
			t.Fatalf("%d events for %d, with laps of %d or fewer", len(got.Events), n, len(lap))
		}
		objects, nodes := map[runtime.Object]bool{}, map[string]bool{}
		for _, e := range got.Events {
			if objects[e.Object] {
				t.Fatalf("event %d shares its object", e.Seq)
			}
			objects[e.Object] = true
			nodes[e.Object.(*v1.Pod).Spec.NodeName] = true
		}
		delete(nodes, "")
		node, err := s.ForNode(pods)
		if (err == nil) != (len(nodes) > 0) {
			t.Fatalf("%d nodes: %v", len(nodes), err)
		}
		if err == nil {
			noError(t, errors.Join(node.Validate(), node.AtLeast(3*len(node.Events)).Validate()))
			// As many pods as a node has, or those of all nodes.
			if all, err := s.ForNode(1000); err != nil || node.Peak() < min(pods, all.Peak()) {
				t.Fatalf("a peak of %d pods: %v", node.Peak(), err)
			}
		}
		if diff := cmp.Diff(before, s); diff != "" {
			t.Fatalf("the storm has changed: %s", diff)
		}
	})
}

func TestForNode(t *testing.T) {
	s := script(3,
		"ADDED a n1", "ADDED b n2", "ADDED c", // initial
		"MODIFIED c n10", "MODIFIED c n10", "MODIFIED b n2", "DELETED a n1", "ADDED d", "DELETED d",
		"ADDED a n2", "ADDED e n10", "DELETED c n10",
	)
	// A pod that changes its node disappears from the first one. No API server allows that today.
	moved := must(script(0, "ADDED a n1", "MODIFIED a n2", "MODIFIED a n1", "DELETED a n2").ForNode(1))(t)
	if diff := cmp.Diff([]string{"ADDED a node-0 #1", "DELETED a node-0 #2", "ADDED a node-0 #3", "DELETED a node-0 #4"}, lines(moved)); diff != "" {
		t.Error(diff)
	}
	for _, tc := range []struct {
		pods, initial, keys int
		want                []string
	}{
		{1, 1, 1, []string{"ADDED a node-0 #1", "DELETED a node-0 #7"}},
		{2, 1, 3, []string{ // n1 and n10: a name's order
			"ADDED a node-0 #1", "ADDED c node-0 #4", "MODIFIED c node-0 #5", "DELETED a node-0 #7",
			"ADDED e node-0 #11", "DELETED c node-0 #12",
		}},
		{50, 2, 4, []string{
			"ADDED a node-0 #1", "ADDED b node-0 #2", "ADDED c node-0 #4", "MODIFIED c node-0 #5",
			"MODIFIED b node-0 #6", "DELETED a node-0 #7", "ADDED a node-0 #10", "ADDED e node-0 #11",
			"DELETED c node-0 #12",
		}},
	} {
		got := must(s.ForNode(tc.pods))(t)
		if err := got.Validate(); err != nil {
			t.Errorf("%d pods: %v", tc.pods, err)
		}
		if diff := cmp.Diff(tc.want, lines(got)); diff != "" {
			t.Errorf("%d pods: %s", tc.pods, diff)
		}
		if got.Initial != tc.initial || got.Keys != tc.keys {
			t.Errorf("%d pods: Initial %d, Keys %d", tc.pods, got.Initial, got.Keys)
		}
	}
}

func TestForNodeErrors(t *testing.T) {
	pods := script(0, "ADDED a n1")
	nodes := script(0, "ADDED a")
	nodes.Events[0].Object = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	for _, tc := range []struct {
		s    *storm.Storm
		pods int
		want string
	}{
		{pods, 0, "storm script: a node with 0 pods (allowed: 1 or more)"},
		{pods, -3, "storm script: a node with -3 pods (allowed: 1 or more)"},
		{script(0, "ADDED a"), 1, "storm script: no pod is bound to a node"},
		{script(0), 1, "storm script: no pod is bound to a node"},
		{nodes, 1, "storm script: not a storm of pods: event 1 has a *v1.Node"},
	} {
		if _, err := tc.s.ForNode(tc.pods); err == nil || err.Error() != tc.want {
			t.Errorf("got %v, want %s", err, tc.want)
		}
	}
	if _, err := nodes.ForNode(1); !errors.Is(err, storm.ErrNotPods) {
		t.Errorf("%v is not ErrNotPods", err)
	}
}

// TestMetadata: the same events with smaller objects.
func TestMetadata(t *testing.T) {
	full := script(1, "ADDED a", "ADDED b n", "MODIFIED a n", "DELETED b n", "MODIFIED a n")
	light := full.Metadata()
	noError(t, light.Validate())
	for i, e := range light.Events {
		is, was := e.Object.(*metav1.PartialObjectMetadata), full.Events[i].Object.(*v1.Pod)
		want := metav1.ObjectMeta{Namespace: was.Namespace, Name: was.Name, UID: was.UID, ResourceVersion: was.ResourceVersion}
		if diff := cmp.Diff(want, is.ObjectMeta); diff != "" {
			t.Errorf("event %d: %s", i+1, diff)
		}
	}
}

// must returns the value of a call, or ends the test with its error.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// noError ends the test with the error of a call.
func noError(t rapid.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
