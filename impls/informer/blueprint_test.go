package informer

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
	"watchlab/impls/deltafifo"
)

// TestLending: queues that can lend do so, unless HandOver is set.
func TestLending(t *testing.T) {
	for _, c := range []struct {
		variant  string
		handOver impls.Ownership
		want     impls.Ownership
	}{
		{"cond", "", impls.Lent},
		{"cond", impls.Owned, impls.Owned},
		{"clientgo-realfifo-batch", "", ""},
		{"clientgo-deltafifo", "", ""},
	} {
		b, err := Options{Variant: c.variant, Queue: deltafifo.Options{HandOver: c.handOver}}.blueprint()
		if err != nil || b.opts.HandOver != c.want {
			t.Errorf("%s with HandOver %q: the queue gets %q, %v; want %q", c.variant, c.handOver, b.opts.HandOver, err, c.want)
		}
	}
}

// TestMeasuredBatch: the controller detects the batch path through the metrics.
func TestMeasuredBatch(t *testing.T) {
	name, err := cache.NewInformerName("test")
	if err != nil {
		t.Fatal(err)
	}
	defer name.Release()
	id := name.WithResource(schema.GroupVersionResource{Version: "v1", Resource: "pods"})
	for _, v := range deltafifo.Variants() {
		q, err := v.New(deltafifo.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		m := measure(q, id, silentProvider{})
		_, want := q.(cache.QueueWithBatch)
		if _, got := m.(cache.QueueWithBatch); got != want || m == q {
			t.Errorf("%s: with metrics it is a %T, want one with a batch path: %v", v.Name, m, want)
		}
		if measure(q, cache.InformerNameAndResource{}, silentProvider{}) != q || measure(q, id, nil) != q {
			t.Errorf("%s: it is measured without a name or a provider", v.Name)
		}
	}
}

type silentProvider struct{}

type silent struct{}

func (silent) Set(float64)     {}
func (silent) Observe(float64) {}

func (silentProvider) NewQueuedItemMetric(cache.InformerNameAndResource) cache.GaugeMetric {
	return silent{}
}

func (silentProvider) NewProcessingLatencyMetric(cache.InformerNameAndResource) cache.HistogramMetric {
	return silent{}
}

func (silentProvider) NewStoreResourceVersionMetric(cache.InformerNameAndResource) cache.GaugeMetric {
	return silent{}
}
