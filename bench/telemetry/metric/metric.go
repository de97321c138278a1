// Package metric defines the names, help texts, labels and buckets of watchlab's metrics,
// the only place that does. The exporter, the live page, dashboards and rules use it. It
// has no dependencies.
//
// Names and units follow Prometheus's conventions: base units (seconds, bytes), _total for
// counters. The number of label values is bounded: they come from the lists in this
// package, or from the experiment (its variants, its storm). Keys, objects and error texts
// are never labels.
package metric

import "math"

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
	Name, Help string
	Kind       Kind
	// Common metrics have the common labels before their own.
	Common bool
	Labels []string
	// Buckets are the upper bounds of a histogram's classic buckets.
	Buckets []float64
}

// AllLabels returns the labels in their order in series.
func (m Metric) AllLabels() []string {
	if !m.Common {
		return m.Labels
	}
	return append(CommonLabels(), m.Labels...)
}

// Schema of the native histograms: 2^3 buckets for each power of two, so that a quantile
// is within 4.5 % of an observed value.
const Schema = 3

// ZeroThreshold of the native histograms is the largest value counted as zero. It is
// below the resolution of the clock.
const ZeroThreshold = 1e-10

// The metrics of a run. Counters and histograms include all rounds with their warm-up;
// the figures of the results folder are of counted rounds only.
var (
	Events = Metric{
		Name: "watchlab_events_total", Kind: Counter, Common: true, Labels: []string{Stage, Type},
		Help: "Events that reached a stage of the pipeline, by type.",
	}
	QueueDepth = Metric{
		Name: "watchlab_queue_depth", Kind: Gauge, Common: true,
		Help: "Length of the variant's queue, sampled four times a second; for a merge, the notifications not yet received.",
	}
	QueueBytes = Metric{
		Name: "watchlab_queue_bytes", Kind: Gauge, Common: true,
		Help: "JSON size of the queued objects: queue depth times the storm's mean object size.",
	}
	StageLatency = Metric{
		Name: "watchlab_stage_latency_seconds", Kind: Histogram, Common: true, Labels: []string{Boundary}, Buckets: seconds(),
		Help: "Time between two stages of the pipeline, for events with both timestamps: all of a paced cell, every 64th of an unpaced one. A paced cell exports every eighth batch while it is played and the rest at its end; an unpaced cell exports at its end.",
	}
	EndToEndLatency = Metric{
		Name: "watchlab_end_to_end_latency_seconds", Kind: Histogram, Common: true, Labels: []string{From}, Buckets: seconds(),
		Help: "Time from the intended (paced cells) or actual release of an event until it is handled, exported like the stage latency.",
	}
	BatchSize = Metric{
		Name: "watchlab_batch_size", Kind: Histogram, Common: true, Buckets: powers(0, 16, 1),
		Help: "Deltas or objects in a batch of the queue.",
	}
	Deltas = Metric{
		Name: "watchlab_deltas_total", Kind: Counter, Common: true,
		Help: "Deltas, objects or notifications that the variant returned. The ratio to watchlab_events_total{stage=\"enqueued\"} shows coalescing.",
	}
	Staleness = Metric{
		Name: "watchlab_staleness_events", Kind: Histogram, Common: true, Buckets: append([]float64{0}, powers(0, 20, 2)...),
		Help: "Events that the store is behind the newest released event when the worker looks up an object (resourceVersion lag), for every eighth look-up.",
	}
	Relists = Metric{
		Name: "watchlab_relists_total", Kind: Counter, Common: true,
		Help: "Lists from the source after the first.",
	}
	WatchErrors = Metric{
		Name: "watchlab_watch_errors_total", Kind: Counter, Common: true, Labels: []string{Fault},
		Help: "Watches that ended or were refused, by fault: relist for a relist of the storm, other without a known cause.",
	}
	Faults = Metric{
		Name: "watchlab_faults_total", Kind: Counter, Common: true, Labels: []string{Fault},
		Help: "Faults that the simulated API server injected.",
	}
	GeneratorLag = Metric{
		Name: "watchlab_generator_lag_seconds", Kind: Histogram, Common: true, Buckets: seconds(),
		Help: "Time between the intended and the actual release of events in paced cells.",
	}
	GeneratorLate = Metric{
		Name: "watchlab_generator_late_total", Kind: Counter, Common: true,
		Help: "Releases beyond the lag budget.",
	}
	GeneratorMissed = Metric{
		Name: "watchlab_generator_missed_total", Kind: Counter, Common: true,
		Help: "Events not released at the end of the schedule.",
	}
	Verdict = Metric{
		Name: "watchlab_verdict", Kind: Gauge, Common: true, Labels: []string{Status, Cause},
		Help: "1 for the present verdict of the cell; earlier verdicts have no series. The cause is empty unless the status is invalid.",
	}
	Phase = Metric{
		Name: "watchlab_phase", Kind: Gauge, Common: true, Labels: []string{PhaseLabel},
		Help: "1 for the present phase of the variant, 0 for the others.",
	}
	Rounds = Metric{
		Name: "watchlab_rounds_total", Kind: Counter, Common: true,
		Help: "Finished counted rounds.",
	}
	Cells = Metric{
		Name: "watchlab_cells", Kind: Gauge, Labels: []string{Run},
		Help: "Cells of the run.",
	}
	Progress = Metric{
		Name: "watchlab_run_progress_ratio", Kind: Gauge, Labels: []string{Run},
		Help: "Finished share of the run's rounds, warm-ups included.",
	}
	BuildInfo = Metric{
		Name: "watchlab_build_info", Kind: Gauge, Labels: []string{Run, Commit, GoVersion},
		Help: "Always 1; the labels have the run's name, the commit and the Go release of watchlab.",
	}
	EventsPerSecond = Metric{
		Name: "watchlab_events_per_second", Kind: Gauge, Common: true, Labels: []string{Rate, Commit},
		Help: "Events per second of a finished cell, the median of its counted rounds. Invalid cells have no series.",
	}
	LatencyQuantile = Metric{
		Name: "watchlab_latency_quantile_seconds", Kind: Gauge, Common: true, Labels: []string{Quantile, Rate, Commit},
		Help: "Quantile of the headline latency of a finished cell over its counted rounds. Invalid cells have no series.",
	}
)

