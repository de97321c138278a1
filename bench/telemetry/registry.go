package telemetry

import (
	"regexp"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	dto "github.com/prometheus/client_model/go"
)

// Registry has all metrics of a run. It is safe for concurrent use.
type Registry struct {
	prometheus.Gatherer
	run, commit string
	own         vectors

	mu    sync.Mutex // guards the fields below
	sets  []*Set     // in the order of their creation
	page  []byte     // the report so far; nil before the first
	over  bool       // the page does not change any more
	asked time.Time  // last request for the page
}

// New returns the registry of a run; commit is the one that the program was built from.
func New(run, commit string) *Registry {
	registry := prometheus.NewPedanticRegistry()
	r := &Registry{Gatherer: registry, run: run, commit: commit, own: newVectors(registry, own)}
	r.own.gauge(buildInfo, run, commit, runtime.Version()).Set(1)
	r.own.gauge(startTime, run, commit).Set(float64(time.Now().Unix()))
	r.Progress(0, 0)
	registry.MustRegister(
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(
			collectors.MetricsGC, collectors.MetricsMemory, collectors.MetricsScheduler,
			collectors.GoRuntimeMetricsRule{Matcher: regexp.MustCompile(`^/(sync|cpu/classes)/.*`)},
		)),
	)
	return r
}

// Set returns the set of a variant, created on the first call. The label run is the registry's.
func (r *Registry) Set(labels Labels) *Set {
	labels[runLabel] = r.run
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sets {
		if s.labels == labels {
			return s
		}
	}
	s := newSet(labels, r.own)
	r.sets = append(r.sets, s)
	return s
}

// Sets returns all sets.
func (r *Registry) Sets() []*Set {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.sets)
}

// Progress sets the number of cells and the finished share of the run.
func (r *Registry) Progress(n int, share float64) {
	r.own.gauge(cells, r.run).Set(float64(n))
	r.own.gauge(progress, r.run).Set(share)
}

// Show sets the page: the report of the rounds so far, or of a run that is over.
func (r *Registry) Show(page []byte, over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.page, r.over = page, over
}

// Watched reports whether a browser has the page open, which it reloads.
func (r *Registry) Watched() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.asked) < 5*reloadEvery
}

// Objective sets the largest latency that the run allows, of a quantile such as p99.
func (r *Registry) Objective(quantile string, most time.Duration) {
	r.own.gauge(objective, r.run, quantile).Set(most.Seconds())
}

// Finish sets the figures of a cell over its counted rounds: medians by the name of the metric, and
// quantiles of the headline latency in seconds. A median of 0 is unknown.
func (r *Registry) Finish(labels Labels, medians, quantiles map[string]float64) {
	labels[runLabel] = r.run
	for name, v := range medians {
		if v > 0 {
			r.own.gauges[name].WithLabelValues(append(labels[:len(labels):len(labels)], r.commit)...).Set(v)
		}
	}
	for q, v := range quantiles {
		r.own.gauge(latencyQuantile, append(labels[:len(labels):len(labels)], q, r.commit)...).Set(v)
	}
}

// Withdraw removes a cell's figures, after its verdict turned invalid.
func (r *Registry) Withdraw(labels Labels) {
	labels[runLabel] = r.run
	cell := prometheus.Labels{}
	for i, v := range labels {
		cell[CommonLabels[i]] = v
	}
	for _, m := range []Metric{EventsPerSecond, CPUPerEvent, BytesPerEvent, latencyQuantile} {
		r.own.gauges[m.Name].DeletePartialMatch(cell)
	}
}

// vectors are metrics that Prometheus's client holds, by name.
type vectors struct {
	gauges     map[string]*prometheus.GaugeVec
	counters   map[string]*prometheus.CounterVec
	histograms map[string]*prometheus.HistogramVec
}

func newVectors(r prometheus.Registerer, metrics []Metric) vectors {
	v := vectors{map[string]*prometheus.GaugeVec{}, map[string]*prometheus.CounterVec{}, map[string]*prometheus.HistogramVec{}}
	f := promauto.With(r)
	for _, m := range metrics {
		opts, labels := prometheus.Opts{Name: m.Name, Help: m.Help}, m.AllLabels()
		switch m.Kind {
		case dto.MetricType_GAUGE:
			v.gauges[m.Name] = f.NewGaugeVec(prometheus.GaugeOpts(opts), labels)
		case dto.MetricType_COUNTER:
			v.counters[m.Name] = f.NewCounterVec(prometheus.CounterOpts(opts), labels)
		case dto.MetricType_HISTOGRAM:
			// Native buckets are beside the classic ones: 2^3 for each power of two put a quantile within 4.5 %.
			v.histograms[m.Name] = f.NewHistogramVec(prometheus.HistogramOpts{
				Name: m.Name, Help: m.Help, Buckets: m.Buckets, NativeHistogramBucketFactor: 1.1, NativeHistogramZeroThreshold: zeroThreshold,
			}, labels)
		}
	}
	return v
}

func (v vectors) gauge(m Metric, labels ...string) prometheus.Gauge {
	return v.gauges[m.Name].WithLabelValues(labels...)
}
