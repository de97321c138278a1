package probe

import (
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"watchlab/bench/telemetry/metric"
)

// Labels of a variant's metrics; see [metric.CommonLabels].
type Labels struct {
	// One field for each common label, in the order of [metric.CommonLabels].
	Run, Family, Variant, Delivery, Pipeline, Storm, Source string
}

// Values returns the labels in the order of [metric.CommonLabels].
func (l Labels) Values() []string {
	return []string{l.Run, l.Family, l.Variant, l.Delivery, l.Pipeline, l.Storm, l.Source}
}

// Verdict on a cell: a status and a cause as in bench/lab.
type Verdict struct{ Status, Cause string }

// Set is the state of one variant under one storm. It is safe for concurrent use. The
// nil Set does nothing and returns nil probes.
type Set struct {
	labels   Labels
	created  time.Time
	upstream *Upstream

	// mu guards the fields below, and folding.
	mu     sync.Mutex
	probes []*Probe
	// spare has the rings of closed probes. A probe reuses one, so that it allocates
	// nothing while a clock runs.
	spare []*[ringSize]uint64
	state state
	hists [histograms]histogram
	// depth returns the queue depth; nil for no queue. objectBytes is the mean size of a
	// queued object.
	depth       func() int
	objectBytes float64
	// sampler selects the traced events of a round; sampling is that of the current
	// round. Both may be nil.
	sampler  func(events int) *Sampling
	sampling *Sampling
}

// state is the part of a set that a [Snapshot] copies.
type state struct {
	counts              [counters]uint64
	Relists, Rounds     uint64
	Faults, WatchErrors map[string]uint64
	Phase               string
	Verdict             Verdict
	QueueDepth          int
}

// New returns an empty set in phase idle.
func New(labels Labels) *Set {
	return &Set{
		labels: labels, created: time.Now(),
		state: state{Phase: metric.Idle, Faults: map[string]uint64{}, WatchErrors: map[string]uint64{}},
	}
}

type contextKey struct{}

// With returns a context that carries the set to pipelines.
func With(ctx context.Context, s *Set) context.Context {
	return context.WithValue(ctx, contextKey{}, s)
}

// From returns the context's set; nil if there is none.
func From(ctx context.Context) *Set {
	s, _ := ctx.Value(contextKey{}).(*Set)
	return s
}

// Labels of the set.
func (s *Set) Labels() Labels { return s.labels }

// Upstream returns the metrics under client-go's names; nil for the nil Set.
func (s *Set) Upstream() *Upstream {
	if s == nil {
		return nil
	}
	return s.upstream
}

// Probe returns a probe for the calling goroutine, which must close it; nil for the nil
// Set.
func (s *Set) Probe() *Probe {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &Probe{set: s, room: ringSize, trace: s.sampling}
	if n := len(s.spare); n > 0 {
		p.ring, s.spare = s.spare[n-1], s.spare[:n-1]
	} else {
		p.ring = new([ringSize]uint64)
	}
	s.probes = append(s.probes, p)
	return p
}

// Close folds the remaining records. The probe must not be used afterwards.
func (p *Probe) Close() {
	if p == nil {
		return
	}
	p.Flush()
	p.set.locked(func() {
		p.fold()
		p.set.probes = slices.DeleteFunc(p.set.probes, func(o *Probe) bool { return o == p })
		p.set.spare, p.ring = append(p.set.spare, p.ring), nil
	})
}

// Fold moves the probes' published records into the set.
func (s *Set) Fold() { s.locked(s.fold) }

func (s *Set) fold() {
	for _, p := range s.probes {
		p.fold()
	}
}

// locked calls f under the lock; it is a no-op for the nil Set.
func (s *Set) locked(f func()) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// count adds to a counter. The counter of a way adds to each of its stages.
func (s *Set) count(c counter, n uint64) {
	if c < through || c >= late {
		s.state.counts[c] += n
		return
	}
	way, t := (c-through)/counter(types), Type((c-through)%counter(types))
	for _, stage := range stagesOf[way] {
		s.state.counts[stageCounter(stage, t)] += n
	}
}

