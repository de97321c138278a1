package workload

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"watchlab/loadgen/apiserver"
)

// target is a server without a connection, and what it has changed.
type target struct {
	client dynamic.Interface
	mapper meta.RESTMapper
	hold   func(*http.Request) // before each request

	mu      sync.Mutex // guards the field below
	changes []apiserver.Change
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func newTarget(t *testing.T) *target {
	t.Helper()
	s := &target{hold: func(*http.Request) {}}
	server, err := apiserver.Open(apiserver.Options{Changed: func(c apiserver.Change) {
		if c.By == Manager {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.changes = append(s.changes, c)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	to := server.Transport(Manager)
	config := &rest.Config{Host: "http://in.process", QPS: -1, Transport: transport(func(r *http.Request) (*http.Response, error) {
		s.hold(r)
		return to.RoundTrip(r)
	})}
	if s.client, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	found, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	s.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(found))
	return s
}

// TestPlay: the objects are created, changed and deleted on a server, at their times divided by the speed.
func TestPlay(t *testing.T) {
	w := read(t, mixed, 1)
	synctest.Test(t, func(t *testing.T) {
		const speed = 4
		s := newTarget(t)
		if err := w.Create(t.Context(), s.client, s.mapper); err != nil {
			t.Fatal(err)
		}
		if len(s.changes) != len(w.initial) {
			t.Fatalf("Create: %d changes, want %d", len(s.changes), len(w.initial))
		}
		s.changes = nil
		began := time.Now()
		if err := w.Play(t.Context(), speed, s.client, s.mapper); err != nil {
			t.Fatal(err)
		}
		kinds := map[watch.EventType]Verb{watch.Added: Create, watch.Modified: Change, watch.Deleted: Delete}
		got := map[string][]string{}
		for _, c := range s.changes {
			o, err := meta.Accessor(c.Object)
			if err != nil {
				t.Fatal(err)
			}
			at := c.Intended.Sub(began)
			if c.At != c.Intended {
				t.Errorf("%s was due at %v and came %v late", o.GetName(), at, c.At.Sub(c.Intended))
			}
			got[o.GetName()] = append(got[o.GetName()], string(kinds[c.Type])+" "+at.String())
		}
		want := map[string][]string{}
		for _, a := range w.actions {
			at := time.Duration(float64(a.At) / speed)
			if patch, _ := a.Patch.(map[string]any); len(patch) == 1 && a.Object.GetKind() == "Secret" && slices.ContainsFunc(want[a.Object.GetName()], func(s string) bool {
				return strings.HasPrefix(s, string(Change))
			}) {
				continue // it has that value already
			}
			want[a.Object.GetName()] = append(want[a.Object.GetName()], string(a.Verb)+" "+at.String())
		}
		for name, list := range want {
			if !slices.Equal(got[name], list) {
				t.Errorf("%s: %v, want %v", name, got[name], list)
			}
		}
	})
}

// TestPlayIsOpenLoop: a slow answer delays the later requests of its object alone, however many wait, and their intended
// times remain.
func TestPlayIsOpenLoop(t *testing.T) {
	w := read(t, `objects:
- {object: {apiVersion: v1, kind: ConfigMap, metadata: {name: slow}}, change: [{at: 1s, for: 3s, rate: 20, set: {data.n: "{n}"}}]}
- {object: {apiVersion: v1, kind: ConfigMap, metadata: {name: quick}}, change: [{at: 1s, for: 3s, rate: 1, set: {data.n: "{n}"}}]}
`, 1)
	synctest.Test(t, func(t *testing.T) {
		s := newTarget(t)
		if err := w.Create(t.Context(), s.client, s.mapper); err != nil {
			t.Fatal(err)
		}
		s.changes = nil
		s.hold = func(r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/slow") {
				time.Sleep(10 * time.Second)
			}
		}
		began := time.Now()
		if err := w.Play(t.Context(), 1, s.client, s.mapper); err != nil {
			t.Fatal(err)
		}
		got := map[string][]string{}
		for _, c := range s.changes {
			got[c.Key] = append(got[c.Key], c.Intended.Sub(began).String()+" "+c.At.Sub(began).String())
		}
		slow := got["default/slow"]
		if want := []string{"1s 11s", "1.05s 21s", "1.1s 31s"}; len(slow) != 60 || !slices.Equal(slow[:3], want) {
			t.Errorf("slow: due and done at %v, want 60 that begin with %v", slow, want)
		}
		if want := []string{"1s 1s", "2s 2s", "3s 3s"}; !slices.Equal(got["default/quick"], want) {
			t.Errorf("quick: due and done at %v, want %v", got["default/quick"], want)
		}
	})
}

// TestSubresource changes the status of an object, with the time of each request.
func TestSubresource(t *testing.T) {
	w := read(t, `objects:
- object: {apiVersion: v1, kind: Node, metadata: {name: a}}
  change:
  - {at: 1s, for: 2s, rate: 1, subresource: status, set: {status.conditions: [[{type: Ready, lastHeartbeatTime: "{now}"}]]}}
`, 1)
	synctest.Test(t, func(t *testing.T) {
		s := newTarget(t)
		paths := map[string]int{}
		s.hold = func(r *http.Request) { paths[r.Method+" "+r.URL.Path]++ }
		if err := w.Create(t.Context(), s.client, s.mapper); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := w.Play(t.Context(), 1, s.client, s.mapper); err != nil {
			t.Fatal(err)
		}
		if n := paths["PATCH /api/v1/nodes/a/status"]; n != 2 {
			t.Errorf("%d patches of the status, want 2: %v", n, paths)
		}
		for i, c := range s.changes[1:] {
			want := began.Add(time.Duration(i+1) * time.Second).Truncate(time.Second)
			if got := c.Object.(*v1.Node).Status.Conditions[0].LastHeartbeatTime; !got.Time.Equal(want) {
				t.Errorf("request %d: time %v, want %v", i, got, want)
			}
		}
	})
}

// TestPlayEnds: an object that is gone is no error; another failure is, and ends the play, as its context does.
func TestPlayEnds(t *testing.T) {
	w := read(t, `objects:
- {object: {apiVersion: v1, kind: ConfigMap, metadata: {name: c}}, change: [{at: 1s, for: 1s, rate: 1, set: {data.n: "{n}"}}], delete: {at: 2s, rate: 1}}
- {object: {apiVersion: v1, kind: ConfigMap, metadata: {name: late}}, create: {at: 1h, rate: 1}}
`, 1)
	synctest.Test(t, func(t *testing.T) {
		s := newTarget(t)
		// The object c was never created.
		if err := w.Play(t.Context(), 1, s.client, s.mapper); err != nil {
			t.Errorf("with an object that is gone: %v", err)
		}
		began := time.Now()
		err := w.Play(t.Context(), 1, s.client, s.mapper) // late exists
		if !apierrors.IsAlreadyExists(err) || !strings.Contains(err.Error(), "create ConfigMap late: ") || time.Since(began) != time.Hour {
			t.Errorf("with an object that exists: %v after %v", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := w.Play(ctx, 1, s.client, s.mapper); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a deadline: %v", err)
		}
	})
}

// TestCreateErrors: a kind that is not served and an object that exists are errors with the object.
func TestCreateErrors(t *testing.T) {
	s := newTarget(t)
	unknown := read(t, "objects:\n- object: {apiVersion: example.com/v1, kind: Widget, metadata: {name: w}}\n", 1)
	if err := unknown.Create(t.Context(), s.client, s.mapper); !meta.IsNoMatchError(errors.Unwrap(err)) || !strings.Contains(err.Error(), "Widget w: ") {
		t.Errorf("an unknown kind: %v", err)
	}
	w := read(t, "objects:\n- "+object+"\n- object: {apiVersion: v1, kind: Namespace, metadata: {name: space}}\n", 1)
	if err := w.Create(t.Context(), s.client, s.mapper); err != nil {
		t.Fatal(err)
	}
	if err := w.Create(t.Context(), s.client, s.mapper); !apierrors.IsAlreadyExists(err) || !strings.Contains(err.Error(), "ConfigMap c: ") {
		t.Errorf("an object that exists: %v", err)
	}
}

// TestKeep: a change without an end is no action, and reaches the objects in turn at its times until the context ends.
func TestKeep(t *testing.T) {
	w := read(t, `objects:
- {copies: 2, object: {apiVersion: v1, kind: ConfigMap, metadata: {name: beat}}, change: [{at: 1s, rate: 2, set: {data.n: "{n}"}}]}
`, 1)
	if n := len(w.actions); n != 0 {
		t.Errorf("%d actions", n)
	}
	synctest.Test(t, func(t *testing.T) {
		s := newTarget(t)
		if err := w.Create(t.Context(), s.client, s.mapper); err != nil {
			t.Fatal(err)
		}
		s.changes = nil
		began := time.Now()
		ctx, stop := context.WithDeadline(t.Context(), began.Add(1100*time.Millisecond))
		defer stop()
		w.Keep(ctx, 2, s.client, s.mapper)
		var got []string
		for _, c := range s.changes {
			got = append(got, c.Key+" "+c.Intended.Sub(began).String())
		}
		if want := []string{"default/beat-0 500ms", "default/beat-1 750ms", "default/beat-0 1s"}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}
