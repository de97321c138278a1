package telemetry

import (
	"math"
	"slices"

	dto "github.com/prometheus/client_model/go"
)

// This file defines the names, help texts, labels and buckets of all metrics, and nothing else does. A
// new counter or histogram is a definition here and a call of [Set.Add] or [Set.Observe].
//
// Names and units follow Prometheus's conventions: base units (seconds, bytes), _total for
// counters. The number of label values is bounded: they come from lists, or
// from the experiment (its variants, its storm). Keys, objects and error texts are never labels.

// Metric describes one metric family.
type Metric struct {
	Name, Help string         // Name and Help are Prometheus's; Name includes the unit
	Kind       dto.MetricType // counter, gauge or histogram
	Common     bool           // Common metrics have the common labels before their own
	Labels     []string       // metric's own labels
	Buckets    []float64      // ascending upper bounds of a histogram's classic buckets
}

// CommonLabels are those of all metrics of a variant. Delivery is deltafifo's only; encoding, decode,
// store and workqueue are empty unless the experiment chooses them. Rate is that of benchmark names: max
// for unpaced cells.
var CommonLabels = [...]string{"run", "family", "variant", "delivery", "pipeline", "storm", "source", "encoding", "decode", "store", "workqueue", "rate"}

// SearchedRate is the rate of all cells of a search for the knee, which bounds the number of series.
const SearchedRate = "searched"

// OtherFault stands for a watch that ended without a known fault, a name of loadgen/fault.
const OtherFault = "other"

// The values of phase. A variant is idle while others are played.
const (
	WarmUp  = "warm-up"
	Measure = "measure"
	Idle    = "idle"
)

var phases = []string{WarmUp, Measure, Idle}

// AllLabels returns the labels in their order in series.
func (m Metric) AllLabels() []string {
	if !m.Common {
		return m.Labels
	}
	return append(slices.Clone(CommonLabels[:]), m.Labels...)
}

// zeroThreshold is the largest value counted as zero: below the clock's resolution.
const zeroThreshold = 1e-10

// The metrics of a run. Counters and histograms include all rounds with their warm-up;
// the figures of the results folder are of counted rounds only.
var (
	events = ofVariant(counter, "watchlab_events_total",
		"Events that reached a stage of the pipeline, by type, without the initial list.", "stage", "type")
	queueDepth = ofVariant(gauge, "watchlab_queue_depth",
		"Length of the variant's queue, sampled four times a second; for a merge, the notifications not yet received.")
	QueuedEvents = observed(1, counts(), "watchlab_queued_events",
		"Length of the variant's queue: one value for each reading of watchlab_queue_depth during a play.")
	HandlerBacklog = observed(1, counts(), "watchlab_handler_backlog_events",
		"Notifications that wait for the handlers of an informer of ours, read with the queue depth.")
	stageLatency = ofVariant(histogram(seconds()), "watchlab_stage_latency_seconds",
		"Time between two stages of the pipeline, for events with both timestamps: all of a paced cell, every 64th of an unpaced one unless --stamps says otherwise. A paced cell exports every eighth event while it is played and the rest at its end; an unpaced cell exports at its end.", "boundary")
	endToEndLatency = ofVariant(histogram(seconds()), "watchlab_end_to_end_latency_seconds",
		"Time from the release of an event until it is handled: from the intended time, in paced cells only, or from the actual one. Exported like the stage latency.", "from")
	BatchSize = observed(1, powers(0, 16, 1), "watchlab_batch_size",
		"Deltas, objects or pods in a hand-over, that of the initial list included.")
	Deltas = counted("watchlab_deltas_total",
		"Deltas, objects or pods in notifications that the variant returned, without the initial list. The ratio to watchlab_events_total{stage=\"enqueued\"} shows coalescing.")
	Staleness = observed(1, counts(), "watchlab_staleness_events",
		"Events that the store is behind the newest released event (resourceVersion lag), in paced cells of the informer pipeline: one value for each reading of the queue's depth since which the worker has looked up an object.")
	Relists = counted("watchlab_relists_total",
		"Lists from the source after the first.")
	WatchErrors = counted("watchlab_watch_errors_total",
		"Watches that ended or were refused, by fault: relist for a relist of the storm, other without a known cause.", "fault")
	Faults = counted("watchlab_faults_total",
		"Faults that the simulated API server injected.", "fault")
	GeneratorLag = observed(1e9, seconds(), "watchlab_generator_lag_seconds",
		"Time between the intended and the actual release of events in paced cells, without the delay by calls of the variant.")
	GeneratorLate = counted("watchlab_generator_late_total",
		"Releases beyond the lag budget.")
	GeneratorMissed = counted("watchlab_generator_missed_total",
		"Events of paced cells that were never released.")
	verdict = ofVariant(gauge, "watchlab_verdict",
		"1 for the present verdict of the cell, 0 for its earlier ones. The cause is empty unless the status is invalid.", "status", "cause")
	baseline = ofVariant(gauge, "watchlab_baseline",
		"1 for the cell that the ratios of the run are relative to, 0 for the others.")
	phase = ofVariant(gauge, "watchlab_phase",
		"1 for the present phase of the cell, 0 for the others.", "phase")
	Rounds = counted("watchlab_rounds_total",
		"Finished counted rounds.")
	PlayTime = counted("watchlab_played_seconds_total",
		"Time of the plays. The rate of events by it is the throughput during plays, however short they are.")
	cells = ofRun(gauge, "watchlab_cells",
		"Cells of the run.")
	progress = ofRun(gauge, "watchlab_run_progress_ratio",
		"Finished share of the run: of its rounds, or of its budget.")
	buildInfo = ofRun(gauge, "watchlab_build_info",
		"Always 1; the labels have the run's name, the commit and the Go release of watchlab.", "commit", "goversion")
	startTime = ofRun(gauge, "watchlab_run_start_time_seconds",
		"Start of the run in Unix time.", "commit")
	objective = ofRun(gauge, "watchlab_objective_seconds",
		"Largest latency that a search for the knee allows, of a quantile such as p99.", "limit")
	EventsPerSecond = ofVariant(gauge, "watchlab_events_per_second",
		"Events per second of a finished cell, the median of its counted rounds. Invalid cells have no series.", "commit")
	CPUPerEvent = ofVariant(gauge, "watchlab_cpu_seconds_per_event",
		"CPU time of an event in a finished cell, like watchlab_events_per_second.", "commit")
	BytesPerEvent = ofVariant(gauge, "watchlab_allocated_bytes_per_event",
		"Allocated bytes of an event in a finished cell, like watchlab_events_per_second.", "commit")
	latencyQuantile = ofVariant(gauge, "watchlab_latency_quantile_seconds",
		"Quantile of the latency from the intended time of a finished paced cell over its counted rounds. Invalid cells have no series.", "quantile", "commit")
)

