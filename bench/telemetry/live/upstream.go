package live

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
)

// vectors are metrics that Prometheus's client holds, by name.
type vectors struct {
	gauges     map[string]*prometheus.GaugeVec
	counters   map[string]*prometheus.CounterVec
	histograms map[string]*prometheus.HistogramVec
}

func newVectors(r prometheus.Registerer, metrics []Metric) vectors {
	v := vectors{map[string]*prometheus.GaugeVec{}, map[string]*prometheus.CounterVec{}, map[string]*prometheus.HistogramVec{}}
	for _, m := range metrics {
		opts, labels := prometheus.Opts{Name: m.Name, Help: m.Help}, m.AllLabels()
		switch m.Kind {
		case dto.MetricType_GAUGE:
			v.gauges[m.Name] = prometheus.NewGaugeVec(prometheus.GaugeOpts(opts), labels)
			r.MustRegister(v.gauges[m.Name])
		case dto.MetricType_COUNTER:
			v.counters[m.Name] = prometheus.NewCounterVec(prometheus.CounterOpts(opts), labels)
			r.MustRegister(v.counters[m.Name])
		case dto.MetricType_HISTOGRAM:
			v.histograms[m.Name] = prometheus.NewHistogramVec(m.histogramOpts(), labels)
			r.MustRegister(v.histograms[m.Name])
		}
	}
	return v
}

func (v vectors) gauge(m Metric, labels ...string) prometheus.Gauge {
	return v.gauges[m.Name].WithLabelValues(labels...)
}

// Upstream holds the metrics under client-go's names ([ClientGoMetrics]). They are updated while
// events are handled and cost more than a [Set], so pipelines use them in paced cells only.
type Upstream struct{ vectors }

// UpstreamName returns the value of the label name, such as "deltafifo/ring/in-order".
func (l Labels) UpstreamName() string {
	return strings.TrimSuffix(l.Family+"/"+l.Variant+"/"+l.Delivery, "/")
}

// Informer holds the metrics of one informer.
type Informer struct {
	Queued     prometheus.Gauge    // informer_queued_items
	Version    prometheus.Gauge    // informer_store_resource_version
	Processing prometheus.Observer // informer_processing_latency_seconds
}

// Informer returns the metrics of an informer for a resource.
func (u *Upstream) Informer(name string, r schema.GroupVersionResource) Informer {
	labels := []string{name, r.Group, r.Version, r.Resource}
	return Informer{
		Queued:     u.gauge(InformerQueuedItems, labels...),
		Version:    u.gauge(InformerStoreResourceVersion, labels...),
		Processing: u.histograms[InformerProcessingLatency.Name].WithLabelValues(labels...),
	}
}

var _ workqueue.MetricsProvider = (*Upstream)(nil)

// The methods of client-go's workqueue.MetricsProvider.

func (u *Upstream) NewDepthMetric(name string) workqueue.GaugeMetric {
	return u.gauge(WorkqueueDepth, name)
}

func (u *Upstream) NewAddsMetric(name string) workqueue.CounterMetric {
	return u.counters[WorkqueueAdds.Name].WithLabelValues(name)
}

func (u *Upstream) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return u.histograms[WorkqueueQueueDuration.Name].WithLabelValues(name)
}

func (u *Upstream) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return u.histograms[WorkqueueWorkDuration.Name].WithLabelValues(name)
}

func (u *Upstream) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return u.gauge(WorkqueueUnfinishedWork, name)
}

func (u *Upstream) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return u.gauge(WorkqueueLongestRunning, name)
}

func (u *Upstream) NewRetriesMetric(name string) workqueue.CounterMetric {
	return u.counters[WorkqueueRetries.Name].WithLabelValues(name)
}
