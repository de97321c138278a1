package informer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"watchlab/impls/deltafifo"
	"watchlab/impls/informer"
)

// feed is a source whose versions and bookmarks are the test's.
type feed struct {
	watch *watch.FakeWatcher
}

func newFeed() feed { return feed{watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 100})} }

// lw lists the given pods with version 1, and then watches the feed.
func (f feed) lw(list ...*v1.Pod) cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			l := &v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
			for _, p := range list {
				l.Items = append(l.Items, *p)
			}
			return l, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return f.watch, nil },
	}, source{})
}

// TestBookmark checks the version of the store.
func TestBookmark(t *testing.T) {
	eachQueueInBubble(t, func(t *testing.T, opts informer.Options) {
		feed := newFeed()
		inf := newInformer(t, feed.lw(version("a", 1)), opts)
		r := &recorder{}
		addHandler(t, inf, r)
		if got := inf.LastSyncResourceVersion(); got != "" {
			t.Errorf("LastSyncResourceVersion is %q before the informer is run", got)
		}
		run(t, inf)
		feed.watch.Modify(version("a", 5))
		synctest.Wait()
		// Without the order of all keys the store tells no version; see TestStoreVersion.
		updated, marked := "", ""
		if totallyOrdered(t, opts) {
			updated, marked = "5", "9"
		}
		if got := inf.GetStore().LastStoreSyncResourceVersion(); got != updated {
			t.Errorf("LastStoreSyncResourceVersion is %q after an update, want %q", got, updated)
		}
		feed.watch.Action(watch.Bookmark, version("", 9))
		synctest.Wait()
		if got := inf.GetStore().LastStoreSyncResourceVersion(); got != marked {
			t.Errorf("LastStoreSyncResourceVersion is %q after a bookmark, want %q", got, marked)
		}
		if got := inf.LastSyncResourceVersion(); got != "9" {
			t.Errorf("LastSyncResourceVersion is %q, want 9", got)
		}
		if got := inf.GetController().LastSyncResourceVersion(); got != "9" {
			t.Errorf("the controller's LastSyncResourceVersion is %q, want 9", got)
		}
		if got := r.take(); len(got) != 2 {
			t.Errorf("the handler received %v", got)
		}
	})
}

func TestIndexers(t *testing.T) {
	eachQueueInBubble(t, func(t *testing.T, opts informer.Options) {
		byNode := func(obj any) ([]string, error) { return []string{obj.(*v1.Pod).Spec.NodeName}, nil }
		opts.Indexers = cache.Indexers{"first": byNode}
		src := newSource(t)
		inf := newInformer(t, src, opts)
		noError(t, inf.AddIndexers(cache.Indexers{"second": byNode}))
		p := pod("a")
		p.Spec.NodeName = "node"
		src.Add(p)
		stop := run(t, inf)
		wait(t, inf.HasSyncedChecker())
		noError(t, inf.AddIndexers(cache.Indexers{"third": byNode}))
		for _, index := range []string{"first", "second", "third"} {
			if got, err := inf.GetIndexer().ByIndex(index, "node"); err != nil || len(got) != 1 {
				t.Errorf("the index %s has %v, %v", index, got, err)
			}
		}
		if len(opts.Indexers) != 1 {
			t.Error("AddIndexers has changed the options")
		}
		stop()
		if err := inf.AddIndexers(cache.Indexers{"fourth": byNode}); err == nil {
			t.Error("a stopped informer took indexers")
		}
	})
}

// strip is a transform, as people use it to save memory.
func strip(obj any) (any, error) {
	p := obj.(*v1.Pod).DeepCopy()
	p.Annotations = map[string]string{"stripped": "yes"}
	return p, nil
}

// unstripped lists the objects in a store that were not transformed.
func unstripped(s cache.Store) (keys []string) {
	for _, obj := range s.List() {
		if obj.(*v1.Pod).Annotations["stripped"] == "" {
			keys = append(keys, key(obj))
		}
	}
	return keys
}

func TestTransform(t *testing.T) {
	eachQueueInBubble(t, func(t *testing.T, opts informer.Options) {
		src := newSource(t)
		src.Add(pod("a"))
		inf := newInformer(t, src, opts)
		for _, f := range []cache.TransformFunc{strip, nil} { // A factory without a transform keeps it (kubernetes#132367).
			noError(t, inf.SetTransform(f))
		}
		run(t, inf)
		wait(t, inf.HasSyncedChecker())
		src.Add(pod("b"))
		synctest.Wait()
		if n, got := len(inf.GetStore().ListKeys()), unstripped(inf.GetStore()); n != 2 || len(got) > 0 {
			t.Errorf("of %d objects these were not transformed: %v", n, got)
		}
	})
}

