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

// Way is several stages that an event goes through at once.
type Way uint8

// The ways.
const (
	// PoppedAndHandled is that of a queue's consumer, and of a merge's.
	PoppedAndHandled Way = iota
	// PoppedToHandled is that of an informer, with the store between.
	PoppedToHandled

	ways
)

// stagesOf are those of each way.
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

// Types is how many there are.
const Types = int(types)

// WatchType is the type of a watch event. What is none counts as Modified.
func WatchType(t watch.EventType) Type {
	switch t {
	case watch.Added:
		return Added
	case watch.Deleted:
		return Deleted
	case watch.Bookmark:
		return Bookmark
	default:
		return Modified
	}
}

// DeltaType is the type of what a queue handed over. An object without a type,
// as a latest-object queue hands it over, counts as Modified. Client-go's types
// differ in their first letters, but for those that come to the same here.
func DeltaType(t cache.DeltaType) Type {
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

// Histogram is one that a probe can add to.
type Histogram uint8

// The histograms. Those of times are in nanoseconds here and in seconds in a
// [Snapshot].
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

// meaning is what a histogram is exposed as.
type meaning struct {
	metric metric.Metric

	label string

	scale float64
}

const nanosecond = 1e-9

var meanings = [histograms]meaning{
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

// Metric returns what the histogram is exposed as, and the value of its own
// label, empty where it has none.
func (h Histogram) Metric() (m metric.Metric, label string) {
	return meanings[h].metric, meanings[h].label
}