// Histogram is a series of a set. Durations are observed in nanoseconds and exported in seconds.
type Histogram int

// series has the metric of each histogram, the value of the metric's own label (empty for none),
// and the number of observed units per unit of the metric.
var series []metricSeries

type metricSeries struct {
	Metric
	label string
	per   float64
}

func (m Metric) of(per float64, label string) Histogram {
	series = append(series, metricSeries{m, label, per})
	return Histogram(len(series) - 1)
}

// The time between two stages. Merged is for pipelines with a merge, wire and decoded for those whose
// client decodes.
var (
	ReleasedWire     = stageLatency.of(1e9, "released-wire")
	WireDecoded      = stageLatency.of(1e9, "wire-decoded")
	DecodedEnqueued  = stageLatency.of(1e9, "decoded-enqueued")
	ReleasedEnqueued = stageLatency.of(1e9, "released-enqueued")
	EnqueuedPopped   = stageLatency.of(1e9, "enqueued-popped")
	PoppedStored     = stageLatency.of(1e9, "popped-stored")
	StoredHandled    = stageLatency.of(1e9, "stored-handled")
	EnqueuedMerged   = stageLatency.of(1e9, "enqueued-merged")
	MergedHandled    = stageLatency.of(1e9, "merged-handled")
	IntendedHandled  = endToEndLatency.of(1e9, "intended")
	ReleasedHandled  = endToEndLatency.of(1e9, "released")
)

// own has the metrics in the order of their definition, counters those of [Set.Add].
var own, counters []Metric

// Metrics returns the metrics of watchlab.
func Metrics() []Metric { return slices.Clone(own) }

var counter, gauge = Metric{Kind: dto.MetricType_COUNTER}, Metric{Kind: dto.MetricType_GAUGE}

func histogram(buckets []float64) Metric {
	return Metric{Kind: dto.MetricType_HISTOGRAM, Buckets: buckets}
}

func (m Metric) define(in *[]Metric, name, help string, labels []string) Metric {
	m.Name, m.Help, m.Labels = name, help, labels
	*in = append(*in, m)
	return m
}

func ofVariant(m Metric, name, help string, labels ...string) Metric {
	m.Common = true
	return m.define(&own, name, help, labels)
}

func ofRun(m Metric, name, help string, labels ...string) Metric {
	return m.define(&own, name, help, append([]string{"run"}, labels...))
}

// counted defines a counter that [Set.Add] counts.
func counted(name, help string, labels ...string) Metric {
	m := ofVariant(counter, name, help, labels...)
	counters = append(counters, m)
	return m
}

// observed defines a histogram with one series, of so many observed units per unit of the metric.
func observed(per float64, buckets []float64, name, help string) Histogram {
	return ofVariant(histogram(buckets), name, help).of(per, "")
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