// TestOnce: an informer runs once, and is configured before that.
func TestOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSource(t)
		inf := newInformer(t, src, informer.Options{})
		inf.GetController().RunWithContext(t.Context()) // It cannot run the informer.
		if inf.GetController().HasSynced() || inf.HasSyncedChecker().Name() != "SharedIndexInformer *v1.Pod" {
			t.Errorf("%s has synced", inf.HasSyncedChecker().Name())
		}
		stop := run(t, inf)
		wait(t, inf.HasSyncedChecker(), inf.GetController().HasSyncedChecker())
		if inf.SetWatchErrorHandler(nil) == nil || inf.SetTransform(nil) == nil {
			t.Error("an informer that runs was configured")
		}
		l := &logs{}
		again := func() { inf.RunWithContext(klog.NewContext(t.Context(), *l.logger())) }
		again()
		r := &recorder{}
		addHandler(t, inf, r)
		src.Add(pod("a"))
		synctest.Wait()
		if got := r.take(); len(got) != 1 || inf.IsStopped() {
			t.Errorf("after the second Run a handler received %v", got)
		}
		stop()
		again()
		if l.count("Warning", "twice") != 2 {
			t.Errorf("logged %q, want two warnings", l.lines)
		}
	})
}

// metricsProvider records metrics.
type metricsProvider struct {
	mu     sync.Mutex
	values map[string][]float64
}

func (p *metricsProvider) of(name string) []float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.values[name])
}

type metric struct {
	p    *metricsProvider
	name string
}

func (m metric) add(v float64) {
	m.p.mu.Lock()
	defer m.p.mu.Unlock()
	m.p.values[m.name] = append(m.p.values[m.name], v)
}
func (m metric) Set(v float64)     { m.add(v) }
func (m metric) Observe(v float64) { m.add(v) }

func (p *metricsProvider) NewQueuedItemMetric(cache.InformerNameAndResource) cache.GaugeMetric {
	return metric{p, "queued"}
}
func (p *metricsProvider) NewProcessingLatencyMetric(cache.InformerNameAndResource) cache.HistogramMetric {
	return metric{p, "latency"}
}
func (p *metricsProvider) NewStoreResourceVersionMetric(cache.InformerNameAndResource) cache.GaugeMetric {
	return metric{p, "version"}
}

// TestMeasuredBatch: the controller detects the batch path through the metrics.
func TestMeasuredBatch(t *testing.T) {
	name := must(cache.NewInformerName("test"))(t)
	defer name.Release()
	id, p := name.WithResource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}), &metricsProvider{values: map[string][]float64{}}
	for _, v := range deltafifo.Variants() {
		q := must(v.New(deltafifo.Options{}))(t)
		defer q.Close()
		m := informer.Measure(q, id, p)
		_, want := q.(cache.QueueWithBatch)
		if _, got := m.(cache.QueueWithBatch); got != want || m == q {
			t.Errorf("%s: with metrics it is a %T, want one with a batch path: %v", v.Name, m, want)
		}
		if informer.Measure(q, cache.InformerNameAndResource{}, p) != q || informer.Measure(q, id, nil) != q {
			t.Errorf("%s: it is measured without a name or a provider", v.Name)
		}
	}
}

