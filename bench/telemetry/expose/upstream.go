package expose

import (
	"context"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"

	"watchlab/bench/telemetry/metric"
	"watchlab/bench/telemetry/probe"
)

// Upstream are the metrics that have client-go's names. They are updated as
// upstream updates them, while events are handled, so that they cost more than
// probes do: pipelines use them in paced cells only. The nil Upstream has none.
type Upstream struct {
	queued, version             *prometheus.GaugeVec
	processing                  *prometheus.HistogramVec
	depth, unfinished, longest  *prometheus.GaugeVec
	adds, retries               *prometheus.CounterVec
	queueDuration, workDuration *prometheus.HistogramVec
}

type contextKey struct{}

// WithUpstream returns a context in which pipelines find the metrics.
func WithUpstream(ctx context.Context, u *Upstream) context.Context {
	return context.WithValue(ctx, contextKey{}, u)
}

// UpstreamFrom returns the context's metrics; nil where it has none.
func UpstreamFrom(ctx context.Context) *Upstream {
	u, _ := ctx.Value(contextKey{}).(*Upstream)
	return u
}

func newUpstream(r prometheus.Registerer) *Upstream {
	u := &Upstream{
		queued:        gauges(metric.InformerQueuedItems),
		version:       gauges(metric.InformerStoreResourceVersion),
		processing:    histograms(metric.InformerProcessingLatency),
		depth:         gauges(metric.WorkqueueDepth),
		unfinished:    gauges(metric.WorkqueueUnfinishedWork),
		longest:       gauges(metric.WorkqueueLongestRunning),
		adds:          counters(metric.WorkqueueAdds),
		retries:       counters(metric.WorkqueueRetries),
		queueDuration: histograms(metric.WorkqueueQueueDuration),
		workDuration:  histograms(metric.WorkqueueWorkDuration),
	}
	r.MustRegister(u.queued, u.version, u.processing, u.depth, u.unfinished, u.longest, u.adds, u.retries, u.queueDuration, u.workDuration)
	return u
}

func gauges(m metric.Metric) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: m.Name, Help: m.Help}, m.AllLabels())
}

func counters(m metric.Metric) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.Name, Help: m.Help}, m.AllLabels())
}

func histograms(m metric.Metric) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: m.Name, Help: m.Help, Buckets: m.Buckets}, m.AllLabels())
}

// UpstreamName is the value of the label name for a variant, as in
// "deltafifo/ring/in-order".
func UpstreamName(l probe.Labels) string {
	return strings.TrimSuffix(strings.Join([]string{l.Family, l.Variant, l.Delivery}, "/"), "/")
}

// Informer has the metrics of one informer.
type Informer struct {
	Queued, Version prometheus.Gauge

	Processing prometheus.Observer
}

// Informer returns the metrics of an informer on a resource.
func (u *Upstream) Informer(name string, r schema.GroupVersionResource) Informer {
	labels := []string{name, r.Group, r.Version, r.Resource}
	return Informer{
		Queued:     u.queued.WithLabelValues(labels...),
		Version:    u.version.WithLabelValues(labels...),
		Processing: u.processing.WithLabelValues(labels...),
	}
}

// Workqueue returns what client-go's workqueues take as MetricsProvider.
func (u *Upstream) Workqueue() workqueue.MetricsProvider { return workqueues{u} }

type workqueues struct{ u *Upstream }

func (w workqueues) NewDepthMetric(name string) workqueue.GaugeMetric {
	return w.u.depth.WithLabelValues(name)
}

func (w workqueues) NewAddsMetric(name string) workqueue.CounterMetric {
	return w.u.adds.WithLabelValues(name)
}

func (w workqueues) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return w.u.queueDuration.WithLabelValues(name)
}

func (w workqueues) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return w.u.workDuration.WithLabelValues(name)
}

func (w workqueues) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return w.u.unfinished.WithLabelValues(name)
}

func (w workqueues) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return w.u.longest.WithLabelValues(name)
}

func (w workqueues) NewRetriesMetric(name string) workqueue.CounterMetric {
	return w.u.retries.WithLabelValues(name)
}
