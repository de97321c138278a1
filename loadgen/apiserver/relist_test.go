package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	clientfeatures "k8s.io/client-go/features"
	featuretesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/tools/cache"
)

// An informer whose version has expired during a broken watch lists again and reaches
// the storm's final state.
func TestInformerRelistsWhenGone(t *testing.T) {
	s := pods(400)
	for _, watchList := range []bool{true, false} {
		t.Run(fmt.Sprintf("watchlist=%v", watchList), func(t *testing.T) {
			featuretesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, watchList)
			srv := start(t, s, Options{Retain: 20})
			client := srv.clientset(t).CoreV1().RESTClient()
			lw := cache.NewListWatchFromClient(client, "pods", metav1.NamespaceAll, fields.Everything())
			// A watch from a version waits until the version has expired, except the
			// watch after the first list.
			gate := make(chan struct{})
			resume, first := lw.WatchFuncWithContext, !watchList
			lw.WatchFuncWithContext = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				if o.SendInitialEvents == nil && !first {
					select {
					case <-gate:
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				}
				if o.SendInitialEvents == nil {
					first = false
				}
				return resume(ctx, o)
			}
			inf := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lw, client), &v1.Pod{}, 0, cache.Indexers{})
			progress := &progress{}
			progress.cond = sync.NewCond(&progress.mu)
			if _, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
				AddFunc:    progress.see,
				UpdateFunc: func(_, o any) { progress.see(o) },
				DeleteFunc: progress.see,
			}); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			var wg sync.WaitGroup
			wg.Go(func() { inf.RunWithContext(ctx) })
			defer wg.Wait()
			defer cancel()
			if !cache.WaitForCacheSync(ctx.Done(), inf.HasSynced) {
				t.Fatal("not synced")
			}
			srv.Release(uint64(s.Initial + 10))
			progress.await(ctx, t, func() bool { return progress.max == uint64(s.Initial+10) })
			srv.Disconnect()
			srv.Release(uint64(len(s.Events)))
			close(gate)
			final := s.Final()
			progress.await(ctx, t, func() bool { return cmp.Equal(final, state(t, inf.GetStore())) })
			if n := srv.Snapshots(); n != 2 {
				t.Errorf("Snapshots() = %d, want 2: the list, and the one after 410", n)
			}
			if lists := srv.Lists(); (lists > 0) == watchList {
				t.Errorf("%d lists with WatchList %v", lists, watchList)
			}
		})
	}
}

func state(t testing.TB, store cache.Store) map[string]uint64 {
	got := map[string]uint64{}
	for _, key := range store.ListKeys() {
		o, there, err := store.GetByKey(key)
		if err != nil {
			t.Fatal(err)
		}
		if there {
			got[key], _ = strconv.ParseUint(o.(*v1.Pod).ResourceVersion, 10, 64)
		}
	}
	return got
}

// progress signals each event that an informer handles.
type progress struct {
	mu   sync.Mutex
	cond *sync.Cond
	// max is the highest version so far. Guarded by mu.
	max uint64
}

func (p *progress) see(o any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = d.Obj
	}
	if m, err := meta.Accessor(o); err == nil {
		if n, err := strconv.ParseUint(m.GetResourceVersion(), 10, 64); err == nil {
			p.max = max(p.max, n)
		}
	}
	p.cond.Broadcast()
}

// await waits until a condition holds. It checks it after each event.
func (p *progress) await(ctx context.Context, t testing.TB, done func() bool) {
	t.Helper()
	stop := context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.cond.Broadcast()
	})
	defer stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for !done() {
		if ctx.Err() != nil {
			t.Fatal("timeout")
		}
		p.cond.Wait()
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
