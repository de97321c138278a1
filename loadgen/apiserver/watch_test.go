package apiserver

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/storm"
)

// A watch without a filter receives the storm's frames.
func TestWatchFromVersion(t *testing.T) {
	s := pods(300)
	srv := start(t, s, Options{})
	next := srv.open(t, fmt.Sprintf("/api/v1/pods?watch=1&resourceVersion=%d", s.Initial))
	for seq := s.Initial + 1; seq <= len(s.Events); seq++ {
		srv.Release(uint64(seq))
		if got, want := string(next()), string(srv.frames(t, uint64(seq-1), uint64(seq))); got != want {
			t.Fatalf("frame %d is %s, want %s", seq, got, want)
		}
	}
	// Watch again from the middle, with all events released.
	from := len(s.Events) / 2
	next = srv.open(t, fmt.Sprintf("/api/v1/pods?watch=true&resourceVersion=%d", from))
	for seq := from + 1; seq <= len(s.Events); seq++ {
		if e, _ := decodeFrame(t, next()); e.Version != strconv.Itoa(seq) {
			t.Fatalf("version %s, want %d", e.Version, seq)
		}
	}
	if n := srv.opened(); n != 2 {
		t.Errorf("%d watches, want 2", n)
	}
	if n := srv.Snapshots(); n != 0 {
		t.Errorf("Snapshots() = %d, want 0", n)
	}
	if got, least := srv.WireBytes(), int64(len(srv.frames(t, 0, uint64(len(s.Events))))); got < least {
		t.Errorf("WireBytes() = %d, want more than the %d of the frames", got, least)
	}
}

// viewer applies the events of a watch to a state and refuses events that do not fit.
type viewer map[string]string

func (v viewer) apply(t testing.TB, e seen) {
	t.Helper()
	_, there := v[e.Key]
	if there == (e.Type == watch.Added) {
		t.Fatalf("%v where there=%v", e, there)
	}
	if e.Type == watch.Deleted {
		delete(v, e.Key)
	} else {
		v[e.Key] = e.Version
	}
}

// want returns the state at a position of the objects that a filter selects.
func want(s *storm.Storm, at int, takes func(*v1.Pod) bool) viewer {
	v := viewer{}
	for _, e := range s.Events[:at] {
		if p := e.Object.(*v1.Pod); e.Type != watch.Deleted && takes(p) {
			v[e.Key] = p.ResourceVersion
		} else {
			delete(v, e.Key)
		}
	}
	return v
}

var filters = []struct {
	path  string
	takes func(*v1.Pod) bool
}{
	{"/api/v1/pods?x=y", func(*v1.Pod) bool { return true }},
	{"/api/v1/namespaces/ns-1/pods?x=y", func(p *v1.Pod) bool { return p.Namespace == "ns-1" }},
	{"/api/v1/namespaces/none/pods?x=y", func(*v1.Pod) bool { return false }},
	{"/api/v1/pods?labelSelector=app%3Da1", func(p *v1.Pod) bool { return p.Labels["app"] == "a1" }},
	{"/api/v1/pods?labelSelector=app+notin+(a1),app", func(p *v1.Pod) bool { return p.Labels["app"] != "a1" }},
	{"/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-1", func(p *v1.Pod) bool { return p.Spec.NodeName == "node-1" }},
	{"/api/v1/pods?fieldSelector=spec.nodeName!%3Dnode-1,metadata.namespace%3Dns-0", func(p *v1.Pod) bool { return p.Spec.NodeName != "node-1" && p.Namespace == "ns-0" }},
	{"/api/v1/namespaces/ns-0/pods?fieldSelector=metadata.name%3Dpod-3", func(p *v1.Pod) bool { return p.Name == "pod-3" && p.Namespace == "ns-0" }},
}

