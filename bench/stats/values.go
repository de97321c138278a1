package stats

import (
	"math"
	"slices"
	"strings"
	"time"

	"watchlab/bench/cell"
)

// Units of the figures of every measurement. Times are in nanoseconds, as in `go test`;
// benchstat shows them in seconds.
const (
	UnitNsPerOp        = "ns/op"
	UnitEventsPerSec   = "events/s"
	UnitBytesPerOp     = "B/op"
	UnitAllocsPerOp    = "allocs/op"
	UnitDeltasPerEvent = "deltas/event"
	UnitCPUPerOp       = "cpu-ns/op"
	UnitCPUWithGC      = "cpu+gc-ns/op" // CPU time plus estimated GC time; absent if the GC cost is unknown
	UnitGCs            = "gcs/run"
	UnitGCPause        = "gc-pause-ns/run"
	UnitLockWait       = "lock-wait-ns/op"
	// UnitGCPauseMax is the longest GC pause; absent without a collection, and in old files.
	UnitGCPauseMax = "gc-pause-max-ns"
	// UnitSteal is the share of the machine's CPU time taken by the hypervisor.
	UnitSteal = "steal/run"
)

// Units of memory, for cells with their own process. Heap growth is the peak heap minus
// the live heap at the start.
const (
	UnitPeakHeap   = "peak-heap-B"
	UnitHeapGrowth = "heap-growth-B"
	UnitPeakRSS    = "peak-RSS-B"
)

// Units of the headline latency and of the generator's lag.
const (
	UnitP50      = "p50-ns"
	UnitP90      = "p90-ns"
	UnitP99      = "p99-ns"
	UnitP999     = "p99.9-ns"
	UnitMax      = "max-ns"
	UnitLagP99   = "lag-p99-ns"
	UnitLateness = "late/release"
)

// fixedUnits are the units of every measurement.
var fixedUnits = []string{
	UnitNsPerOp, UnitEventsPerSec, UnitBytesPerOp, UnitAllocsPerOp, UnitCPUPerOp, UnitGCs, UnitGCPause, UnitLockWait,
	UnitP50, UnitP90, UnitP99, UnitP999, UnitMax, UnitLagP99, UnitLateness,
}

// neutral are units without a better direction, or outside the variant's influence.
var neutral = []string{UnitDeltasPerEvent, UnitSteal}

// quantileUnits are the units of a boundary's quantiles.
var quantileUnits = []string{UnitP50, UnitP90, UnitP99, UnitP999, UnitMax}

// Direction is the better direction of a unit.
type Direction string

// The directions. Unknown is for units of another form.
const (
	Lower   Direction = "lower"
	Higher  Direction = "higher"
	Unknown Direction = ""
)

// Better returns the better direction of a unit, by its form. Rates ("reads/s") are better higher.
// Times, bytes and costs per operation or event ("list-ns", "B/queued-event", "cycles/op") are better
// lower. Others are unknown. It accepts both "p99-ns" and benchstat's "p99-sec".
func Better(unit string) Direction {
	count, per, _ := strings.Cut(unit, "/")
	last := count[strings.LastIndexByte(count, '-')+1:]
	switch {
	case slices.Contains(neutral, unit):
		return Unknown
	case per == "s" || per == "sec":
		return Higher
	case unit == UnitGCs, unit == UnitLateness, last == "ns", last == "sec", last == "B", per == "op", per == "event":
		return Lower
	}
	return Unknown
}

// Value is a figure with its unit.
type Value struct {
	Unit  string  // benchfmt unit
	Value float64 // in that unit
}

// Values returns the figures of a measurement in the order of a benchfmt line. The [Headline]
// boundary has plain units ("p99-ns"). Other boundaries have their name as a prefix, with "-to-"
// for the arrow ("popped-to-handled-p99-ns").
func Values(r cell.Result) []Value {
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
	if r.GCPauseMax > 0 {
		values = append(values, Value{UnitGCPauseMax, ns(r.GCPauseMax)})
	}
	if priced := r.PricedCPUSecondsPerEvent(); priced != 0 {
		values = append(values, Value{UnitCPUWithGC, priced * 1e9})
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
	headline := Headline(r)
	for _, l := range r.Latency {
		prefix := ""
		if l.Boundary != headline {
			// A slash would begin the unit's denominator.
			prefix = strings.NewReplacer("→", "-to-", "/", "-").Replace(string(l.Boundary)) + "-"
		}
		quantiles := []time.Duration{l.P50, l.P90, l.P99, l.P999, l.Max}
		if r.Lag == nil {
			// Unpaced, some events are stamped: the maximum of a sample is none of the cell.
			quantiles = quantiles[:4]
		}
		for i, d := range quantiles {
			values = append(values, Value{prefix + quantileUnits[i], ns(d)})
		}
	}
	if r.Lag != nil {
		values = append(values, Value{UnitLagP99, ns(r.Lag.P99)}, Value{UnitLateness, r.Lag.LateShare})
	}
	for _, note := range r.Notes {
		values = append(values, Value(note))
	}
	return values
}

// Headline returns the boundary of the headline latency: the last one that begins at the
// intended time ("intended→…"), because only these include the wait before a late release.
// Otherwise it is the last boundary; empty if no latency was measured.
func Headline(r cell.Result) cell.Boundary {
	var chosen cell.Boundary
	for _, l := range r.Latency {
		if strings.HasPrefix(string(l.Boundary), "intended") || !strings.HasPrefix(string(chosen), "intended") {
			chosen = l.Boundary
		}
	}
	return chosen
}

// Replicate returns the figures of the rounds of one process, each reduced to its [LogMean].
func Replicate(rounds []cell.Result) (values []Value) {
	byUnit := Samples{}
	for _, r := range rounds {
		for _, v := range Values(r) {
			if byUnit[v.Unit] == nil {
				values = append(values, v)
			}
			byUnit[v.Unit] = append(byUnit[v.Unit], v.Value)
		}
	}
	for i, v := range values {
		values[i].Value = LogMean(byUnit[v.Unit])
	}
	return values
}

// LogMean returns the mean of the logarithms as a value, the geometric mean; the plain mean where
// a value is not above 0.
func LogMean(values []float64) float64 {
	sum, logs, n := 0.0, 0.0, float64(len(values))
	for _, v := range values {
		sum, logs = sum+v, logs+math.Log(v)
	}
	if n == 1 || math.IsNaN(logs) || math.IsInf(logs, 0) {
		return sum / n
	}
	return math.Exp(logs / n)
}
