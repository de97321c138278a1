package stats

import (
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

// higherIsBetter are the units in which more is better; in all others of ours
// less is.
var higherIsBetter = map[string]bool{UnitEventsPerSec: true}

// neutral are the units in which neither is better.
var neutral = map[string]bool{UnitDeltasPerEvent: true}

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
	if r.Shared {
		// They would be those of all that was measured at the same time.
		values = []Value{values[0], values[1], {UnitDeltasPerEvent, r.DeltasPerEvent}}
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
