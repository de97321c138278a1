package apiserver

import (
	"encoding/json"
	"fmt"
	"net/http"
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
	if n := srv.Watches(); n != 2 {
		t.Errorf("Watches() = %d, want 2", n)
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

// A watch from an expired version gets an ERROR event with status 410 and ends.
func TestWatchGone(t *testing.T) {
	srv := start(t, pods(200), Options{Retain: 20})
	srv.Release(200)
	next := srv.open(t, "/api/v1/pods?watch=1&resourceVersion=179")
	var e struct {
		Type   watch.EventType
		Object metav1.Status
	}
	frame := next()
	if err := json.Unmarshal(frame, &e); err != nil {
		t.Fatal(err)
	}
	if e.Type != watch.Error || e.Object.Code != http.StatusGone || e.Object.Reason != metav1.StatusReasonExpired {
		t.Errorf("frame %s, want an ERROR with 410", frame)
	}
	if more := next(); more != nil {
		t.Errorf("frame %s after the ERROR", more)
	}
	next = srv.open(t, "/api/v1/pods?watch=1&resourceVersion=180")
	if e, _ := decodeFrame(t, next()); e.Version != "181" {
		t.Errorf("a watch from the oldest version starts with %s, want 181", e.Version)
	}
}

func TestWatchTimeout(t *testing.T) {
	t.Parallel() // it waits
	srv := start(t, pods(40), Options{})
	next := srv.open(t, "/api/v1/pods?watch=1&resourceVersion=1&timeoutSeconds=1&fieldSelector=metadata.name%3Dnone")
	if frame := next(); frame != nil {
		t.Errorf("frame %s, want the end", frame)
	}
}

// A watch from version 0 starts with the oldest state, a watch without a version with
// the current one. Neither marks the end of the initial state.
func TestLegacyInitialEvents(t *testing.T) {
	s := pods(200)
	srv := start(t, s, Options{})
	srv.Release(200)
	for version, at := range map[string]int{"": 200, "0": s.Initial} {
		next := srv.open(t, "/api/v1/pods?watch=1&allowWatchBookmarks=true&resourceVersion="+version)
		v := viewer{}
		state := want(s, at, func(*v1.Pod) bool { return true })
		for range state {
			e, _ := decodeFrame(t, next())
			v.apply(t, e)
		}
		if diff := cmp.Diff(state, v); diff != "" {
			t.Errorf("resourceVersion=%q (-want +got):\n%s", version, diff)
		}
	}
}

// A watch whose client does not read delays neither Release nor another watch. It
// receives all events in the end.
func TestSlowWatch(t *testing.T) {
	s := bulky()
	srv := start(t, s, Options{})
	path := fmt.Sprintf("/api/v1/pods?watch=1&resourceVersion=%d", s.Initial)
	slow, fast := srv.open(t, path), srv.open(t, path)
	for seq := s.Initial + 1; seq <= len(s.Events); seq++ {
		srv.Release(uint64(seq))
	}
	for _, next := range []func() []byte{fast, slow} {
		for seq := s.Initial + 1; seq <= len(s.Events); seq++ {
			if got, want := string(next()), string(srv.frames(t, uint64(seq-1), uint64(seq))); got != want {
				t.Fatalf("frame %d is %.80s…, want %.80s…", seq, got, want)
			}
		}
	}
}
