package informer_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/deltafifo"
	"watchlab/impls/informer"
)

// late is a queue that hands over nothing before it has some events.
type late struct {
	deltafifo.Queue
	missing atomic.Int64
	filled  chan struct{}
}

func (l *late) count() {
	if l.missing.Add(-1) == 0 {
		close(l.filled)
	}
}

func (l *late) Add(obj any) error    { defer l.count(); return l.Queue.Add(obj) }
func (l *late) Update(obj any) error { defer l.count(); return l.Queue.Update(obj) }
func (l *late) Pop(process cache.PopProcessFunc) (any, error) {
	<-l.filled
	return l.Queue.Pop(process)
}

// observed is an indexer that is observed after each write.
type observed struct {
	cache.Indexer
	wrote func()
}

func (o observed) Add(obj any) error    { defer o.wrote(); return o.Indexer.Add(obj) }
func (o observed) Update(obj any) error { defer o.wrote(); return o.Indexer.Update(obj) }

// TestStoreVersion: whoever reads the version of the store finds all events up to it there. Otherwise
// it is "". (The ConsistencyStore of Kubernetes' controllers waits for this version: KEP-5647.)
func TestStoreVersion(t *testing.T) {
	eachQueue(t, func(t *testing.T, opts informer.Options) {
		if opts.Queue.Capacity == 1 {
			t.Skip("the events do not fit in")
		}
		// Per-key delivery gives a@4 before b@2 and c@3, and shards give any.
		events := []*v1.Pod{version("a", 1), version("b", 2), version("c", 3), version("a", 4), version("d", 5), version("b", 6)}
		changes := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: len(events)})
		for _, p := range events {
			changes.Add(p)
		}
		q := &late{filled: make(chan struct{})}
		q.missing.Store(int64(len(events)))
		opts.WrapQueue = func(inner deltafifo.Queue) deltafifo.Queue { q.Queue = inner; return q }
		var inf cache.SharedIndexInformer
		var seen sync.WaitGroup
		seen.Add(len(events))
		versions := 0
		opts.WrapIndexer = func(i cache.Indexer) cache.Indexer {
			return observed{i, func() {
				defer seen.Done()
				store := inf.GetStore()
				last, err := strconv.Atoi(store.LastStoreSyncResourceVersion())
				if err != nil {
					return
				}
				versions++
				for _, p := range events {
					if number, _ := strconv.Atoi(p.ResourceVersion); number > last {
						break
					} else if obj, has, _ := store.Get(p); !has || resourceVersion(obj) < p.ResourceVersion {
						t.Errorf("the store says that it has version %d, and lacks %s at %s", last, p.Name, p.ResourceVersion)
					}
				}
			}}
		}
		inf = newInformer(t, cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				return &v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "0"}}, nil
			},
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return changes, nil },
		}, source{}), opts)
		run(t, inf)
		seen.Wait()
		if ordered := totallyOrdered(t, opts); (versions > 0) != ordered {
			t.Errorf("%d versions are told, with the order of all keys: %t", versions, ordered)
		}
	})
}
