package informer_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/deltafifo"
	"watchlab/impls/informer"
)

const (
	benchEvents = 50_000
	benchKeys   = 10_000
)

// flow is a watch of events that are there from the start.
type flow struct{ events chan watch.Event }

func (f flow) ResultChan() <-chan watch.Event { return f.events }
func (f flow) Stop()                          {}

// counter is a handler that signals after a number of updates.
type counter struct {
	left atomic.Int64
	done *sync.WaitGroup
}

func (c *counter) OnAdd(any, bool) {}
func (c *counter) OnDelete(any)    {}
func (c *counter) OnUpdate(_, _ any) {
	if c.left.Add(-1) == 0 {
		c.done.Done()
	}
}

// BenchmarkInformer is updates from a watch in memory through client-go's
// Reflector and controller, the queue and the indexer to all handlers, for
// client-go's own informer (impl=upstream) and ours on each variant.
func BenchmarkInformer(b *testing.B) {
	for _, handlers := range []int{1, 8} {
		bench := func(impl, delivery string, build func(cache.ListerWatcher) (cache.SharedIndexInformer, error)) {
			b.Run(fmt.Sprintf("impl=%s/delivery=%s/handlers=%d", impl, delivery, handlers), func(b *testing.B) {
				benchInformer(b, handlers, build)
			})
		}
		bench("upstream", "in-order", func(lw cache.ListerWatcher) (cache.SharedIndexInformer, error) {
			return cache.NewSharedIndexInformer(lw, &v1.Pod{}, 0, cache.Indexers{}), nil
		})
		for _, v := range deltafifo.Variants() {
			for _, g := range v.Guarantees {
				bench(v.Name, g.Mode, func(lw cache.ListerWatcher) (cache.SharedIndexInformer, error) {
					return informer.New(lw, &v1.Pod{}, informer.Options{
						Variant: v.Name, Queue: deltafifo.Options{Delivery: deltafifo.Delivery(g.Mode)},
					})
				})
			}
		}
	}
}

func benchInformer(b *testing.B, handlers int, build func(cache.ListerWatcher) (cache.SharedIndexInformer, error)) {
	list := &v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	for k := range benchKeys {
		list.Items = append(list.Items, *version(fmt.Sprint("pod-", k), 1))
	}
	events := make([]watch.Event, benchEvents)
	for i := range events {
		events[i] = watch.Event{Type: watch.Modified, Object: version(fmt.Sprint("pod-", i%benchKeys), i+2)}
	}
	var allocs uint64
	for b.Loop() {
		b.StopTimer()
		f := flow{make(chan watch.Event, benchEvents)}
		lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc:  func(context.Context, metav1.ListOptions) (apiruntime.Object, error) { return list, nil },
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return f, nil },
		}, source{})
		inf, err := build(lw)
		if err != nil {
			b.Fatal(err)
		}
		var received sync.WaitGroup
		var synced []cache.DoneChecker
		for range handlers {
			c := &counter{done: &received}
			c.left.Store(benchEvents)
			received.Add(1)
			synced = append(synced, addHandler(b, inf, c).HasSyncedChecker())
		}
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { inf.RunWithContext(ctx) })
		wait(b, synced...)
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)

		b.StartTimer()
		for _, e := range events {
			f.events <- e
		}
		received.Wait()
		b.StopTimer()

		runtime.ReadMemStats(&after)
		allocs += after.Mallocs - before.Mallocs
		cancel()
		running.Wait()
		b.StartTimer()
	}
	all := float64(b.N) * benchEvents
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/all, "ns/event")
	b.ReportMetric(float64(allocs)/all, "allocs/event")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkSlowHandler is updates of pods in memory, one after the other, until a handler has each. With
// slow=true, another handler sleeps for a second in each call. p99-ns is from the watch to the handler,
// heap-B what an event leaves in the heap.
func BenchmarkSlowHandler(b *testing.B) {
	for _, h := range []informer.Handlers{{}, {Coalesce: true}} {
		for _, slow := range []bool{false, true} {
			b.Run(fmt.Sprintf("coalesce=%t/slow=%t", h.Coalesce, slow), func(b *testing.B) { benchSlow(b, h, slow) })
		}
	}
}

func benchSlow(b *testing.B, h informer.Handlers, slow bool) {
	f := flow{make(chan watch.Event)}
	list := &v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	for k := range benchKeys {
		list.Items = append(list.Items, *version(fmt.Sprint("pod-", k), 1))
	}
	inf := newInformer(b, cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc:  func(context.Context, metav1.ListOptions) (apiruntime.Object, error) { return list, nil },
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return f, nil },
	}, source{}), informer.Options{Handlers: h})
	handled, over := make(chan struct{}), make(chan struct{})
	fast := addHandler(b, inf, cache.ResourceEventHandlerFuncs{UpdateFunc: func(any, any) { handled <- struct{}{} }})
	if slow {
		sleep := func() {
			select {
			case <-time.After(time.Second):
			case <-over:
			}
		}
		addHandler(b, inf, cache.ResourceEventHandlerFuncs{AddFunc: func(any) { sleep() }, UpdateFunc: func(any, any) { sleep() }})
	}
	stop := run(b, inf)
	wait(b, fast.HasSyncedChecker())
	took := make([]time.Duration, 0, b.N)
	i := 0
	heap := func() (m runtime.MemStats) {
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m
	}
	before := heap()
	for b.Loop() {
		e := watch.Event{Type: watch.Modified, Object: version(fmt.Sprint("pod-", i%benchKeys), i+2)}
		start := time.Now()
		f.events <- e
		<-handled
		took = append(took, time.Since(start))
		i++
	}
	after := heap()
	close(over)
	stop()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
	b.ReportMetric((float64(after.HeapAlloc)-float64(before.HeapAlloc)-float64(8*cap(took)))/float64(i), "heap-B")
}
