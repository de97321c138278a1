// Package metric defines the names, help texts, labels and buckets of watchlab's metrics,
// the only place that does. The exporter, the live page, dashboards and rules use it. It
// has no dependencies.
//
// Names and units follow Prometheus's conventions: base units (seconds, bytes), _total for
// counters. The number of label values is bounded: they come from the lists in this package, or
// from the experiment (its variants, its storm). Keys, objects and error texts are never labels.
package metric

import (
	"math"
	"slices"
)

// Kind is Prometheus's type of a metric.
type Kind string

// The kinds.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Metric describes one metric family.
type Metric struct {
	Name, Help string    // Name and Help are Prometheus's; Name includes the unit
	Kind       Kind      // Prometheus type
	Common     bool      // Common metrics have the common labels before their own
	Labels     []string  // metric's own labels
	Buckets    []float64 // ascending upper bounds of a histogram's classic buckets
}

// AllLabels returns the labels in their order in series.
func (m Metric) AllLabels() []string {
	if !m.Common {
		return m.Labels
	}
	return append(CommonLabels(), m.Labels...)
}

// Schema of the native histograms: 2^3 buckets for each power of two put a quantile within 4.5 %.
const Schema = 3

// ZeroThreshold is the largest value counted as zero: below the clock's resolution.
const ZeroThreshold = 1e-10

// The metrics of a run. Counters and histograms include all rounds with their warm-up;
// the figures of the results folder are of counted rounds only.
var (
	Events = ofVariant(counter, "watchlab_events_total",
		"Events that reached a stage of the pipeline, by type, without the initial list.", Stage, Type)
	QueueDepth = ofVariant(gauge, "watchlab_queue_depth",
		"Length of the variant's queue, sampled four times a second; for a merge, the notifications not yet received.")
	QueuedEvents = ofVariant(histogram(counts()), "watchlab_queued_events",
		"Length of the variant's queue: one value for each reading of watchlab_queue_depth during a play.")
	HandlerBacklog = ofVariant(histogram(counts()), "watchlab_handler_backlog_events",
		"Notifications that wait for the handlers of an informer of ours, read with the queue depth.")
	StageLatency = ofVariant(histogram(seconds()), "watchlab_stage_latency_seconds",
		"Time between two stages of the pipeline, for events with both timestamps: all of a paced cell, every 64th of an unpaced one unless --stamps says otherwise. A paced cell exports every eighth event while it is played and the rest at its end; an unpaced cell exports at its end.", Boundary)
	EndToEndLatency = ofVariant(histogram(seconds()), "watchlab_end_to_end_latency_seconds",
		"Time from the release of an event until it is handled: from the intended time, in paced cells only, or from the actual one. Exported like the stage latency.", From)
	BatchSize = ofVariant(histogram(powers(0, 16, 1)), "watchlab_batch_size",
		"Deltas, objects or pods in a hand-over, that of the initial list included.")
	Deltas = ofVariant(counter, "watchlab_deltas_total",
		"Deltas, objects or pods in notifications that the variant returned, without the initial list. The ratio to watchlab_events_total{stage=\"enqueued\"} shows coalescing.")
	Staleness = ofVariant(histogram(counts()), "watchlab_staleness_events",
		"Events that the store is behind the newest released event (resourceVersion lag), in paced cells of the informer pipeline: one value for each reading of the queue's depth since which the worker has looked up an object.")
	Relists = ofVariant(counter, "watchlab_relists_total",
		"Lists from the source after the first.")
	WatchErrors = ofVariant(counter, "watchlab_watch_errors_total",
		"Watches that ended or were refused, by fault: relist for a relist of the storm, other without a known cause.", Fault)
	Faults = ofVariant(counter, "watchlab_faults_total",
		"Faults that the simulated API server injected.", Fault)
	GeneratorLag = ofVariant(histogram(seconds()), "watchlab_generator_lag_seconds",
		"Time between the intended and the actual release of events in paced cells, without the delay by calls of the variant.")
	GeneratorLate = ofVariant(counter, "watchlab_generator_late_total",
		"Releases beyond the lag budget.")
	GeneratorMissed = ofVariant(counter, "watchlab_generator_missed_total",
		"Events of paced cells that were never released.")
	Verdict = ofVariant(gauge, "watchlab_verdict",
		"1 for the present verdict of the cell, 0 for its earlier ones. The cause is empty unless the status is invalid.", Status, Cause)
	Baseline = ofVariant(gauge, "watchlab_baseline",
		"1 for the cell that the ratios of the run are relative to, 0 for the others.")
	Phase = ofVariant(gauge, "watchlab_phase",
		"1 for the present phase of the cell, 0 for the others.", PhaseLabel)
	Rounds = ofVariant(counter, "watchlab_rounds_total",
		"Finished counted rounds.")
	PlayTime = ofVariant(counter, "watchlab_played_seconds_total",
		"Time of the plays. The rate of events by it is the throughput during plays, however short they are.")
	Cells = ofRun(gauge, "watchlab_cells",
		"Cells of the run.")
	Progress = ofRun(gauge, "watchlab_run_progress_ratio",
		"Finished share of the run: of its rounds, warm-ups included, or of its budget.")
	BuildInfo = ofRun(gauge, "watchlab_build_info",
		"Always 1; the labels have the run's name, the commit and the Go release of watchlab.", Commit, GoVersion)
	StartTime = ofRun(gauge, "watchlab_run_start_time_seconds",
		"Start of the run in Unix time.", Commit)
	Objective = ofRun(gauge, "watchlab_objective_seconds",
		"Largest latency that a search for the knee allows, of a quantile such as p99.", Limit)
	EventsPerSecond = ofVariant(gauge, "watchlab_events_per_second",
		"Events per second of a finished cell, the median of its counted rounds. Invalid cells have no series.", Commit)
	CPUPerEvent = ofVariant(gauge, "watchlab_cpu_seconds_per_event",
		"CPU time of an event in a finished cell, like watchlab_events_per_second.", Commit)
	BytesPerEvent = ofVariant(gauge, "watchlab_allocated_bytes_per_event",
		"Allocated bytes of an event in a finished cell, like watchlab_events_per_second.", Commit)
	LatencyQuantile = ofVariant(gauge, "watchlab_latency_quantile_seconds",
		"Quantile of the latency from the intended time of a finished paced cell over its counted rounds. Invalid cells have no series.", Quantile, Commit)
)

