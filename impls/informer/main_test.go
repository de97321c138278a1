package informer_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"
	"k8s.io/klog/v2"

	"watchlab/impls"
	"watchlab/impls/deltafifo"
	"watchlab/impls/informer"
	"watchlab/impls/store"
)

func TestMain(m *testing.M) {
	// What informers warn of is looked at where a test is about it.
	klog.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m)
}

// eachQueue runs a test on each variant with each of its deliveries and, where
// it can be bounded, with little room; on the default one with each store.
func eachQueue(t *testing.T, f func(t *testing.T, opts informer.Options)) {
	for _, v := range deltafifo.Variants() {
		for _, g := range v.Guarantees {
			capacities := []int{0}
			if g.Bounded {
				capacities = append(capacities, 1, 7)
			}
			for _, capacity := range capacities {
				name := fmt.Sprintf("impl=%s/delivery=%s", v.Name, g.Mode)
				if capacity > 0 {
					name += fmt.Sprintf("/capacity=%d", capacity)
				}
				opts := informer.Options{Variant: v.Name, Queue: deltafifo.Options{
					Delivery: deltafifo.Delivery(g.Mode), Capacity: capacity,
				}}
				t.Run(name, func(t *testing.T) { f(t, opts) })
				if v.Name == informer.DefaultVariant && capacity == 0 {
					for _, indexer := range stores() {
						opts := opts
						opts.Store = indexer
						t.Run(name+"/store="+indexer, func(t *testing.T) { f(t, opts) })
					}
				}
			}
		}
	}
}

// stores returns the stores besides the default.
func stores() (names []string) {
	for _, v := range store.Variants() {
		if v.Name != informer.DefaultStore {
			names = append(names, v.Name)
		}
	}
	return names
}

// eachQueueInBubble is eachQueue with the time of testing/synctest.
func eachQueueInBubble(t *testing.T, f func(t *testing.T, opts informer.Options)) {
	eachQueue(t, func(t *testing.T, opts informer.Options) {
		synctest.Test(t, func(t *testing.T) { f(t, opts) })
	})
}

// totallyOrdered reports whether the queue delivers in arrival order.
func totallyOrdered(t *testing.T, opts informer.Options) bool {
	v := must(deltafifo.Lookup(opts.Variant))(t)
	g, _ := v.Mode(string(opts.Queue.Delivery))
	return g.Order == impls.OrderTotal
}

func newInformer(t testing.TB, lw cache.ListerWatcher, opts informer.Options) cache.SharedIndexInformer {
	t.Helper()
	inf := must(informer.New(lw, &v1.Pod{}, opts))(t)
	return inf
}

// source is client-go's fake of a resource of the API server. The first object
// that is added gets resourceVersion 11.
type source struct {
	*fcache.FakeControllerSource
}

// IsWatchListSemanticsUnSupported says that there is no WatchList.
func (source) IsWatchListSemanticsUnSupported() bool { return true }

func newSource(t testing.TB) source {
	s := fcache.NewFakeControllerSource()
	t.Cleanup(s.Shutdown)
	// It refuses to watch from version 0 once there has been an event, so that
	// one that comes between list and watch would arrive a second late.
	for range 5 {
		s.Add(pod("former"))
		s.Delete(pod("former"))
	}
	return source{s}
}

// run starts an informer and returns what stops it and waits for it, which is
// done at the end of the test, too.
func run(t testing.TB, inf cache.SharedIndexInformer) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { inf.RunWithContext(ctx) })
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return stop
}

func pod(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
}

// version returns a pod of a resourceVersion, for sources that don't set it.
func version(name string, rv int) *v1.Pod {
	p := pod(name)
	p.ResourceVersion = strconv.Itoa(rv)
	return p
}

// call is one call of a handler.
type call struct {
	kind      string
	initial   bool
	tombstone bool
	key       string
	// old and version are the resourceVersions before and after; that of what
	// was deleted is version.
	old, version string
}

func (c call) String() string {
	s := c.kind + " " + c.key + " " + c.version
	if c.kind == "update" {
		s = "update " + c.key + " " + c.old + "→" + c.version
	}
	if c.initial {
		s += " (initial)"
	}
	if c.tombstone {
		s += " (tombstone)"
	}
	return s
}

// recorder is a handler that records its calls.
type recorder struct {
	mu    sync.Mutex
	calls []call
	// before, if set, runs before each call is recorded.
	before func(call)
}

var _ cache.ResourceEventHandler = (*recorder)(nil)

func (r *recorder) record(c call) {
	if r.before != nil {
		r.before(c)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, c)
}

// take returns the calls since it was last called.
func (r *recorder) take() []call {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := r.calls
	r.calls = nil
	return calls
}

func (r *recorder) OnAdd(obj any, isInInitialList bool) {
	r.record(call{kind: "add", initial: isInInitialList, key: key(obj), version: resourceVersion(obj)})
}

func (r *recorder) OnUpdate(old, obj any) {
	r.record(call{kind: "update", key: key(obj), old: resourceVersion(old), version: resourceVersion(obj)})
}

func (r *recorder) OnDelete(obj any) {
	c := call{kind: "delete", key: key(obj)}
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		c.tombstone, obj = true, d.Obj
	}
	c.version = resourceVersion(obj)
	r.record(c)
}

func key(obj any) string {
	k, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		panic(err)
	}
	return k
}

func resourceVersion(obj any) string {
	a, err := meta.Accessor(obj)
	if err != nil {
		return "unknown"
	}
	return a.GetResourceVersion()
}

// hold blocks handlers until the test releases them, one at a time or all.
type hold struct {
	gate chan struct{}
	once sync.Once
}

func newHold() *hold { return &hold{gate: make(chan struct{})} }

func (h *hold) wait(call) { <-h.gate }
func (h *hold) one()      { h.gate <- struct{}{} }
func (h *hold) open()     { h.once.Do(func() { close(h.gate) }) }

func addHandler(t testing.TB, inf cache.SharedInformer, h cache.ResourceEventHandler) cache.ResourceEventHandlerRegistration {
	t.Helper()
	handle := must(inf.AddEventHandler(h))(t)
	return handle
}

func wait(t testing.TB, checkers ...cache.DoneChecker) {
	t.Helper()
	if !cache.WaitFor(t.Context(), "", checkers...) {
		t.Fatal("not synced")
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
func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