// At every bookmark, the state of a filtered watch equals a filtered list of that version.
func TestFilteredWatch(t *testing.T) {
	s := pods(400)
	for _, f := range filters {
		t.Run(f.path, func(t *testing.T) {
			srv := start(t, s, Options{BookmarkInterval: time.Millisecond})
			next := srv.open(t, f.path+"&watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan")
			v := viewer{}
			last, marks := 0, 0
			for at := s.Initial; ; {
				e, p := decodeFrame(t, next())
				version, err := strconv.Atoi(e.Version)
				if err != nil {
					t.Fatal(err)
				}
				if e.Type != watch.Bookmark {
					if marks > 0 && version <= last {
						t.Fatalf("%v after version %d", e, last)
					}
					// DELETED has the pod's last matching state.
					if !f.takes(p) {
						t.Fatalf("%v %v on %s: not selected", e, p.Labels, p.Spec.NodeName)
					}
					last = max(last, version)
					v.apply(t, e)
					continue
				}
				if first := p.Annotations[metav1.InitialEventsAnnotationKey] == "true"; first != (marks == 0) {
					t.Fatalf("bookmark %d: annotated: %v", marks, first)
				}
				marks++
				if diff := cmp.Diff(want(s, version, f.takes), v); diff != "" {
					t.Fatalf("at %d (-want +got):\n%s", version, diff)
				}
				if version == len(s.Events) {
					return
				}
				if version == at {
					at = min(at+7, len(s.Events))
					srv.Release(uint64(at))
				}
			}
		})
	}
}

// A watch allocates nothing for an event.
func TestWatchDoesNotAllocate(t *testing.T) {
	s := pods(2000)
	srv, err := New(s, Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := srv.storms[0]
	out := &discard{header: http.Header{}}
	// Compute what the first watch with a selector computes once.
	if _, _, err := c.log.Event(0); err != nil {
		t.Fatal(err)
	}
	for _, f := range []filter{{}, {namespace: "ns-1"}} {
		srv.Release(uint64(s.Initial))
		w := &watcher{
			request:  &request{target: target{resource: c.stored}, collection: c, kind: c.kind, w: out},
			query:    &query{filter: f},
			follower: c.log.Follow(0),
			out:      http.NewResponseController(out),
			scratch:  make([]byte, 0, 2*writeSize),
		}
		n := uint64(0)
		allocs := testing.AllocsPerRun(1000, func() {
			n++
			srv.Release(n)
			if err := w.events(n); err != nil {
				t.Fatal(err)
			}
		})
		w.follower.Close()
		if allocs > 0 {
			t.Errorf("%v allocations an event with the filter %+v, want none", allocs, f)
		}
	}
	if out.n == 0 {
		t.Error("nothing was written")
	}
}

type discard struct {
	header http.Header
	n      int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { d.n += len(b); return len(b), nil }
func (d *discard) WriteHeader(int)             {}
func (d *discard) Flush()                      {}

// Watches see what was written before their definition changes, or what goes with it, and end, as a real server's.
func TestDefinitionEndsWatches(t *testing.T) {
	const crd, objects = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com", "/apis/example.com/v1/namespaces/default/widgets"
	widgets, err := os.ReadFile("testdata/widgets.yaml")
	if err != nil {
		t.Fatal(err)
	}
	change := func(patch string) [3]string { return [3]string{http.MethodPatch, crd, patch} }
	for name, tt := range map[string]struct {
		writes [][3]string
		want   string
	}{
		"schema": {[][3]string{change(`[{"op":"remove","path":"/spec/versions/0/schema/openAPIV3Schema/required"}]`)}, "[ADDED]"},
		"label": {[][3]string{
			change(`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`), {http.MethodDelete, objects + "/w"}, {http.MethodDelete, crd},
		}, "[ADDED DELETED]"},
		"deleted": {[][3]string{{http.MethodDelete, crd}}, "[ADDED DELETED]"},
	} {
		t.Run(name, func(t *testing.T) {
			srv := open(t, Options{})
			srv.defineCRD(t, string(widgets))
			next := srv.open(t, objects+"?watch=1&resourceVersion=1")
			create := [3]string{http.MethodPost, objects, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"size":"small"}}`}
			for _, ask := range append([][3]string{create}, tt.writes...) {
				content := map[string]string{http.MethodPatch: "application/json-patch+json"}[ask[0]]
				if code, answer := srv.ask(ask[0], ask[1], "", content, ask[2]); code >= http.StatusBadRequest {
					t.Fatalf("%s %s: %s", ask[0], ask[1], answer)
				}
			}
			var got []watch.EventType
			for frame := next(); frame != nil; frame = next() {
				one, _ := decodeFrame(t, frame)
				got = append(got, one.Type)
			}
			if fmt.Sprint(got) != tt.want {
				t.Errorf("events %v, want %s", got, tt.want)
			}
		})
	}
}
