package informer

import (
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls/deltafifo"
)

// measured is a queue with client-go's queue metrics (v0.37, informer_metrics.go). It does not ask
// for the length during process, because a queue may hold its lock then. If a queue ignores a
// deletion only when it is folded, the deletion counts until the next call.
type measured struct {
	deltafifo.Queue
	queued  cache.GaugeMetric     // informer_queued_items
	latency cache.HistogramMetric // informer_processing_latency_seconds
	// mu is held from reading the length to setting queued, so that no stale value is set last.
	mu sync.Mutex
}

var (
	_ cache.ReflectorBookmarkStore = (*measured)(nil)
	_ cache.TransformingStore      = (*measured)(nil)
	_ cache.QueueWithBatch         = (*measuredBatch)(nil)
)

// measure adds metrics to the queue. It returns the queue unchanged if the metrics are disabled.
func measure(q deltafifo.Queue, id cache.InformerNameAndResource, provider cache.InformerMetricsProvider) deltafifo.Queue {
	if provider == nil || !id.Reserved() {
		return q
	}
	m := &measured{Queue: q, queued: provider.NewQueuedItemMetric(id), latency: provider.NewProcessingLatencyMetric(id)}
	if b, ok := q.(deltafifo.BatchQueue); ok {
		return &measuredBatch{m, b}
	}
	return m
}

func (m *measured) count(err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.queued.Set(float64(m.Len()))
	return err
}

func (m *measured) Add(obj any) error    { return m.count(m.Queue.Add(obj)) }
func (m *measured) Update(obj any) error { return m.count(m.Queue.Update(obj)) }
func (m *measured) Delete(obj any) error { return m.count(m.Queue.Delete(obj)) }
func (m *measured) Resync() error        { return m.count(m.Queue.Resync()) }

func (m *measured) Replace(list []any, resourceVersion string) error {
	return m.count(m.Queue.Replace(list, resourceVersion))
}

// Bookmark passes a bookmark to a queue that accepts them.
func (m *measured) Bookmark(resourceVersion string) error {
	if q, ok := m.Queue.(cache.ReflectorBookmarkStore); ok {
		return m.count(q.Bookmark(resourceVersion))
	}
	return nil
}

// Transformer returns nil if the queue has none.
func (m *measured) Transformer() cache.TransformFunc {
	if q, ok := m.Queue.(cache.TransformingStore); ok {
		return q.Transformer()
	}
	return nil
}

// timed measures the duration of process.
func (m *measured) timed(process cache.PopProcessFunc) cache.PopProcessFunc {
	return func(obj any, isInInitialList bool) error {
		start := time.Now()
		defer func() { m.latency.Observe(time.Since(start).Seconds()) }()
		return process(obj, isInInitialList)
	}
}

func (m *measured) Pop(process cache.PopProcessFunc) (any, error) {
	obj, err := m.Queue.Pop(m.timed(process))
	return obj, m.count(err)
}

// measuredBatch adds the batch path, which a controller detects by its type.
type measuredBatch struct {
	*measured
	batch deltafifo.BatchQueue
}

func (m *measuredBatch) PopBatch(batch cache.ProcessBatchFunc, single cache.PopProcessFunc) error {
	return m.count(m.batch.PopBatch(func(deltas []cache.Delta, isInInitialList bool) error {
		start := time.Now()
		defer func() { m.latency.Observe(time.Since(start).Seconds()) }()
		return batch(deltas, isInInitialList)
	}, m.timed(single)))
}
