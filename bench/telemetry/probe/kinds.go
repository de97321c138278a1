package probe

import (
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"watchlab/bench/telemetry/metric"
)

// Stage of a pipeline, in the order of [metric.Stages].
type Stage uint8

// The stages.
const (
	Released Stage = iota
	Enqueued
	Popped
	Stored
	Handled
	Worked

	stages
)

// Way is a sequence of stages that an event passes in one step.
type Way uint8

// The ways.
const (
	// PoppedAndHandled is for consumers of a queue or a merge.
	PoppedAndHandled Way = iota
	// PoppedToHandled is for informers, which store between the two.
	PoppedToHandled

	ways
)

var stagesOf = [ways][]Stage{
	PoppedAndHandled: {Popped, Handled},
	PoppedToHandled:  {Popped, Stored, Handled},
}

// Type of an event, in the order of [metric.Types].
type Type uint8

// The types.
const (
	Added Type = iota
	Modified
	Deleted
	Replaced
	Sync
	Bookmark

	types
)

// Types is the number of types.
const Types = int(types)

// WatchType returns the type of a watch event; Modified for an unknown one.
func WatchType(t watch.EventType) Type { return typeOf(string(t)) }

// DeltaType returns the type of a delta; Modified for an unknown or empty one, as a
// latest-object queue returns it.
func DeltaType(t cache.DeltaType) Type { return typeOf(string(t)) }

// typeOf reads the first letter, which differs between all types but Modified and
// Updated.
func typeOf(t string) Type {
	if t == "" {
		return Modified
	}
	switch t[0] {
	case 'A':
		return Added
	case 'D':
		return Deleted
	case 'R':
		return Replaced
	case 'S':
		return Sync
	case 'B':
		return Bookmark
	}
	return Modified
}

// Histogram names one of a set's histograms.
type Histogram uint8

// The histograms. Durations are in nanoseconds here and in seconds in a [Snapshot].
const (
	ReleasedEnqueued Histogram = iota
	EnqueuedPopped
	PoppedStored
	StoredHandled
	EnqueuedMerged
	MergedHandled
	IntendedHandled
	ReleasedHandled
	GeneratorLag
	BatchSize
	Staleness

	histograms
)

const nanosecond = 1e-9

// meanings maps each histogram to its metric, the value of the metric's own label, and
// the unit of a record.
var meanings = [histograms]struct {
	metric metric.Metric
	// label is the value of the metric's own label; empty for none.
	label string
	// scale converts a record to the unit of the metric.
	scale float64
}{
	ReleasedEnqueued: {metric.StageLatency, metric.ReleasedEnqueued, nanosecond},
	EnqueuedPopped:   {metric.StageLatency, metric.EnqueuedPopped, nanosecond},
	PoppedStored:     {metric.StageLatency, metric.PoppedStored, nanosecond},
	StoredHandled:    {metric.StageLatency, metric.StoredHandled, nanosecond},
	EnqueuedMerged:   {metric.StageLatency, metric.EnqueuedMerged, nanosecond},
	MergedHandled:    {metric.StageLatency, metric.MergedHandled, nanosecond},
	IntendedHandled:  {metric.EndToEndLatency, metric.FromIntended, nanosecond},
	ReleasedHandled:  {metric.EndToEndLatency, metric.FromReleased, nanosecond},
	GeneratorLag:     {metric.GeneratorLag, "", nanosecond},
	BatchSize:        {metric.BatchSize, "", 1},
	Staleness:        {metric.Staleness, "", 1},
}

// Metric returns the histogram's metric and the value of the metric's own label, empty
// if it has none.
func (h Histogram) Metric() (m metric.Metric, label string) {
	return meanings[h].metric, meanings[h].label
}