// Phase sets the variant's phase: one of [metric.Phases].
func (s *Set) Phase(phase string) { s.locked(func() { s.state.Phase = phase }) }

// Round counts a finished round.
func (s *Set) Round() { s.locked(func() { s.state.Rounds++ }) }

// Judge sets the verdict.
func (s *Set) Judge(v Verdict) { s.locked(func() { s.state.Verdict = v }) }

// Relist counts n lists after the source's first.
func (s *Set) Relist(n int) { s.locked(func() { s.state.Relists += uint64(max(n, 0)) }) }

// Fault counts n injections of a fault: a name of loadgen/fault.
func (s *Set) Fault(name string, n int) {
	s.locked(func() { s.state.Faults[name] += uint64(max(n, 0)) })
}

// WatchError counts n broken watches by fault: a name of loadgen/fault, or
// [metric.OtherFault].
func (s *Set) WatchError(fault string, n int) {
	s.locked(func() { s.state.WatchErrors[fault] += uint64(max(n, 0)) })
}

// Depth sets the function that [Set.Look] calls for the queue depth, and the mean size
// of a queued object. A nil function resets the depth to 0. Look may still be calling
// the previous function when Depth returns.
func (s *Set) Depth(depth func() int, objectBytes float64) {
	s.locked(func() { s.depth, s.state.QueueDepth, s.objectBytes = depth, 0, objectBytes })
}

// Look reads the queue depth. It may block on the queue's lock, which is why a scrape
// does not call it.
func (s *Set) Look() {
	var depth func() int
	s.locked(func() { depth = s.depth })
	if depth == nil {
		return
	}
	n := depth()
	s.locked(func() {
		if s.depth != nil {
			s.state.QueueDepth = n
		}
	})
}

// Sampling selects the events of a round that are traced. The nil Sampling selects
// none.
type Sampling struct {
	// Every selects the events whose number is a multiple of it. It is a power of two.
	Every uint64
	// IDs returns the IDs of an event's trace and span.
	IDs func(seq uint64) (trace, span string)
	// Journey exports the spans of an event.
	Journey func(Journey)
}

// Sampled reports whether an event is traced.
func (s *Sampling) Sampled(seq uint64) bool { return s != nil && seq&(s.Every-1) == 0 }

// Journey is an event's way through a pipeline.
type Journey struct {
	// Seq is the event's sequence number.
	Seq uint64
	// Type as in a watch, and the object's key.
	Type, Key string
	// Intended is the zero time in unpaced cells.
	Intended time.Time
	// Stages that the event reached, in order of time.
	Stages []Arrival
	// Into is the event that this one was coalesced into; 0 for none.
	Into uint64
}

// Arrival at a stage.
type Arrival struct {
	// Stage is the name of a stage, such as enqueued.
	Stage string
	// At is the time of the event's stamp at the stage.
	At time.Time
}

// Sampler sets the function that selects the traced events of a round with a given
// number of events; nil for none.
func (s *Set) Sampler(sampler func(events int) *Sampling) {
	s.locked(func() { s.sampler, s.sampling = sampler, nil })
}

// Begin announces a round with a number of events. It is called before [Set.Probe].
func (s *Set) Begin(events int) {
	s.locked(func() {
		if s.sampler != nil {
			s.sampling = s.sampler(events)
		}
	})
}

// Sampling returns the round's sampling; nil for none.
func (s *Set) Sampling() (out *Sampling) {
	s.locked(func() { out = s.sampling })
	return out
}

// Snapshot is a copy of a set's state.
type Snapshot struct {
	state
	// Labels of the set.
	Labels Labels
	// Created is the start of the set's counters.
	Created time.Time
	// Late counts releases beyond the lag budget; Missed counts events that were not
	// released.
	Late, Missed uint64
	// QueueBytes estimates the size of the queued objects.
	QueueBytes float64
	// Histograms has the non-empty ones.
	Histograms []HistogramSnapshot
}

