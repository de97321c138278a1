package stats

import (
	"math"
	"slices"
	"strings"
	"time"

	"watchlab/bench/cell"
)

// The units of the figures that every measurement has. Times are written in
// nanoseconds, as `go test` does; benchstat shows them in seconds.
const (
	UnitNsPerOp        = "ns/op"
	UnitEventsPerSec   = "events/s"
	UnitBytesPerOp     = "B/op"
	UnitAllocsPerOp    = "allocs/op"
	UnitDeltasPerEvent = "deltas/event"
	UnitCPUPerOp       = "cpu-ns/op"
	UnitGCs            = "gcs/run"
	UnitGCPause        = "gc-pause-ns/run"
	UnitLockWait       = "lock-wait-ns/op"
	// UnitGCPauseMax is the longest pause; it is written where it is known.
	UnitGCPauseMax = "gc-pause-max-ns"
	// UnitSteal is which share of the machine's CPU time went to others.
	UnitSteal = "steal/run"
)

// The units of memory, which is known of cells only that had a process to
// themselves. The heap's growth is its peak less what was live when the clock
// started.
const (
	UnitPeakHeap   = "peak-heap-B"
	UnitHeapGrowth = "heap-growth-B"
	UnitPeakRSS    = "peak-RSS-B"
)

// The units of the headline latency, and of the generator's lag.
const (
	UnitP50      = "p50-ns"
	UnitP90      = "p90-ns"
	UnitP99      = "p99-ns"
	UnitP999     = "p99.9-ns"
	UnitMax      = "max-ns"
	UnitLagP99   = "lag-p99-ns"
	UnitLateness = "late/release"
)

// fixedUnits are those of every measurement.
var fixedUnits = []string{
	UnitNsPerOp, UnitEventsPerSec, UnitBytesPerOp, UnitAllocsPerOp, UnitCPUPerOp, UnitGCs, UnitGCPause, UnitLockWait,
	UnitP50, UnitP90, UnitP99, UnitP999, UnitMax, UnitLagP99, UnitLateness,
}

// addedUnits are those of some measurements only.
var addedUnits = []string{UnitGCPauseMax, UnitPeakHeap, UnitHeapGrowth, UnitPeakRSS}

// neutral are the units in which neither is better, or that are none of the
// variant's.
var neutral = []string{UnitDeltasPerEvent, UnitSteal}

// ours reports whether a unit is one of [Values] that is better one way.
func ours(unit string) bool {
	if slices.Contains(fixedUnits, unit) || slices.Contains(addedUnits, unit) {
		return true
	}
	for _, q := range []string{UnitP50, UnitP90, UnitP99, UnitP999, UnitMax} {
		if strings.HasSuffix(unit, "-"+q) {
			return true
		}
	}
	return false
}

// Reserved reports whether a unit is one that [Values] gives of any measurement,
// so that a note cannot take its place. The units of further boundaries, which are
// the workload's to name, are not among them.
func Reserved(unit string) bool {
	return slices.Contains(fixedUnits, unit) || slices.Contains(addedUnits, unit) || slices.Contains(neutral, unit)
}

// Direction says which way a unit is better.
type Direction string

// The directions. Unknown is that of a workload's note whose unit doesn't tell.
const (
	Lower   Direction = "lower"
	Higher  Direction = "higher"
	Unknown Direction = ""
)

// Better returns which way a unit is better. Of units that are not of [Values],
// the form decides: of rates ("reads/s") more is better; of times, bytes and
// what an operation or event costs ("list-ns", "B/queued-event", "cycles/op")
// less is; of others it is unknown. Both "p99-ns" and benchstat's "p99-sec" are
// understood.
func Better(unit string) Direction {
	count, per, _ := strings.Cut(unit, "/")
	last := count[strings.LastIndexByte(count, '-')+1:]
	switch {
	case slices.Contains(neutral, unit):
		return Unknown
	case per == "s" || per == "sec":
		return Higher
	case ours(unit), last == "ns", last == "sec", last == "B", per == "op", per == "event":
		return Lower
	}
	return Unknown
}

// Value is one figure and its unit.
type Value struct {
	Unit  string
	Value float64
}