// client-go's own metrics, in paced cells of the informer pipeline. Names, labels and help
// texts are those of k8s.io/component-base v0.36.3 (metrics/prometheus/clientgo/fifo and
// metrics/prometheus/workqueue). The label name is the variant's, for example
// "deltafifo/ring/in-order". Histograms have every 16th batch and item, as timing each
// would slow the pipeline.
var (
	InformerQueuedItems = Metric{
		Name: "informer_queued_items", Kind: Gauge, Labels: informerLabels,
		Help: "Number of items currently queued in the FIFO.",
	}
	InformerProcessingLatency = Metric{
		Name: "informer_processing_latency_seconds", Kind: Histogram, Labels: informerLabels,
		Buckets: []float64{0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10},
		Help:    "Time taken to process events after popping from the queue.",
	}
	InformerStoreResourceVersion = Metric{
		Name: "informer_store_resource_version", Kind: Gauge, Labels: informerLabels,
		Help: "The 15 least significant digits of the resource version of the store.",
	}
	WorkqueueDepth = Metric{
		Name: "workqueue_depth", Kind: Gauge, Labels: workqueueLabels,
		Help: "Current depth of workqueue",
	}
	WorkqueueAdds = Metric{
		Name: "workqueue_adds_total", Kind: Counter, Labels: workqueueLabels,
		Help: "Total number of adds handled by workqueue",
	}
	WorkqueueQueueDuration = Metric{
		Name: "workqueue_queue_duration_seconds", Kind: Histogram, Labels: workqueueLabels, Buckets: decades(),
		Help: "How long in seconds an item stays in workqueue before being requested.",
	}
	WorkqueueWorkDuration = Metric{
		Name: "workqueue_work_duration_seconds", Kind: Histogram, Labels: workqueueLabels, Buckets: decades(),
		Help: "How long in seconds processing an item from workqueue takes.",
	}
	WorkqueueUnfinishedWork = Metric{
		Name: "workqueue_unfinished_work_seconds", Kind: Gauge, Labels: workqueueLabels,
		Help: "How many seconds of work has done that is in progress and hasn't been observed by work_duration. Large values indicate stuck threads. One can deduce the number of stuck threads by observing the rate at which this increases.",
	}
	WorkqueueLongestRunning = Metric{
		Name: "workqueue_longest_running_processor_seconds", Kind: Gauge, Labels: workqueueLabels,
		Help: "How many seconds has the longest running processor for workqueue been running.",
	}
	WorkqueueRetries = Metric{
		Name: "workqueue_retries_total", Kind: Counter, Labels: workqueueLabels,
		Help: "Total number of retries handled by workqueue",
	}
)

var (
	informerLabels  = []string{Name, Group, Version, Resource}
	workqueueLabels = []string{Name}
)

// Own returns watchlab's own metrics.
func Own() []Metric {
	return []Metric{
		Events, QueueDepth, QueueBytes, StageLatency, EndToEndLatency, BatchSize, Deltas, Staleness,
		Relists, WatchErrors, Faults, GeneratorLag, GeneratorLate, GeneratorMissed,
		Verdict, Phase, Rounds, Cells, Progress, BuildInfo, EventsPerSecond, LatencyQuantile,
	}
}

// Upstream returns the metrics that have client-go's names.
func Upstream() []Metric {
	return []Metric{
		InformerQueuedItems, InformerProcessingLatency, InformerStoreResourceVersion,
		WorkqueueDepth, WorkqueueAdds, WorkqueueQueueDuration, WorkqueueWorkDuration,
		WorkqueueUnfinishedWork, WorkqueueLongestRunning, WorkqueueRetries,
	}
}

// seconds returns bounds from 0.24 µs to 16 s. As powers of two they are also bounds of
// the native buckets, so that the classic counts are exact.
func seconds() []float64 { return powers(-22, 4, 1) }

// powers of two from 2^from to 2^to.
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
