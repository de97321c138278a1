package metric

// The common labels: those of all metrics of a variant.
const (
	Run       = "run"
	Family    = "family"
	Variant   = "variant"
	Delivery  = "delivery"
	Pipeline  = "pipeline"
	Storm     = "storm"
	Source    = "source"
	Encoding  = "encoding"
	Decode    = "decode"
	Store     = "store"
	Workqueue = "workqueue"
	Rate      = "rate"
)

// SearchedRate is the rate of all cells of a search for the knee, which bounds the number of series.
const SearchedRate = "searched"

// CommonLabels returns the first labels of each Common metric. Delivery is deltafifo's only;
// encoding, decode, store and workqueue are empty unless the experiment chooses them. Rate is that of
// benchmark names: max for unpaced cells.
func CommonLabels() []string {
	return []string{Run, Family, Variant, Delivery, Pipeline, Storm, Source, Encoding, Decode, Store, Workqueue, Rate}
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
	Limit      = "limit"
	Commit     = "commit"
	GoVersion  = "goversion"

	Name     = "name"
	Group    = "group"
	Version  = "version"
	Resource = "resource"
)

// The values of stage.
const (
	Released = "released"
	Wire     = "wire"    // in traces only, where a client decodes
	Decoded  = "decoded" // as wire
	Enqueued = "enqueued"
	Popped   = "popped" // in pipelines with a merge: merged
	Stored   = "stored"
	Handled  = "handled"
	Worked   = "worked"
)

// Stages returns the values of the label stage in the order of the pipeline.
func Stages() []string {
	return []string{Released, Enqueued, Popped, Stored, Handled, Worked}
}

// Types returns the values of type. REPLACED is for objects of a list, SYNC for a resync's.
func Types() []string {
	return []string{"ADDED", "MODIFIED", "DELETED", "REPLACED", "SYNC", "BOOKMARK"}
}

// The values of boundary: two stages. Merged is for pipelines with a merge, wire and decoded for those
// whose client decodes.
const (
	ReleasedWire     = "released-wire"
	WireDecoded      = "wire-decoded"
	DecodedEnqueued  = "decoded-enqueued"
	ReleasedEnqueued = "released-enqueued"
	EnqueuedPopped   = "enqueued-popped"
	PoppedStored     = "popped-stored"
	StoredHandled    = "stored-handled"
	EnqueuedMerged   = "enqueued-merged"
	MergedHandled    = "merged-handled"
)

// The values of from: the start of an end-to-end latency.
const (
	FromIntended = "intended"
	FromReleased = "released"
)

// The values of phase. A variant is idle while others are played.
const (
	WarmUp  = "warm-up"
	Measure = "measure"
	Idle    = "idle"
)

// Phases returns the values of phase.
func Phases() []string { return []string{WarmUp, Measure, Idle} }

// OtherFault stands for a watch that ended without a known fault, a name of loadgen/fault.
const OtherFault = "other"

// Boundaries returns the values of boundary.
func Boundaries() []string {
	return []string{ReleasedWire, WireDecoded, DecodedEnqueued, ReleasedEnqueued, EnqueuedPopped, PoppedStored, StoredHandled, EnqueuedMerged, MergedHandled}
}