// Values returns the figures of a measurement, in the order in which they
// stand on a line. The latency of the headline boundary stands under plain
// units ("p99-ns"), that of every other boundary under its name, with "-to-"
// for the arrow ("popped-to-handled-p99-ns"). An empty or unknown headline
// means [Headline]'s choice.
func Values(r cell.Result, headline cell.Boundary) []Value {
	ns := func(d time.Duration) float64 { return float64(d.Nanoseconds()) }
	n := float64(r.EventsIn)
	values := []Value{
		{UnitNsPerOp, ns(r.Elapsed) / n},
		{UnitEventsPerSec, r.EventsPerSecond},
		{UnitBytesPerOp, r.BytesPerEvent},
		{UnitAllocsPerOp, r.AllocsPerEvent},
		{UnitDeltasPerEvent, r.DeltasPerEvent},
		{UnitCPUPerOp, r.CPUSecondsPerEvent * 1e9},
		{UnitGCs, float64(r.GCs)},
		{UnitGCPause, ns(r.GCPause)},
		{UnitLockWait, ns(r.LockWait) / n},
	}
	switch {
	case r.Shared:
		// They would be those of all that was measured at the same time.
		values = []Value{values[0], values[1], {UnitDeltasPerEvent, r.DeltasPerEvent}}
	case r.GCs == 0 || r.GCPauseMax > 0:
		// Collections without a longest pause are of a file that is older than it.
		values = append(values, Value{UnitGCPauseMax, ns(r.GCPauseMax)})
	}
	values = append(values, Value{UnitSteal, r.Host.StealShare})
	if m := r.Memory; m != nil {
		values = append(values,
			Value{UnitPeakHeap, float64(m.PeakHeapBytes)},
			Value{UnitHeapGrowth, math.Max(0, float64(m.PeakHeapBytes)-float64(m.HeapBytes))})
		if m.PeakRSSBytes > 0 {
			values = append(values, Value{UnitPeakRSS, float64(m.PeakRSSBytes)})
		}
	}
	for _, c := range r.Counters {
		values = append(values, Value(c))
	}
	headline = Headline(r, headline)
	for _, l := range r.Latency {
		prefix := ""
		if l.Boundary != headline {
			prefix = boundaryUnit(l.Boundary) + "-"
		}
		values = append(values,
			Value{prefix + UnitP50, ns(l.P50)},
			Value{prefix + UnitP90, ns(l.P90)},
			Value{prefix + UnitP99, ns(l.P99)},
			Value{prefix + UnitP999, ns(l.P999)},
			Value{prefix + UnitMax, ns(l.Max)},
		)
	}
	if r.Lag != nil {
		values = append(values, Value{UnitLagP99, ns(r.Lag.P99)}, Value{UnitLateness, r.Lag.LateShare})
	}
	for _, note := range r.Notes {
		values = append(values, Value(note))
	}
	return values
}

// Headline returns the boundary whose latency speaks for the measurement: the
// wanted one if it was measured; else the last-named of those that begin at the
// intended time ("intended→…"), as only they count the wait before a late
// release; else the last-named. Empty where no latency was measured.
func Headline(r cell.Result, wanted cell.Boundary) cell.Boundary {
	var chosen cell.Boundary
	for _, l := range r.Latency {
		if l.Boundary == wanted {
			return wanted
		}
		if strings.HasPrefix(string(l.Boundary), "intended") || !strings.HasPrefix(string(chosen), "intended") {
			chosen = l.Boundary
		}
	}
	return chosen
}

// boundaryUnit writes a boundary's name as the ASCII part of a unit. A slash
// would begin the unit's denominator.
func boundaryUnit(b cell.Boundary) string {
	return strings.NewReplacer("→", "-to-", "/", "-").Replace(string(b))
}

// Collect gathers the figures of several rounds.
func Collect(rounds []cell.Result, headline cell.Boundary) Samples {
	s := make(Samples)
	for _, r := range rounds {
		for _, v := range Values(r, headline) {
			s[v.Unit] = append(s[v.Unit], v.Value)
		}
	}
	return s
}
