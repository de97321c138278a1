package dash

import (
	"math"
	"runtime/metrics"
	"time"

	"watchlab/bench/telemetry/expose"
	"watchlab/bench/telemetry/metric"
	"watchlab/bench/telemetry/probe"
)

// Sample is what happened since the last one.
type Sample struct {
	Run string `json:"run"`

	At      int64   `json:"at"`
	Seconds float64 `json:"seconds"`

	Progress float64   `json:"progress"`
	Heap     uint64    `json:"heapBytes"`
	Gorout   uint64    `json:"goroutines"`
	Variants []Variant `json:"variants"`
}

// Variant is one variant's part of a sample. What is not known is null.
type Variant struct {
	Group   string `json:"group"`
	Name    string `json:"name"`
	Phase   string `json:"phase"`
	Verdict string `json:"verdict"`
	Rounds  uint64 `json:"rounds"`

	Depth int     `json:"queueDepth"`
	Bytes float64 `json:"queueBytes"`

	Released *float64 `json:"releasedPerSecond"`
	Handled  *float64 `json:"handledPerSecond"`

	P50 *float64 `json:"latencyP50"`
	P99 *float64 `json:"latencyP99"`
	Lag *float64 `json:"generatorLagP99"`

	PerEvent  *float64 `json:"deltasPerEvent"`
	Batch     *float64 `json:"batchSize"`
	Staleness *float64 `json:"stalenessP99"`
}

// sampler makes samples; it keeps what it saw last.
type sampler struct {
	registry *expose.Registry
	at       time.Time
	last     map[probe.Labels]*probe.Snapshot
	runtime  []metrics.Sample
}

func newSampler(r *expose.Registry) *sampler {
	return &sampler{
		registry: r, last: map[probe.Labels]*probe.Snapshot{},
		runtime: []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/sched/goroutines:goroutines"}},
	}
}

func (s *sampler) sample(now time.Time) Sample {
	out := Sample{Run: s.registry.Run(), At: now.UnixMilli(), Progress: s.registry.Done(), Variants: []Variant{}}
	if !s.at.IsZero() {
		out.Seconds = now.Sub(s.at).Seconds()
	}
	s.at = now
	metrics.Read(s.runtime)
	out.Heap, out.Gorout = s.runtime[0].Value.Uint64(), s.runtime[1].Value.Uint64()
	for _, set := range s.registry.Sets() {
		snap := set.Snapshot()
		out.Variants = append(out.Variants, variant(snap, s.last[snap.Labels], out.Seconds))
		s.last[snap.Labels] = snap
	}
	return out
}

// variant compares two snapshots; before is nil for the first.
func variant(now, before *probe.Snapshot, seconds float64) Variant {
	l := now.Labels
	v := Variant{
		Group: join(" · ", l.Family, l.Delivery, l.Pipeline, l.Storm, l.Source),
		Name:  l.Variant, Phase: now.Phase, Verdict: join(": ", now.Verdict.Status, now.Verdict.Cause),
		Rounds: now.Rounds, Depth: now.QueueDepth, Bytes: now.QueueBytes,
	}
	if before == nil || seconds <= 0 {
		return v
	}
	rate := func(stage probe.Stage) *float64 {
		return number(float64(total(now, stage)-total(before, stage)) / seconds)
	}
	v.Released = rate(probe.Released)
	last := probe.Handled
	if total(now, probe.Handled) == 0 {
		last = probe.Popped
	}
	v.Handled = rate(last)
	if in := total(now, probe.Enqueued) - total(before, probe.Enqueued); in > 0 {
		v.PerEvent = number(float64(now.Deltas()-before.Deltas()) / float64(in))
	}
	end, ok := since(now, before, probe.IntendedHandled)
	if !ok {
		end, ok = since(now, before, probe.ReleasedHandled)
	}
	if ok {
		v.P50, v.P99 = number(end.Quantile(0.5)), number(end.Quantile(0.99))
	}
	if lag, ok := since(now, before, probe.GeneratorLag); ok {
		v.Lag = number(lag.Quantile(0.99))
	}
	if batch, ok := since(now, before, probe.BatchSize); ok {
		v.Batch = number(batch.Sum / float64(batch.Count))
	}
	if stale, ok := since(now, before, probe.Staleness); ok {
		v.Staleness = number(stale.Quantile(0.99))
	}
	return v
}

// total of a stage, over all types.
func total(s *probe.Snapshot, stage probe.Stage) (n uint64) {
	for t := range metric.Types() {
		n += s.Events(stage, probe.Type(t))
	}
	return n
}

// since is what came into a histogram between two snapshots; ok is false where
// that is nothing.
func since(now, before *probe.Snapshot, which probe.Histogram) (_ *probe.HistogramSnapshot, ok bool) {
	find := func(s *probe.Snapshot) *probe.HistogramSnapshot {
		for i := range s.Histograms {
			if s.Histograms[i].Histogram == which {
				return &s.Histograms[i]
			}
		}
		return &probe.HistogramSnapshot{}
	}
	a, b := find(now), find(before)
	out := &probe.HistogramSnapshot{
		Histogram: which, Count: a.Count - b.Count, Sum: a.Sum - b.Sum, Zero: a.Zero - b.Zero, Buckets: map[int]int64{},
	}
	for i, n := range a.Buckets {
		if n -= b.Buckets[i]; n > 0 {
			out.Buckets[i] = n
		}
	}
	return out, out.Count > 0
}

// number is one that JSON has; else null.
func number(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// join leaves out what is empty.
func join(sep string, parts ...string) string {
	out := ""
	for _, p := range parts {
		switch {
		case p == "":
		case out == "":
			out = p
		default:
			out += sep + p
		}
	}
	return out
}
