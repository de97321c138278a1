// Package expose makes Prometheus metrics of what probes tell. The names and help
// texts are those of package metric.
//
// A [Registry] is a prometheus.Gatherer: each Gather folds what is new and copies
// the counts, so that pipelines pay nothing for being looked at. Its latencies have
// native and classic buckets at once, filled from the same counts. Besides, it has
// the Go runtime's metrics and the process's, and upstream's under their own names.
package expose

import (
	"regexp"
	"runtime"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"

	"watchlab/bench/telemetry/metric"
	"watchlab/bench/telemetry/probe"
)

// Registry has all metrics of a run. It may be used from several goroutines.
type Registry struct {
	run, commit string
	registry    *prometheus.Registry
	upstream    *Upstream

	mu sync.Mutex

	sets     []*probe.Set
	cells    int
	progress float64
	finished []Finished
}

var (
	_ prometheus.Gatherer  = (*Registry)(nil)
	_ prometheus.Collector = (*Registry)(nil)
)

// Finished is what a cell has measured: medians of its counted rounds.
type Finished struct {
	Labels probe.Labels

	Rate            string
	EventsPerSecond float64

	Quantiles map[string]float64
}

// New returns the registry of a run of this program, built from a commit.
func New(run, commit string) *Registry {
	r := &Registry{run: run, commit: commit, registry: prometheus.NewPedanticRegistry()}
	r.upstream = newUpstream(r.registry)
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

// Set returns the set of a variant, a new one where there is none yet. Its run is
// the registry's.
func (r *Registry) Set(labels probe.Labels) *probe.Set {
	labels.Run = r.run
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sets {
		if s.Labels() == labels {
			return s
		}
	}
	s := probe.New(labels)
	r.sets = append(r.sets, s)
	return s
}

// Sets returns all sets.
func (r *Registry) Sets() []*probe.Set {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.sets)
}

// Run is the name of the run.
func (r *Registry) Run() string { return r.run }

// Done is the share of the run's plays that is finished.
func (r *Registry) Done() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.progress
}

// Upstream returns the metrics that have client-go's names.
func (r *Registry) Upstream() *Upstream { return r.upstream }

// Progress sets how many cells the run has, and which share of its plays is
// finished.
func (r *Registry) Progress(cells int, share float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cells, r.progress = cells, share
}

// Finish sets what a cell has measured, in place of what it had measured before.
func (r *Registry) Finish(f Finished) {
	f.Labels.Run = r.run
	r.mu.Lock()
	defer r.mu.Unlock()
	r.finished = append(slices.DeleteFunc(r.finished, f.same), f)
}

// Withdraw takes a cell's figures back, as its verdict has turned.
func (r *Registry) Withdraw(labels probe.Labels, rate string) {
	f := Finished{Labels: labels, Rate: rate}
	f.Labels.Run = r.run
	r.mu.Lock()
	defer r.mu.Unlock()
	r.finished = slices.DeleteFunc(r.finished, f.same)
}

func (f *Finished) same(o Finished) bool { return f.Labels == o.Labels && f.Rate == o.Rate }

// Gather returns all metrics as they are now.
func (r *Registry) Gather() ([]*dto.MetricFamily, error) { return r.registry.Gather() }

// Describe is part of prometheus.Collector.
func (r *Registry) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range descs {
		ch <- d
	}
}

// Collect is part of prometheus.Collector. The sets are read one after the
// other.
func (r *Registry) Collect(ch chan<- prometheus.Metric) {
	r.mu.Lock()
	sets, cells, progress, finished := slices.Clone(r.sets), r.cells, r.progress, slices.Clone(r.finished)
	r.mu.Unlock()
	put(ch, metric.Cells, float64(cells), r.run)
	put(ch, metric.Progress, progress, r.run)
	put(ch, metric.BuildInfo, 1, r.run, r.commit, runtime.Version())
	for _, s := range sets {
		collectSet(ch, s.Snapshot())
	}
	for _, f := range finished {
		values := f.Labels.Values()
		put(ch, metric.EventsPerSecond, f.EventsPerSecond, append(values, f.Rate, r.commit)...)
		for _, q := range metric.Quantiles() {
			if v, ok := f.Quantiles[q]; ok {
				put(ch, metric.LatencyQuantile, v, append(f.Labels.Values(), q, f.Rate, r.commit)...)
			}
		}
	}
}

// collectSet puts out what a set knows. Counters by stage, type or fault are there
// from when they are not 0, as most combinations never are.
func collectSet(ch chan<- prometheus.Metric, s *probe.Snapshot) {
	with := func(own ...string) []string { return append(s.Labels.Values(), own...) }
	count := func(m metric.Metric, n uint64, own ...string) {
		ch <- prometheus.MustNewConstMetricWithCreatedTimestamp(descs[m.Name], prometheus.CounterValue, float64(n), s.Created, with(own...)...)
	}
	for stage, stageName := range metric.Stages() {
		for t, typeName := range metric.Types() {
			if n := s.Events(probe.Stage(stage), probe.Type(t)); n > 0 {
				count(metric.Events, n, stageName, typeName)
			}
		}
	}
	for name, n := range s.Faults {
		count(metric.Faults, n, name)
	}
	for name, n := range s.WatchErrors {
		count(metric.WatchErrors, n, name)
	}
	count(metric.Deltas, s.Deltas())
	count(metric.Relists, s.Relists)
	count(metric.GeneratorLate, s.Late)
	count(metric.GeneratorMissed, s.Missed)
	count(metric.Rounds, s.Rounds)

	put(ch, metric.QueueDepth, float64(s.QueueDepth), with()...)
	put(ch, metric.QueueBytes, s.QueueBytes, with()...)
	for _, p := range metric.Phases() {
		is := 0.0
		if p == s.Phase {
			is = 1
		}
		put(ch, metric.Phase, is, with(p)...)
	}
	if v := s.Verdict; v.Status != "" {
		put(ch, metric.Verdict, 1, with(v.Status, v.Cause)...)
	}
	for i := range s.Histograms {
		ch <- newHistogram(s, &s.Histograms[i])
	}
}

// descs of all metrics that the collector puts out.
var descs = func() map[string]*prometheus.Desc {
	out := map[string]*prometheus.Desc{}
	for _, m := range metric.Own() {
		out[m.Name] = prometheus.NewDesc(m.Name, m.Help, m.AllLabels(), nil)
	}
	return out
}()

func put(ch chan<- prometheus.Metric, m metric.Metric, v float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(descs[m.Name], prometheus.GaugeValue, v, labels...)
}
