package metric

// The labels of everything that is told of a variant.
const (
	Run      = "run"
	Family   = "family"
	Variant  = "variant"
	Delivery = "delivery"
	Pipeline = "pipeline"
	Storm    = "storm"
	Source   = "source"
)

// CommonLabels returns the labels that come first in metrics that are Common.
// Delivery is empty for families other than deltafifo.
func CommonLabels() []string {
	return []string{Run, Family, Variant, Delivery, Pipeline, Storm, Source}
}

// The labels of single metrics.
const (
	Stage      = "stage"
	Type       = "type"
	Boundary   = "boundary"
	From       = "from"
	Fault      = "fault"
	Status     = "status"
	Cause      = "cause"
	PhaseLabel = "phase"
	Quantile   = "quantile"
	Rate       = "rate"
	Commit     = "commit"
	GoVersion  = "goversion"

	Name     = "name"
	Group    = "group"
	Version  = "version"
	Resource = "resource"
)

// Stages are the values of stage, in the order in which an event comes to them.
// In pipelines with a merge, popped is when the event was merged.
func Stages() []string {
	return []string{Released, Enqueued, Popped, Stored, Handled, Worked}
}

// The stages.
const (
	Released = "released"
	Enqueued = "enqueued"
	Popped   = "popped"
	Stored   = "stored"
	Handled  = "handled"
	Worked   = "worked"
)

// Types are the values of type. The first three are those of a watch; what comes
// out of a list is REPLACED, of a resync SYNC.
func Types() []string { return []string{Added, Modified, Deleted, Replaced, Sync, Bookmark} }

// The types.
const (
	Added    = "ADDED"
	Modified = "MODIFIED"
	Deleted  = "DELETED"
	Replaced = "REPLACED"
	Sync     = "SYNC"
	Bookmark = "BOOKMARK"
)

// Boundaries are the values of boundary: the same as in reports, with a plain
// hyphen. The merged ones are of pipelines with a merge.
func Boundaries() []string {
	return []string{
		ReleasedEnqueued, EnqueuedPopped, PoppedStored, StoredHandled, EnqueuedMerged, MergedHandled,
	}
}

// The boundaries.
const (
	ReleasedEnqueued = "released-enqueued"
	EnqueuedPopped   = "enqueued-popped"
	PoppedStored     = "popped-stored"
	StoredHandled    = "stored-handled"
	EnqueuedMerged   = "enqueued-merged"
	MergedHandled    = "merged-handled"
)

// Froms are the values of from.
func Froms() []string { return []string{FromIntended, FromReleased} }

// Where an end-to-end latency begins.
const (
	FromIntended = "intended"
	FromReleased = "released"
)

// Phases are the values of phase. Idle is a variant while others are played.
func Phases() []string { return []string{WarmUp, Measure, Idle} }

// The phases.
const (
	WarmUp  = "warm-up"
	Measure = "measure"
	Idle    = "idle"
)

// Statuses are the values of status; see bench/lab.
func Statuses() []string { return []string{"valid", "noisy", "invalid", "unplayed"} }

// OtherFault is the value of fault where a watch was lost that no fault ended. The
// other values are the names of loadgen/fault.
const OtherFault = "other"

// Quantiles are the values of quantile.
func Quantiles() []string { return []string{"0.5", "0.9", "0.99", "0.999", "1"} }
