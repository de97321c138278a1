package guarantee

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Wrap returns a ListerWatcher that hands everything on, and tells the checker
// of it first. It is for one client.
func (c *Checker) Wrap(lw cache.ListerWatcher) cache.ListerWatcher {
	return &wrapped{c: c, inner: lw, lw: cache.ToListerWatcherWithContext(lw)}
}

type wrapped struct {
	c     *Checker
	inner cache.ListerWatcher
	lw    cache.ListerWatcherWithContext
}

var _ cache.ListerWatcherWithContext = (*wrapped)(nil)

// IsWatchListSemanticsUnSupported answers client-go's question as the inner one
// does.
func (w *wrapped) IsWatchListSemanticsUnSupported() bool {
	u, ok := w.inner.(interface{ IsWatchListSemanticsUnSupported() bool })
	return ok && u.IsWatchListSemanticsUnSupported()
}

func (w *wrapped) List(opts metav1.ListOptions) (runtime.Object, error) {
	return w.ListWithContext(context.Background(), opts)
}

func (w *wrapped) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	list, err := w.lw.ListWithContext(ctx, opts)
	if err == nil {
		w.c.List(opts, list)
	}
	return list, err
}

func (w *wrapped) Watch(opts metav1.ListOptions) (watch.Interface, error) {
	return w.WatchWithContext(context.Background(), opts)
}

func (w *wrapped) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	in, err := w.lw.WatchWithContext(ctx, opts)
	if err != nil {
		return nil, err
	}
	t := &tap{Interface: in, out: make(chan watch.Event), stop: make(chan struct{})}
	go t.run(w.c.Watch(opts))
	return t, nil
}

// tap is a watch that is looked at as it goes by.
type tap struct {
	watch.Interface
	out  chan watch.Event
	stop chan struct{}
	once sync.Once
}

// run hands on what comes. What the client doesn't take any more it has not
// seen.
func (t *tap) run(w *Watch) {
	defer close(t.out)
	for e := range t.Interface.ResultChan() {
		select {
		case <-t.stop:
			continue // Until the inner one is closed.
		default:
		}
		w.Event(e)
		select {
		case t.out <- e:
		case <-t.stop:
		}
	}
}

func (t *tap) ResultChan() <-chan watch.Event { return t.out }

func (t *tap) Stop() {
	t.once.Do(func() {
		close(t.stop)
		t.Interface.Stop()
	})
}
