package dashboards

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"watchlab/bench/telemetry/metric"
)

// The values that the exporter adds to each cell at each scrape.
const (
	released     = 100
	coalesced    = 20 // of the released events
	deltas       = 50
	batch        = 8
	stale        = 3
	lag          = 0.0001
	endToEnd     = 0.002 // seconds, divided by the cell's pace
	stageLatency = 0.0005
	playTime     = 0.1 // seconds
	objective    = 0.001
)

// played is a cell of the exporter.
type played struct {
	family, variant, delivery, pipeline, storm, source, encoding, decode, store, workqueue, rate string
	// pace is the speed relative to upstream's cell.
	pace float64
	// baseline is that of the delivery.
	baseline bool
	// trouble makes the cell fail in all possible ways.
	trouble bool
}

func (c played) labels() []string {
	return []string{"fake", c.family, c.variant, c.delivery, c.pipeline, c.storm, c.source, c.encoding, c.decode, c.store, c.workqueue, c.rate}
}

// cells covers several families, every pipeline, both deliveries, and the figures of paced and of unpaced
// cells. Upstream's informer lacks the labels of its own store and workqueue.
var cells = slices.Concat(
	both("1000", played{family: "deltafifo", variant: "clientgo-realfifo-batch", delivery: "in-order", pipeline: "queue", storm: "recorded-gang", source: "memory", pace: 1, baseline: true}),
	both("1000", played{family: "deltafifo", variant: "ring", delivery: "in-order", pipeline: "queue", storm: "recorded-gang", source: "memory", pace: 2}),
	both("1000", played{family: "deltafifo", variant: "clientgo-deltafifo", delivery: "per-key", pipeline: "queue", storm: "recorded-gang", source: "memory", pace: 1, baseline: true}),
	both("1000", played{family: "deltafifo", variant: "ring", delivery: "per-key", pipeline: "queue", storm: "recorded-gang", source: "memory", pace: 3}),
	both("1000", played{family: "deltafifo", variant: "clientgo-informer", delivery: "in-order", pipeline: "informer", storm: "nodeloss", source: "apiserver", encoding: "protobuf", decode: "shared", pace: 1, baseline: true}),
	both("1000", played{family: "deltafifo", variant: "ring", delivery: "in-order", pipeline: "informer", storm: "nodeloss", source: "apiserver", encoding: "protobuf", decode: "shared", store: "snapshot", workqueue: "sharded", pace: 4}),
	[]played{{family: "deltafifo", variant: "cond", delivery: "in-order", pipeline: "informer", storm: "nodeloss", source: "apiserver", encoding: "protobuf", decode: "shared", rate: "1000", pace: 1, trouble: true}},
	[]played{{family: "queue", variant: "clientgo-fifo", pipeline: "queue", storm: "recorded-gang", source: "memory", rate: "max", pace: 1, baseline: true}},
	[]played{{family: "queue", variant: "ring", pipeline: "queue", storm: "recorded-gang", source: "memory", rate: "max", pace: 2}},
	both("200", played{family: "merge", variant: "reference", pipeline: "kubelet", storm: "recorded-gang", source: "memory", pace: 1, baseline: true}),
	both("200", played{family: "merge", variant: "cond", pipeline: "kubelet", storm: "recorded-gang", source: "memory", pace: 2}),
)

// both returns the unpaced and the paced cell of a variant.
func both(rate string, c played) []played {
	paced := c
	c.rate, paced.rate = "max", rate
	return []played{c, paced}
}

// commits are the commits in the history. The newer one is 10 % slower.
var commits = []string{"aaaaaaaaaaaa", "bbbbbbbbbbbb"}

// exporter replaces a run. It exports all metrics with known values. Only a scrape
// advances the values, so none of them depends on time.
type exporter struct {
	mu         sync.Mutex
	registry   *prom.Registry
	steps      int
	counters   map[string]*prom.CounterVec
	gauges     map[string]*prom.GaugeVec
	histograms map[string]*prom.HistogramVec
}

func newExporter() *exporter {
	e := &exporter{
		registry:   prom.NewRegistry(),
		counters:   map[string]*prom.CounterVec{},
		gauges:     map[string]*prom.GaugeVec{},
		histograms: map[string]*prom.HistogramVec{},
	}
	add := func(m metric.Metric, native bool) {
		switch m.Kind {
		case metric.Counter:
			e.counters[m.Name] = prom.NewCounterVec(prom.CounterOpts{Name: m.Name, Help: m.Help}, m.AllLabels())
			e.registry.MustRegister(e.counters[m.Name])
		case metric.Gauge:
			e.gauges[m.Name] = prom.NewGaugeVec(prom.GaugeOpts{Name: m.Name, Help: m.Help}, m.AllLabels())
			e.registry.MustRegister(e.gauges[m.Name])
		case metric.Histogram:
			o := prom.HistogramOpts{Name: m.Name, Help: m.Help, Buckets: m.Buckets}
			if native {
				o.NativeHistogramBucketFactor = math.Exp2(math.Exp2(-metric.Schema))
				o.NativeHistogramZeroThreshold = metric.ZeroThreshold
			}
			e.histograms[m.Name] = prom.NewHistogramVec(o, m.AllLabels())
			e.registry.MustRegister(e.histograms[m.Name])
		}
	}
	for _, m := range metric.Own() {
		add(m, true)
	}
	for _, m := range metric.Upstream() {
		add(m, false)
	}
	e.registry.MustRegister(
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.MetricsAll)),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return e
}

func (e *exporter) add(m metric.Metric, v float64, labels ...string) {
	e.counters[m.Name].WithLabelValues(labels...).Add(v)
}

func (e *exporter) set(m metric.Metric, v float64, labels ...string) {
	e.gauges[m.Name].WithLabelValues(labels...).Set(v)
}

