package controllerruntime_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"watchlab/impls/deltafifo"
	"watchlab/impls/informer"
	"watchlab/loadgen/apiserver"
	"watchlab/loadgen/fault"
	"watchlab/loadgen/storm"
)

var faults = flag.Duration("faults", 2*time.Second, "how long caches are to run through faults; from a minute on, through all of them")

// churn returns a storm of n events that add, update and delete pods.
func churn(n int) *storm.Storm {
	const keys = 50
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	s := &storm.Storm{
		Name: "churn", Initial: keys / 2,
		Resource: v1.SchemeGroupVersion.WithResource("pods"), Kind: v1.SchemeGroupVersion.WithKind("Pod"),
	}
	index, live := map[string]int32{}, map[string]bool{}
	for i := range n {
		name := fmt.Sprintf("pod-%d", rng.IntN(keys))
		if i < s.Initial {
			name = fmt.Sprintf("pod-%d", i)
		}
		key, kind := storm.ObjectKey("default", name), watch.Added
		if _, ok := index[key]; !ok {
			index[key] = int32(len(index))
		}
		if live[key] {
			kind = []watch.EventType{watch.Modified, watch.Modified, watch.Deleted}[rng.IntN(3)]
		}
		live[key] = kind != watch.Deleted
		s.Events = append(s.Events, storm.Event{
			Type: kind, Seq: uint64(i + 1), Key: key, KeyIndex: index[key],
			Object: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, ResourceVersion: strconv.Itoa(i + 1)}},
		})
	}
	s.Keys = len(index)
	return s
}

// newInformer constructs the informers of a cache.
type newInformer = func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer

// faulty is a cache of a server that injects faults.
type faulty struct {
	name    string
	cache   cache.Cache
	changed chan struct{}

	// mu guards the fields below.
	mu sync.Mutex
	// newest has the version of the last notification by key; notified counts notifications.
	newest   map[string]uint64
	notified int
	broken   []string
}

// notify checks a notification: the version of a key never falls.
func (f *faulty) notify(o any) {
	if d, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = d.Obj
	}
	p := o.(*v1.Pod)
	key := storm.ObjectKey(p.Namespace, p.Name)
	version, err := strconv.ParseUint(p.ResourceVersion, 10, 64)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.notified++
	if err != nil || version < f.newest[key] {
		f.broken = append(f.broken, fmt.Sprintf("%s at version %q after %d", key, p.ResourceVersion, f.newest[key]))
	}
	f.newest[key] = version
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// state returns the version of each cached object by key.
func (f *faulty) state(ctx context.Context, t *testing.T) map[string]uint64 {
	t.Helper()
	var list v1.PodList
	if err := f.cache.List(ctx, &list); err != nil {
		t.Fatal(err)
	}
	state := map[string]uint64{}
	for i := range list.Items {
		p := &list.Items[i]
		state[storm.ObjectKey(p.Namespace, p.Name)], _ = strconv.ParseUint(p.ResourceVersion, 10, 64)
	}
	return state
}

// TestCachesThroughFaults runs controller-runtime's cache through faults, with
// client-go's informer and with ours on each variant. No key may go back to an older version,
// and at the end each cache must have the state of the server. (loadgen/fault checks the
// guarantees of the watches themselves.)
func TestCachesThroughFaults(t *testing.T) {
	// controller-runtime logs each fault.
	klog.SetLogger(klog.New(nil))
	log.SetLogger(logr.Discard())
	specs, err := fault.ParseAll("disconnect:frames=97,probability=0.4; half-frame:frames=131,probability=0.5; reset:frames=167; duplicate-bookmark:frames=41; " +
		"drip:every=500ms,duration=20ms; stall:every=700ms,duration=50ms")
	if *faults >= time.Minute {
		// client-go's reconnect back-off grows up to a minute, so the faults are 4 s apart.
		specs, err = fault.Cycle(4*time.Second, 0), nil
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range specs {
		specs[i].Until = fault.Duration(*faults * 3 / 4)
	}
	inj, err := fault.New(specs, 1)
	if err != nil {
		t.Fatal(err)
	}
	const pace = time.Millisecond
	s := churn(int(*faults / pace))
	srv, err := apiserver.New(s, apiserver.Options{Wrap: inj.Wrap, BookmarkInterval: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	url, err := srv.Start()
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	ctx, cancel := context.WithTimeout(t.Context(), *faults+5*time.Minute)
	var running sync.WaitGroup
	defer func() {
		cancel()
		inj.Stop()
		running.Wait()
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
		transport.CloseIdleConnections()
	}()

	makers := map[string]newInformer{"client-go": toolscache.NewSharedIndexInformer}
	for _, v := range deltafifo.Variants() {
		if makers[v.Name], err = informer.Func(informer.Options{Variant: v.Name}); err != nil {
			t.Fatal(err)
		}
	}
	var all []*faulty
	for name, mk := range makers {
		f := &faulty{name: name, changed: make(chan struct{}, 1), newest: map[string]uint64{}}
		f.cache, err = cache.New(&rest.Config{Host: url}, cache.Options{
			HTTPClient:  &http.Client{Transport: transport},
			NewInformer: mk,
		})
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() {
			if err := f.cache.Start(ctx); err != nil {
				t.Error(err)
			}
		})
		inf, err := f.cache.GetInformer(ctx, &v1.Pod{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = inf.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: f.notify, UpdateFunc: func(_, o any) { f.notify(o) }, DeleteFunc: f.notify,
		})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, f)
	}

	if err := inj.Start(); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for _, e := range s.Events[s.Initial:] {
		<-tick.C
		srv.Release(e.Seq)
	}
	notified := 0
	for _, f := range all {
		for !maps.Equal(f.state(ctx, t), s.Final()) {
			select {
			case <-f.changed:
				continue
			case <-ctx.Done():
				t.Fatalf("%s: the cache has %v, want %v", f.name, f.state(context.Background(), t), s.Final())
			}
		}
		f.mu.Lock()
		notified += f.notified
		if len(f.broken) > 0 {
			t.Errorf("%s: %d notifications out of order; first: %s", f.name, len(f.broken), f.broken[0])
		}
		f.mu.Unlock()
	}
	if n := inj.Counts()[fault.Disconnect]; n == 0 {
		t.Error("nothing was disconnected")
	}
	t.Logf("%d caches, %d events each: %d notifications; faults: %v", len(all), len(s.Events), notified, inj.Counts())
}