// TestMetrics checks the metrics.
func TestMetrics(t *testing.T) {
	eachQueueInBubble(t, func(t *testing.T, opts informer.Options) {
		name := must(cache.NewInformerName("test"))(t)
		defer name.Release()
		p := &metricsProvider{values: map[string][]float64{}}
		opts.Identifier = name.WithResource(schema.GroupVersionResource{Version: "v1", Resource: "pods"})
		opts.InformerMetricsProvider = p
		opts.ResyncPeriod = time.Second
		h := newHold()
		defer h.open()
		opts.Indexers = cache.Indexers{"held": func(obj any) ([]string, error) {
			if obj.(*v1.Pod).Name == "held" {
				h.wait(call{})
			}
			return nil, nil
		}}
		feed := newFeed()
		inf := newInformer(t, feed.lw(version("a", 1)), opts)
		noError(t, inf.SetTransform(strip))
		r := &recorder{}
		addHandler(t, inf, r)
		run(t, inf)
		wait(t, inf.HasSyncedChecker())
		feed.watch.Add(version("held", 2))
		feed.watch.Add(version("b", 3))
		feed.watch.Modify(version("a", 4))
		feed.watch.Delete(version("b", 5))
		feed.watch.Action(watch.Bookmark, version("", 9))
		h.open()
		synctest.Wait()
		wantVersion := 5.0
		if opts.Queue.Delivery == deltafifo.InOrder {
			wantVersion = 9
		}
		if got := p.of("version"); len(got) == 0 || slices.Max(got) < wantVersion {
			t.Errorf("the versions are %v, want up to %v", got, wantVersion)
		}
		if got := p.of("latency"); len(got) < 2 {
			t.Errorf("the latencies are %v, want at least two", got)
		}
		// Once for each of five that came, and what was taken.
		if got := p.of("queued"); len(got) < 7 || got[len(got)-1] != 0 {
			t.Errorf("queued were %v, want at least seven figures and none in the end", got)
		}
		if got := inf.GetStore().ListKeys(); len(got) != 2 || len(unstripped(inf.GetStore())) > 0 {
			t.Errorf("the store holds %v, want two objects, transformed", got)
		}
		before := len(p.of("queued"))
		r.take()
		time.Sleep(time.Second)
		synctest.Wait()
		if got := r.take(); len(got) != 2 || len(p.of("queued")) == before {
			t.Errorf("the resync sent %v, and queued was set %d times", got, len(p.of("queued"))-before)
		}
	})
}

// TestWatchList has a source that sends its list as watch events, which the Reflector collects in a
// store with the queue's transformer. Each object is transformed as often as with client-go's own
// informer, with metrics and without.
func TestWatchList(t *testing.T) {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return nil, errors.New("not that way")
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			w := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 10})
			w.Add(version("a", 1))
			w.Add(version("b", 2))
			end := version("", 3)
			end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
			w.Action(watch.Bookmark, end)
			return w, nil
		},
	}
	transforms := func(t *testing.T, inf cache.SharedIndexInformer) int32 {
		var n atomic.Int32
		if err := inf.SetTransform(func(obj any) (any, error) { n.Add(1); return obj, nil }); err != nil {
			t.Fatal(err)
		}
		r := &recorder{}
		handle := addHandler(t, inf, r)
		run(t, inf)
		wait(t, handle.HasSyncedChecker())
		if got, want := fmt.Sprint(sorted(r.take())), "[add ns/a 1 (initial) add ns/b 2 (initial)]"; got != want {
			t.Errorf("the handler received %s, want %s", got, want)
		}
		return n.Load()
	}
	var want int32
	synctest.Test(t, func(t *testing.T) {
		want = transforms(t, cache.NewSharedIndexInformer(lw, &v1.Pod{}, 0, cache.Indexers{}))
	})
	eachQueueInBubble(t, func(t *testing.T, opts informer.Options) {
		name := must(cache.NewInformerName("test"))(t)
		defer name.Release()
		measured := opts
		measured.Identifier = name.WithResource(schema.GroupVersionResource{Version: "v1", Resource: "pods"})
		measured.InformerMetricsProvider = &metricsProvider{values: map[string][]float64{}}
		for _, opts := range []informer.Options{opts, measured} {
			if got := transforms(t, newInformer(t, lw, opts)); got != want {
				t.Errorf("%d transforms, upstream has %d (metrics: %v)", got, want, opts.InformerMetricsProvider != nil)
			}
		}
	})
}

// TestFailingQueue: a queue that cannot be built when the informer runs stops it.
func TestFailingQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inf := newInformer(t, newSource(t), informer.Options{})
		informer.SetBuild(inf, func(deltafifo.Options) (deltafifo.Queue, error) { return nil, errors.New("no more queues") })
		handle := addHandler(t, inf, &recorder{})
		l := &logs{}
		inf.RunWithContext(klog.NewContext(context.Background(), *l.logger()))
		if !inf.IsStopped() || inf.HasSynced() || l.count("no more queues") != 1 {
			t.Errorf("stopped: %v, synced: %v, logged: %q", inf.IsStopped(), inf.HasSynced(), l.lines)
		}
		if err := cache.ShutDownEventHandler(inf, handle); err != nil {
			t.Error(err)
		}
		if inf.LastSyncResourceVersion() != "" {
			t.Error("it has a version")
		}
	})
}
