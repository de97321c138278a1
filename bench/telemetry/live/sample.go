package live

import (
	"math"
	"runtime/metrics"
	"slices"
	"strings"
	"time"
)

// Sample has the figures since the previous sample.
type Sample struct {
	Run      string    `json:"run"`        // name of the run
	At       int64     `json:"at"`         // Unix milliseconds
	Seconds  float64   `json:"seconds"`    // seconds since the previous sample; 0 for the first
	Progress float64   `json:"progress"`   // finished share of the run, 0 to 1
	Heap     uint64    `json:"heapBytes"`  // size of the live and unswept objects
	Gorout   uint64    `json:"goroutines"` // number of goroutines
	Variants []Variant `json:"variants"`   // variants in the order of their creation
}

// Variant is one variant's part of a sample. Unknown figures are null.
type Variant struct {
	Group   string  `json:"group"`      // labels that compared variants share
	Name    string  `json:"name"`       // name of the variant
	Rate    string  `json:"rate"`       // of the cell, as in benchmark names
	Phase   string  `json:"phase"`      // one of [metric.Phases]
	Verdict string  `json:"verdict"`    // status and the cause of the last verdict; empty before it
	Rounds  uint64  `json:"rounds"`     // number of finished rounds
	Depth   int     `json:"queueDepth"` // in entries
	Bytes   float64 `json:"queueBytes"` // estimated size of the queued objects

	Released *float64 `json:"releasedPerSecond"` // events per second
	Handled  *float64 `json:"handledPerSecond"`  // events per second
	// P50 and P99 are quantiles of the latency from the intended time in seconds. Unpaced cells have
	// none: from the release, a latency says how far the generator ran ahead.
	P50       *float64 `json:"latencyP50"`
	P99       *float64 `json:"latencyP99"`
	Lag       *float64 `json:"generatorLagP99"` // 99th percentile of the generator's lag in seconds
	PerEvent  *float64 `json:"deltasPerEvent"`  // deltas out for each event in, since the first play
	Batch     *float64 `json:"batchSize"`       // mean size of a hand-over
	Staleness *float64 `json:"stalenessP99"`    // 99th percentile of the store's staleness in events
}

// sampler makes samples; it keeps the previous snapshots.
type sampler struct {
	registry *Registry
	at       time.Time           // of the previous sample
	last     map[Labels]*Figures // snapshots of the previous sample
	runtime  []metrics.Sample
}

func newSampler(r *Registry) *sampler {
	return &sampler{
		registry: r, last: map[Labels]*Figures{},
		runtime: []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/sched/goroutines:goroutines"}},
	}
}

func (s *sampler) sample(now time.Time) Sample {
	r := s.registry
	r.mu.Lock()
	sets, progress := slices.Clone(r.sets), r.progress
	r.mu.Unlock()
	out := Sample{Run: r.run, At: now.UnixMilli(), Progress: progress, Variants: []Variant{}}
	if !s.at.IsZero() {
		out.Seconds = now.Sub(s.at).Seconds()
	}
	s.at = now
	metrics.Read(s.runtime)
	out.Heap, out.Gorout = s.runtime[0].Value.Uint64(), s.runtime[1].Value.Uint64()
	for _, set := range sets {
		snap := set.Snapshot()
		out.Variants = append(out.Variants, variant(snap, s.last[snap.Labels], out.Seconds))
		s.last[snap.Labels] = snap
	}
	return out
}

// variant compares two snapshots; before is nil for the first.
func variant(now, before *Figures, seconds float64) Variant {
	l := now.Labels
	v := Variant{
		Group: join(" · ", l.Family, l.Delivery, l.Pipeline, l.Storm, l.Source, l.Encoding, l.Decode, l.Store, l.Workqueue),
		Name:  l.Variant, Rate: l.Rate, Phase: now.Phase, Verdict: join(": ", now.Verdict.Status, now.Verdict.Cause),
		Rounds: now.Rounds, Depth: now.QueueDepth, Bytes: now.QueueBytes(),
	}
	if before == nil || seconds <= 0 {
		return v
	}
	added := func(stage Stage) float64 { return float64(now.Total(stage) - before.Total(stage)) }
	v.Released = number(added(Released) / seconds)
	last := Handled
	if now.Total(Handled) == 0 {
		last = Popped
	}
	v.Handled = number(added(last) / seconds)
	// Of all plays so far: a queue that drains has deltas without events in the same second.
	v.PerEvent = number(float64(now.Total(Popped)) / float64(now.Total(Enqueued)))
	since := func(h Histogram) *Distribution { return now.Distribution(h).since(before.Distribution(h)) }
	latency := since(IntendedHandled)
	v.P50, v.P99 = number(latency.Quantile(0.5)), number(latency.Quantile(0.99))
	v.Lag, v.Staleness = number(since(GeneratorLag).Quantile(0.99)), number(since(Staleness).Quantile(0.99))
	v.Batch = number((now.Sum(BatchSize) - before.Sum(BatchSize)) / float64(since(BatchSize).Count))
	return v
}

// number returns nil for values that JSON lacks.
func number(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// join joins the non-empty parts.
func join(sep string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), sep)
}
