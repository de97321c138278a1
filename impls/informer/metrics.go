package informer

import (
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls/deltafifo"
)

// measured is a queue with client-go's metrics of a queue (v0.37,
// informer_metrics.go). A queue may hold its lock while process runs, so that it
// isn't asked for its length from there. Where a queue ignores a deletion only
// when its turn has come, the deletion counts until the next thing happens.
type measured struct {
	deltafifo.Queue
	// queued is informer_queued_items, latency
	// informer_processing_latency_seconds.
	queued  cache.GaugeMetric
	latency cache.HistogramMetric
	// mu makes one of looking and setting, or else a figure that is out of date
	// may be the last.
	mu sync.Mutex
}

var (
	_ cache.ReflectorBookmarkStore = (*measured)(nil)
	_ cache.TransformingStore      = (*measured)(nil)
	_ cache.QueueWithBatch         = (*measuredBatch)(nil)
)

// measure returns the queue with its metrics, or as it is where there are none.
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

// count notes how much waits, and passes an error on.
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

// Bookmark passes a bookmark on where the queue takes them.
func (m *measured) Bookmark(resourceVersion string) error {
	if q, ok := m.Queue.(cache.ReflectorBookmarkStore); ok {
		return m.count(q.Bookmark(resourceVersion))
	}
	return nil
}

// Transformer returns nil where the queue has none.
func (m *measured) Transformer() cache.TransformFunc {
	if q, ok := m.Queue.(cache.TransformingStore); ok {
		return q.Transformer()
	}
	return nil
}

// timed is process with its time taken.
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

// measuredBatch is what a controller finds to have a batch path.
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