// Events returns the number of events of a type that reached a stage.
func (s *Snapshot) Events(stage Stage, t Type) uint64 { return s.counts[stageCounter(stage, t)] }

// Total returns the number of events of all types that reached a stage. At Popped these
// are the deltas, objects or notifications that the variant returned.
func (s *Snapshot) Total(stage Stage) (n uint64) {
	for t := range types {
		n += s.Events(stage, t)
	}
	return n
}

// HistogramSnapshot is a non-empty histogram, in the unit of its metric.
type HistogramSnapshot struct {
	// Histogram identifies the histogram in the set.
	Histogram Histogram
	// Count is the number of values: Zero plus all buckets.
	Count uint64
	// Sum of all values.
	Sum float64
	// Zero counts the values up to [metric.ZeroThreshold].
	Zero uint64
	// Buckets has the counts by bucket of a native histogram of [metric.Schema]. Bucket
	// i holds values in (2^((i-1)/8), 2^(i/8)].
	Buckets map[int]int64
	// Exemplars has the newest traced event by octave: octave e holds values in
	// (2^(e-1), 2^e].
	Exemplars map[int]Exemplar
}

// Exemplar is a recorded value whose event was traced.
type Exemplar struct {
	// Value in the unit of the metric.
	Value float64
	// TraceID and SpanID are those of the event's span, in hexadecimal.
	TraceID, SpanID string
	// At is the time of folding.
	At time.Time
}

// CountUpTo returns the number of values up to 2^e.
func (h *HistogramSnapshot) CountUpTo(e int) uint64 {
	n := h.Zero
	for b, c := range h.Buckets {
		if b <= e*perOctave {
			n += uint64(c)
		}
	}
	return n
}

// Quantile returns the upper bound of the bucket that holds quantile q, at most 9 %
// above the value; NaN for an empty histogram.
func (h *HistogramSnapshot) Quantile(q float64) float64 {
	if h.Count == 0 {
		return math.NaN()
	}
	rank := max(1, uint64(math.Ceil(q*float64(h.Count))))
	n := h.Zero
	if n >= rank {
		return 0
	}
	for _, b := range slices.Sorted(maps.Keys(h.Buckets)) {
		if n += uint64(h.Buckets[b]); n >= rank {
			return math.Exp2(float64(b) / perOctave)
		}
	}
	return math.NaN()
}

// Snapshot folds and returns a copy. Two counts may differ by some events while the
// pipeline runs; the buckets of a histogram always add up to its count.
func (s *Set) Snapshot() *Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fold()
	out := &Snapshot{
		state: s.state, Labels: s.labels, Created: s.created,
		Late: s.state.counts[late], Missed: s.state.counts[missed],
		QueueBytes: float64(s.state.QueueDepth) * s.objectBytes,
	}
	out.Faults, out.WatchErrors = maps.Clone(s.state.Faults), maps.Clone(s.state.WatchErrors)
	for h := range s.hists {
		if hs, ok := s.hists[h].snapshot(Histogram(h)); ok {
			out.Histograms = append(out.Histograms, hs)
		}
	}
	return out
}

func (h *histogram) snapshot(which Histogram) (HistogramSnapshot, bool) {
	// Dividing by the whole number gives the float nearest to the decimal.
	unit := math.Round(1 / meanings[which].scale)
	out := HistogramSnapshot{
		Histogram: which, Count: h.zero, Zero: h.zero, Sum: float64(h.sum) / unit,
		Buckets: map[int]int64{}, Exemplars: map[int]Exemplar{},
	}
	for i, n := range h.buckets {
		if n > 0 {
			out.Buckets[i+lowest] = int64(n)
			out.Count += n
		}
	}
	for octave, e := range h.exemplars {
		trace, span := e.trace.IDs(e.seq)
		out.Exemplars[octave] = Exemplar{Value: float64(e.value) / unit, TraceID: trace, SpanID: span, At: e.at}
	}
	return out, out.Count > 0
}
