// Package metric has the names, help texts, labels and buckets of all metrics
// that watchlab exposes. The exporter, the live page, the dashboards and their
// rules take them from here; nothing else writes one down. It has no
// dependencies.
//
// Names and units are as Prometheus asks: base units (seconds, bytes), _total
// for counters. Values of labels are bounded by construction: they come from the
// lists in this package, or from what a run names before it begins (its variants,
// its storm). No key, object or error text is ever a label.
package metric

// Kind is what Prometheus calls the type of a metric.
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

	Common bool

	Labels []string

	Buckets []float64
}

// AllLabels returns the labels in the order in which they are exposed.
func (m Metric) AllLabels() []string {
	if !m.Common {
		return m.Labels
	}
	return append(CommonLabels(), m.Labels...)
}

// Schema of the native histograms: 2^3 buckets each time the value doubles, so
// that a quantile is within 4.5 % of a value that was measured.
const Schema = 3

// ZeroThreshold of the native histograms: what is not above it is counted as
// zero. It is less than the clock can tell.
const ZeroThreshold = 1e-10

// The metrics of a run. "So far" is over all rounds of the cell, the warm-up
// included; figures of the results folder are of counted rounds alone.
var (
	Events = Metric{
		Name: "watchlab_events_total", Kind: Counter, Common: true, Labels: []string{Stage, Type},
		Help: "Events that came to a stage of the pipeline so far, by type.",
	}
	QueueDepth = Metric{
		Name: "watchlab_queue_depth", Kind: Gauge, Common: true,
		Help: "What waits in the variant now: its Len, looked at a few times a second; for a merge, notifications that nobody has received yet.",
	}
	QueueBytes = Metric{
		Name: "watchlab_queue_bytes", Kind: Gauge, Common: true,
		Help: "What the objects that wait in the variant would take as JSON: queue depth times the storm's mean object size.",
	}
	StageLatency = Metric{
		Name: "watchlab_stage_latency_seconds", Kind: Histogram, Common: true, Labels: []string{Boundary}, Buckets: seconds(),
		Help: "Time between two stages of the pipeline, of the events that are stamped at both (every event of a paced cell, every 64th of an unpaced one). While a cell is played, of one hand-over in eight, the rest when it is over; of unpaced cells, all when it is over.",
	}
	EndToEndLatency = Metric{
		Name: "watchlab_end_to_end_latency_seconds", Kind: Histogram, Common: true, Labels: []string{From}, Buckets: seconds(),
		Help: "Time until an event was handled, from when it was meant to be released (paced cells) or was released; told as the times between stages are.",
	}
	BatchSize = Metric{
		Name: "watchlab_batch_size", Kind: Histogram, Common: true, Buckets: powers(0, 16, 1),
		Help: "Deltas or objects in one hand-over of the queue.",
	}
	Deltas = Metric{
		Name: "watchlab_deltas_total", Kind: Counter, Common: true,
		Help: "Deltas, objects or notifications that came out of the variant so far. Over watchlab_events_total{stage=\"enqueued\"} it tells what is coalesced.",
	}
	Staleness = Metric{
		Name: "watchlab_staleness_events", Kind: Histogram, Common: true, Buckets: append([]float64{0}, powers(0, 20, 2)...),
		Help: "How many events the store was behind the newest released one when the worker looked an object up (resourceVersion lag), one look-up in eight.",
	}
	Relists = Metric{
		Name: "watchlab_relists_total", Kind: Counter, Common: true,
		Help: "Lists after the first that the source was asked for.",
	}
	WatchErrors = Metric{
		Name: "watchlab_watch_errors_total", Kind: Counter, Common: true, Labels: []string{Fault},
		Help: "Watches that a fault ended, and requests for one that it refused, by fault: relist where the storm itself has one, other where the source was listed again and nothing explains it.",
	}
	Faults = Metric{
		Name: "watchlab_faults_total", Kind: Counter, Common: true, Labels: []string{Fault},
		Help: "Faults that the simulated API server injected.",
	}
	GeneratorLag = Metric{
		Name: "watchlab_generator_lag_seconds", Kind: Histogram, Common: true, Buckets: seconds(),
		Help: "How late events of paced cells were released.",
	}
	GeneratorLate = Metric{
		Name: "watchlab_generator_late_total", Kind: Counter, Common: true,
		Help: "Releases that were later than their budget.",
	}
	GeneratorMissed = Metric{
		Name: "watchlab_generator_missed_total", Kind: Counter, Common: true,
		Help: "Events that had not been released when the schedule was over.",
	}
	Verdict = Metric{
		Name: "watchlab_verdict", Kind: Gauge, Common: true, Labels: []string{Status, Cause},
		Help: "1 for the verdict on the cell as it is now; other verdicts of the cell are gone. The cause is empty unless the status is invalid.",
	}
	Phase = Metric{
		Name: "watchlab_phase", Kind: Gauge, Common: true, Labels: []string{PhaseLabel},
		Help: "1 for the phase that the variant is in, 0 for the others.",
	}
	Rounds = Metric{
		Name: "watchlab_rounds_total", Kind: Counter, Common: true,
		Help: "Counted rounds that were finished.",
	}
	Cells = Metric{
		Name: "watchlab_cells", Kind: Gauge, Labels: []string{Run},
		Help: "Cells of the run.",
	}
	Progress = Metric{
		Name: "watchlab_run_progress_ratio", Kind: Gauge, Labels: []string{Run},
		Help: "Share of the run's plays that are finished, warm-ups included.",
	}
	BuildInfo = Metric{
		Name: "watchlab_build_info", Kind: Gauge, Labels: []string{Run, Commit, GoVersion},
		Help: "1, with the run's name and the commit and Go release that watchlab was built from.",
	}
	EventsPerSecond = Metric{
		Name: "watchlab_events_per_second", Kind: Gauge, Common: true, Labels: []string{Rate, Commit},
		Help: "Events a second of a finished cell, the median of its counted rounds. Only cells whose verdict is not invalid have it.",
	}
	LatencyQuantile = Metric{
		Name: "watchlab_latency_quantile_seconds", Kind: Gauge, Common: true, Labels: []string{Quantile, Rate, Commit},
		Help: "Quantile of the headline latency of a finished cell, over its counted rounds. Only cells whose verdict is not invalid have it.",
	}
)

// Upstream's own metrics. Their names, labels and help texts are those of
// k8s.io/component-base v0.36.3 (metrics/prometheus/clientgo/fifo and
// metrics/prometheus/workqueue), which registers the hooks that client-go v0.37
// calls. The label name is the contestant's, as in "deltafifo/ring/in-order". They
// are of paced cells of the informer pipeline, and histograms are of one hand-over
// and one item in 16, as timing each would show in what is measured.
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

// seconds are bounds from 0.24 µs to 16 s, each twice the one before. They are
// bounds of the native buckets too, so that the classic counts are exact.
func seconds() []float64 { return powers(-22, 4, 1) }

// powers of two from 2^from to 2^to.
func powers(from, to, step int) []float64 {
	var out []float64
	for e := from; e <= to; e += step {
		v := 1.0
		for range max(e, -e) {
			if e > 0 {
				v *= 2
			} else {
				v /= 2
			}
		}
		out = append(out, v)
	}
	return out
}

// decades are upstream's bounds of a workqueue's histograms.
func decades() []float64 {
	return []float64{10e-9, 100e-9, 1e-6, 10e-6, 100e-6, 1e-3, 10e-3, 100e-3, 1, 10}
}
