// Package controllerruntime tests queues of impls/deltafifo in the cache of
// controller-runtime. Its example configures a manager.
package controllerruntime_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"watchlab/impls/deltafifo"
	"watchlab/impls/informer"
	"watchlab/loadgen/apiserver"
	"watchlab/loadgen/storm"
)

func TestMain(m *testing.M) {
	// client-go's metadata client filters its watches. A filter that has an event when its watch is stopped stays
	// for ever (apimachinery, pkg/watch/filter.go).
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("k8s.io/apimachinery/pkg/watch.(*filteredWatch).loop"))
}

// server is a simulated API server.
type server struct {
	*apiserver.Server
	url string
}

// pods returns a storm of pods in the namespace default: an initial list, then one
// update of each pod.
func pods(names ...string) *storm.Storm {
	s := &storm.Storm{
		Name:     "pods",
		Resource: v1.SchemeGroupVersion.WithResource("pods"),
		Kind:     v1.SchemeGroupVersion.WithKind("Pod"),
		Initial:  len(names),
		Keys:     len(names),
	}
	for i := range 2 * len(names) {
		key, kind := i%len(names), watch.Added
		if i >= len(names) {
			kind = watch.Modified
		}
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace:       "default",
			Name:            names[key],
			ResourceVersion: strconv.Itoa(i + 1),
		}}
		s.Events = append(s.Events, storm.Event{
			Type: kind, Seq: uint64(i + 1), Key: storm.ObjectKey(p.Namespace, p.Name), KeyIndex: int32(key), Object: p,
		})
	}
	return s
}

// startServer starts a server with the initial list of a storm.
func startServer(s *storm.Storm) server {
	srv, err := apiserver.New(s, apiserver.Options{})
	if err != nil {
		panic(err)
	}
	url, err := srv.Start()
	if err != nil {
		panic(err)
	}
	return server{srv, url}
}

func (s server) close() {
	if err := s.Close(); err != nil {
		panic(err)
	}
}

// eventCalls is an event handler that sends each call to a channel.
type eventCalls chan string

func (c eventCalls) OnAdd(obj any, initial bool) {
	c <- fmt.Sprintf("add %s %t", version(obj), initial)
}
func (c eventCalls) OnUpdate(old, obj any) {
	c <- fmt.Sprintf("update %s %s", version(old), version(obj))
}
func (c eventCalls) OnDelete(obj any) { c <- fmt.Sprintf("delete %s", version(obj)) }

func version(obj any) string {
	o := obj.(client.Object)
	return o.GetName() + "@" + o.GetResourceVersion()
}

// TestCache runs controller-runtime's cache with each variant and delivery, for typed and untyped
// objects. It tests list, watch, handlers, and lookups by key, namespace and index.
func TestCache(t *testing.T) {
	for _, v := range deltafifo.Variants() {
		for _, g := range v.Guarantees {
			for _, kind := range []string{"typed", "unstructured"} {
				t.Run(fmt.Sprintf("impl=%s/delivery=%s/%s", v.Name, g.Mode, kind), func(t *testing.T) {
					newInformer, err := informer.Func(informer.Options{
						Variant: v.Name, Queue: deltafifo.Options{Delivery: deltafifo.Delivery(g.Mode)},
					})
					if err != nil {
						t.Fatal(err)
					}
					made := 0
					testCache(t, kind == "unstructured", cache.Options{
						NewInformer: func(lw toolscache.ListerWatcher, example runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
							made++
							return newInformer(lw, example, resync, indexers)
						},
					})
					if made != 1 {
						t.Errorf("%d informers created, want one", made)
					}
				})
			}
		}
	}
}

// podObject returns an empty pod, typed or untyped.
func podObject(untyped bool) client.Object {
	if !untyped {
		return &v1.Pod{}
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(v1.SchemeGroupVersion.WithKind("Pod"))
	return u
}

// podList returns an empty list of pods, typed or untyped.
func podList(untyped bool) client.ObjectList {
	if !untyped {
		return &v1.PodList{}
	}
	u := &unstructured.UnstructuredList{}
	u.SetGroupVersionKind(v1.SchemeGroupVersion.WithKind("PodList"))
	return u
}

func testCache(t *testing.T, untyped bool, opts cache.Options) {
	srv := startServer(pods("a", "b", "c"))
	defer srv.close()
	httpClient := &http.Client{Transport: &http.Transport{}}
	defer httpClient.CloseIdleConnections()
	opts.HTTPClient = httpClient
	var stripped atomic.Bool
	opts.DefaultTransform = func(obj any) (any, error) {
		stripped.Store(true)
		return obj, nil
	}
	c, err := cache.New(&rest.Config{Host: srv.url}, opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	byName := func(obj client.Object) []string { return []string{obj.GetName()} }
	if err := c.IndexField(ctx, podObject(untyped), "name", byName); err != nil {
		t.Fatal(err)
	}
	running.Go(func() {
		if err := c.Start(ctx); err != nil {
			t.Error(err)
		}
	})
	inf, err := c.GetInformer(ctx, podObject(untyped))
	if err != nil {
		t.Fatal(err)
	}
	calls := make(eventCalls, 10)
	handle, err := inf.AddEventHandler(calls)
	if err != nil {
		t.Fatal(err)
	}
	if !toolscache.WaitFor(ctx, "", handle.HasSyncedChecker()) {
		t.Fatal("the handler has not synced")
	}
	expect(t, calls, "add a@1 true", "add b@2 true", "add c@3 true")
	list := podList(untyped)
	for _, l := range []struct {
		by   client.ListOption
		want int
	}{
		{client.InNamespace("default"), 3},
		{client.InNamespace("other"), 0},
		{client.MatchingFields{"name": "b"}, 1},
	} {
		if err := c.List(ctx, list, l.by); err != nil || meta.LenList(list) != l.want {
			t.Errorf("List by %v has %d objects, %v; want %d", l.by, meta.LenList(list), err, l.want)
		}
	}
	srv.Release(6)
	expect(t, calls, "update a@1 a@4", "update b@2 b@5", "update c@3 c@6")
	obj := podObject(untyped)
	if err := c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "a"}, obj); err != nil || obj.GetResourceVersion() != "4" {
		t.Errorf("Get returned version %q, %v; want 4", obj.GetResourceVersion(), err)
	}
	if !stripped.Load() {
		t.Error("the transform was not called")
	}
	if err := inf.RemoveEventHandler(handle); err != nil {
		t.Error(err)
	}
	if err := c.RemoveInformer(ctx, podObject(untyped)); err != nil {
		t.Error(err)
	}
}

// expect waits for the wanted calls, in any order.
func expect(t *testing.T, calls eventCalls, want ...string) {
	t.Helper()
	var got []string
	for range want {
		got = append(got, <-calls)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("call %q, want %q", got, want)
	}
}
