// Package live has the figures of a run while it is in progress, and shows them.
//
//  1. A pipeline takes its [Set] from the context ([From]): the [Figures] of one variant.
//     It updates them some times a second, from its stamps and logs. Without a Set all
//     methods are no-ops. [Upstream] holds the metrics under client-go's own names.
//  2. A [Registry] turns snapshots of the sets into Prometheus metrics under the names and
//     help texts of metrics.go. It also has the metrics of the Go runtime and of the
//     process. Pipelines pay nothing for a scrape: it copies the counts.
//  3. A [Server] listens: /metrics for Prometheus, a live page at /, and probes of health
//     and readiness.
//  4. The page has the [State] of the run: its rankings, with the charts of the report.
package live

import (
	"regexp"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
)

// Registry has all metrics of a run. It is safe for concurrent use.
type Registry struct {
	run, commit string
	registry    *prometheus.Registry
	own         vectors
	upstream    *Upstream

	viewers atomic.Int32 // of the page

	mu    sync.Mutex // guards the fields below
	sets  []*Set     // in the order of their creation
	state State
}

var (
	_ prometheus.Gatherer  = (*Registry)(nil)
	_ prometheus.Collector = (*Registry)(nil)
)

// New returns the registry of a run; commit is the one that the program was built from.
func New(run, commit string) *Registry {
	r := &Registry{run: run, commit: commit, registry: prometheus.NewPedanticRegistry()}
	r.own = newVectors(r.registry, slices.DeleteFunc(Metrics(), func(m Metric) bool { return m.ofSet }))
	r.upstream = &Upstream{newVectors(r.registry, clientGo)}
	r.own.gauge(buildInfo, run, commit, runtime.Version()).Set(1)
	r.own.gauge(startTime, run, commit).Set(float64(time.Now().Unix()))
	r.Progress(0, 0)
	r.registry.MustRegister(
		r,
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
	labels.Run = r.run
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sets {
		if s.Labels() == labels {
			return s
		}
	}
	s := NewSet(labels)
	s.upstream = r.upstream
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
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.Share = share
	r.own.gauge(cells, r.run).Set(float64(n))
	r.own.gauge(progress, r.run).Set(share)
}

// Show changes the state that the page shows.
func (r *Registry) Show(change func(*State)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.state)
}

// Watched reports whether a page is open.
func (r *Registry) Watched() bool { return r.viewers.Load() > 0 }

// Objective sets the largest latency that the run allows, of a quantile such as p99.
func (r *Registry) Objective(quantile string, most time.Duration) {
	r.own.gauge(objective, r.run, quantile).Set(most.Seconds())
}

// Finish sets the figures of a cell over its counted rounds: medians by the name of the metric, and
// quantiles of the headline latency in seconds. A median of 0 is unknown.
func (r *Registry) Finish(labels Labels, medians, quantiles map[string]float64) {
	labels.Run = r.run
	for name, v := range medians {
		if v > 0 {
			r.own.gauges[name].WithLabelValues(append(labels.Values(), r.commit)...).Set(v)
		}
	}
	for q, v := range quantiles {
		r.own.gauge(latencyQuantile, append(labels.Values(), q, r.commit)...).Set(v)
	}
}

// Withdraw removes a cell's figures, after its verdict turned invalid.
func (r *Registry) Withdraw(labels Labels) {
	labels.Run = r.run
	cell := prometheus.Labels{}
	for i, v := range labels.Values() {
		cell[commonLabels[i]] = v
	}
	for _, g := range r.own.gauges {
		g.DeletePartialMatch(cell)
	}
}

// Gather returns the present value of all metrics.
func (r *Registry) Gather() ([]*dto.MetricFamily, error) { return r.registry.Gather() }

// Describe implements prometheus.Collector.
func (r *Registry) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range own {
		if m.ofSet {
			ch <- m.desc
		}
	}
}

// Collect implements prometheus.Collector. It reads the sets one after the other.
func (r *Registry) Collect(ch chan<- prometheus.Metric) {
	for _, s := range r.Sets() {
		collectSet(ch, s.Snapshot())
	}
}

// collectSet omits counters by stage, type or fault that are 0: most combinations never occur. Those
// of events in start at 0, as ratios of rates need the first events, too.
func collectSet(ch chan<- prometheus.Metric, s *Figures) {
	with := func(own ...string) []string { return append(s.Labels.Values(), own...) }
	total := func(m Metric, v float64, own ...string) {
		ch <- prometheus.MustNewConstMetricWithCreatedTimestamp(m.desc, prometheus.CounterValue, v, s.Created, with(own...)...)
	}
	for c, n := range s.counters {
		labels := s.Labels.Values()
		if c.label != "" {
			labels = append(labels, c.label)
		}
		ch <- prometheus.MustNewConstMetricWithCreatedTimestamp(c.desc, prometheus.CounterValue, float64(n), s.Created, labels...)
	}
	for stage, stageName := range stageNames {
		for t, typeName := range typeNames {
			if n := s.Events(Stage(stage), Type(t)); n > 0 || Stage(stage) <= Enqueued && Type(t) <= Deleted {
				total(events, float64(n), stageName, typeName)
			}
		}
	}
	total(deltas, float64(s.Total(Popped)))
	total(playTime, s.PlayTime().Seconds())

	is := map[bool]float64{true: 1}
	sendGauge(ch, queueDepth, float64(s.QueueDepth), with()...)
	sendGauge(ch, baseline, is[s.Baseline], with()...)
	for _, p := range phases {
		sendGauge(ch, phase, is[p == s.Phase], with(p)...)
	}
	for v := range s.judged {
		sendGauge(ch, verdict, is[v == s.Verdict], with(v.Status, v.Cause)...)
	}
	for h := range series {
		if s.Distribution(Histogram(h)).Count > 0 {
			ch <- newHistogram(s, Histogram(h))
		}
	}
}

func sendGauge(ch chan<- prometheus.Metric, m Metric, v float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, v, labels...)
}