func flag(on bool) float64 {
	if on {
		return 1
	}
	return 0
}

func (e *exporter) observe(m metric.Metric, n int, v float64, labels ...string) {
	h := e.histograms[m.Name].WithLabelValues(labels...).(prom.ExemplarObserver)
	for range n {
		h.ObserveWithExemplar(v, prom.Labels{"trace_id": fmt.Sprintf("%032x", e.steps+1)})
	}
}

// step advances the values by one scrape.
func (e *exporter) step() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, c := range cells {
		l := c.labels()
		with := func(more ...string) []string { return append(l[:len(l):len(l)], more...) }
		for j, stage := range metric.Stages() {
			n := float64(released)
			if stage != metric.Released && stage != metric.Enqueued {
				n -= coalesced
			}
			if stage == metric.Stored && c.pipeline == "kubelet" || stage == metric.Worked && c.pipeline != "informer" {
				continue
			}
			_ = j
			for k, typ := range metric.Types() {
				// Divide the events among the types.
				share := n / float64(len(metric.Types()))
				if k == 0 {
					share = n - share*float64(len(metric.Types())-1)
				}
				e.add(metric.Events, share*c.pace, with(stage, typ)...)
			}
		}
		e.add(metric.Deltas, deltas*c.pace, l...)
		depth := float64(10 * i)
		if c.trouble {
			depth = 2000 + 100*float64(e.steps)
		}
		e.set(metric.QueueDepth, depth, l...)
		e.observe(metric.QueuedEvents, 10, depth, l...)
		if c.pipeline == "informer" {
			e.observe(metric.HandlerBacklog, 10, depth/2, l...)
		}
		e.add(metric.PlayTime, playTime, l...)
		e.set(metric.Baseline, flag(c.baseline), l...)
		from := metric.FromReleased
		if c.rate != "max" {
			from = metric.FromIntended
			e.observe(metric.EndToEndLatency, 10, endToEnd/c.pace/2, with(metric.FromReleased)...)
		}
		e.observe(metric.EndToEndLatency, 10, endToEnd/c.pace, with(from)...)
		for _, b := range boundaries {
			if merged := b == metric.EnqueuedMerged || b == metric.MergedHandled; merged != (c.family == "merge") && b != metric.ReleasedEnqueued {
				continue
			}
			e.observe(metric.StageLatency, 10, stageLatency, with(b)...)
		}
		e.observe(metric.BatchSize, 10, batch, l...)
		behind := float64(stale)
		if c.trouble {
			behind = 5000
			e.add(metric.WatchErrors, 1, with("disconnect")...)
			e.add(metric.Faults, 1, with("disconnect")...)
			e.add(metric.Relists, 1, l...)
			e.add(metric.GeneratorMissed, 1, l...)
		} else {
			e.add(metric.GeneratorMissed, 0, l...)
		}
		if c.pipeline == "informer" {
			e.observe(metric.Staleness, 10, behind, l...)
		}
		late := 0.0
		if c.rate != "max" {
			e.observe(metric.GeneratorLag, 10, lag, l...)
			if c.trouble {
				late = released / 20
			}
		}
		e.add(metric.GeneratorLate, late, l...)
		e.set(metric.Verdict, flag(!c.trouble), with("valid", "")...)
		if c.trouble {
			e.set(metric.Verdict, 1, with("invalid", "lost")...)
		}
		for j, phase := range metric.Phases() {
			e.set(metric.Phase, flag((e.steps+i)%len(metric.Phases()) == j), with(phase)...)
		}
		e.add(metric.Rounds, 1, l...)
		for j, commit := range commits {
			slower := 1 - 0.1*float64(j)
			// Prometheus remembers figures of a cell that is invalid now.
			e.set(metric.EventsPerSecond, 1000*c.pace*slower, with(commit)...)
			e.set(metric.CPUPerEvent, 1e-6/c.pace/slower, with(commit)...)
			e.set(metric.BytesPerEvent, 100/c.pace, with(commit)...)
			for _, q := range quantiles {
				if c.rate != "max" {
					e.set(metric.LatencyQuantile, endToEnd/c.pace/slower, with(q, commit)...)
				}
			}
		}
	}
	e.set(metric.Cells, float64(len(cells)), "fake")
	e.set(metric.Progress, 0.5, "fake")
	e.set(metric.BuildInfo, 1, "fake", commits[1], "go1.26.8")
	for i, commit := range commits {
		e.set(metric.StartTime, float64(1e9+i), "fake", commit)
	}
	e.set(metric.Objective, objective, "fake", "p99")
	informer := []string{"deltafifo/ring/in-order", "", "v1", "pods"}
	e.set(metric.InformerQueuedItems, 7, informer...)
	e.set(metric.InformerStoreResourceVersion, float64(1000+e.steps), informer...)
	e.observe(metric.InformerProcessingLatency, 10, 0.002, informer...)
	e.set(metric.WorkqueueDepth, 5, informer[0])
	e.add(metric.WorkqueueAdds, 10, informer[0])
	e.add(metric.WorkqueueRetries, 1, informer[0])
	e.observe(metric.WorkqueueQueueDuration, 10, 0.002, informer[0])
	e.observe(metric.WorkqueueWorkDuration, 10, 0.002, informer[0])
	e.set(metric.WorkqueueUnfinishedWork, 0.5, informer[0])
	e.set(metric.WorkqueueLongestRunning, 0.25, informer[0])
	e.steps++
}

// serve returns the address to scrape.
func (e *exporter) serve(t *testing.T) string {
	t.Helper()
	metrics := promhttp.HandlerFor(e.registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.step()
		metrics.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func (e *exporter) scrapes() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.steps
}