// client-go's own metrics, in paced cells of the informer pipeline. Names, labels and help
// texts are those of k8s.io/component-base v0.36.3 (metrics/prometheus/clientgo/fifo and
// metrics/prometheus/workqueue). The label name is the variant's, for example
// "deltafifo/ring/in-order". Histograms have every 16th batch and item, as timing each
// would slow the pipeline.
var (
	InformerQueuedItems = ofClientGo(gauge, "informer_queued_items",
		"Number of items currently queued in the FIFO.", Name, Group, Version, Resource)
	InformerProcessingLatency = ofClientGo(histogram([]float64{0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}), "informer_processing_latency_seconds",
		"Time taken to process events after popping from the queue.", Name, Group, Version, Resource)
	InformerStoreResourceVersion = ofClientGo(gauge, "informer_store_resource_version",
		"The 15 least significant digits of the resource version of the store.", Name, Group, Version, Resource)
	WorkqueueDepth = ofClientGo(gauge, "workqueue_depth",
		"Current depth of workqueue", Name)
	WorkqueueAdds = ofClientGo(counter, "workqueue_adds_total",
		"Total number of adds handled by workqueue", Name)
	WorkqueueQueueDuration = ofClientGo(histogram(decades()), "workqueue_queue_duration_seconds",
		"How long in seconds an item stays in workqueue before being requested.", Name)
	WorkqueueWorkDuration = ofClientGo(histogram(decades()), "workqueue_work_duration_seconds",
		"How long in seconds processing an item from workqueue takes.", Name)
	WorkqueueUnfinishedWork = ofClientGo(gauge, "workqueue_unfinished_work_seconds",
		"How many seconds of work has done that is in progress and hasn't been observed by work_duration. Large values indicate stuck threads. One can deduce the number of stuck threads by observing the rate at which this increases.", Name)
	WorkqueueLongestRunning = ofClientGo(gauge, "workqueue_longest_running_processor_seconds",
		"How many seconds has the longest running processor for workqueue been running.", Name)
	WorkqueueRetries = ofClientGo(counter, "workqueue_retries_total",
		"Total number of retries handled by workqueue", Name)
)

// own and clientGo have the metrics in the order of their definition.
var own, clientGo []Metric

// Own returns all metrics.
func Own() []Metric { return slices.Clone(own) }

// Upstream returns the metrics under client-go's names.
func Upstream() []Metric { return slices.Clone(clientGo) }

type shape struct {
	kind    Kind
	buckets []float64
}

var counter, gauge = shape{kind: Counter}, shape{kind: Gauge}

func histogram(buckets []float64) shape { return shape{kind: Histogram, buckets: buckets} }

func define(in *[]Metric, common bool, s shape, name, help string, labels []string) Metric {
	m := Metric{Name: name, Help: help, Kind: s.kind, Common: common, Labels: labels, Buckets: s.buckets}
	*in = append(*in, m)
	return m
}

func ofVariant(s shape, name, help string, labels ...string) Metric {
	return define(&own, true, s, name, help, labels)
}

func ofRun(s shape, name, help string, labels ...string) Metric {
	return define(&own, false, s, name, help, append([]string{Run}, labels...))
}

func ofClientGo(s shape, name, help string, labels ...string) Metric {
	return define(&clientGo, false, s, name, help, labels)
}

// seconds returns bounds from 0.24 µs to 16 s. As powers of two they are also bounds of
// the native buckets, so that the classic counts are exact.
func seconds() []float64 { return powers(-22, 4, 1) }

// counts returns bounds from 0 to a million.
func counts() []float64 { return append([]float64{0}, powers(0, 20, 2)...) }

func powers(from, to, step int) (out []float64) {
	for e := from; e <= to; e += step {
		out = append(out, math.Exp2(float64(e)))
	}
	return out
}

// decades returns client-go's bounds for the histograms of a workqueue.
func decades() []float64 {
	return []float64{10e-9, 100e-9, 1e-6, 10e-6, 100e-6, 1e-3, 10e-3, 100e-3, 1, 10}
}
