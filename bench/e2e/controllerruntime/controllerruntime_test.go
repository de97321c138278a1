// Package controllerruntime tests informers below controller-runtime's cache and client, and workqueues
// below its controllers. Its example configures a manager.
package controllerruntime_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"watchlab/loadgen/apiserver"
	"watchlab/loadgen/storm"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == asManager {
		manage(len(os.Args) > 2)
		return
	}
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

// startCache runs a cache until the end of the test.
func startCache(t *testing.T, config *rest.Config, opts cache.Options) cache.Cache {
	t.Helper()
	c := must(cache.New(config, opts))(t)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := c.Start(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return c
}

// handle adds a handler to the informer of objects like obj, and returns its calls.
func handle(t *testing.T, c cache.Cache, obj client.Object) eventCalls {
	t.Helper()
	inf := must(c.GetInformer(t.Context(), obj))(t)
	calls := make(eventCalls, 10)
	if _, err := inf.AddEventHandler(calls); err != nil {
		t.Fatal(err)
	}
	return calls
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
