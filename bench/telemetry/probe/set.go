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

// Labels of everything that is told of a variant; see [metric.CommonLabels].
type Labels struct {
	Run, Family, Variant, Delivery, Pipeline, Storm, Source string
}

// Values in the order of [metric.CommonLabels].
func (l Labels) Values() []string {
	return []string{l.Run, l.Family, l.Variant, l.Delivery, l.Pipeline, l.Storm, l.Source}
}

// Verdict on a cell: a status and a cause as in bench/lab.
type Verdict struct{ Status, Cause string }

// Set is what is known of one variant on one storm, from all its probes. It may be
// used from several goroutines. The nil Set does nothing and has nil probes.
type Set struct {
	labels  Labels
	created time.Time

	mu sync.Mutex

	probes []*Probe

	spare       []*[ringSize]uint64
	counts      [counters]uint64
	hists       [histograms]histogram
	relists     uint64
	rounds      uint64
	faults      map[string]uint64
	watchErrors map[string]uint64
	phase       string
	verdict     Verdict
	depth       func() int
	depthNow    int
	objectBytes float64
	sampler     func(events int) *Sampling
	sampling    *Sampling
}

// New returns an empty set, idle.
func New(labels Labels) *Set {
	return &Set{
		labels: labels, created: time.Now(), phase: metric.Idle,
		faults: map[string]uint64{}, watchErrors: map[string]uint64{},
	}
}

type contextKey struct{}

// With returns a context in which pipelines find the set.
func With(ctx context.Context, s *Set) context.Context {
	return context.WithValue(ctx, contextKey{}, s)
}

// From returns the context's set; nil where it has none.
func From(ctx context.Context) *Set {
	s, _ := ctx.Value(contextKey{}).(*Set)
	return s
}

// Labels of the set.
func (s *Set) Labels() Labels { return s.labels }

// Probe returns a probe for the goroutine that is going to use it; nil for the nil
// Set. It is to be closed.
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

// Close folds what is left of the probe; it must not be used any more.
func (p *Probe) Close() {
	if p == nil {
		return
	}
	p.Flush()
	s := p.set
	s.mu.Lock()
	defer s.mu.Unlock()
	p.fold()
	s.probes = slices.DeleteFunc(s.probes, func(o *Probe) bool { return o == p })
	s.spare, p.ring = append(s.spare, p.ring), nil
}

// Fold takes in what the probes have told since the last time.
func (s *Set) Fold() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fold()
}

// count adds to a counter, that of a way to those of its stages.
func (s *Set) count(c counter, n uint64) {
	if c < through || c >= late {
		s.counts[c] += n
		return
	}
	way, t := (c-through)/counter(types), Type((c-through)%counter(types))
	for _, stage := range stagesOf[way] {
		s.counts[stageCounter(stage, t)] += n
	}
}

func (s *Set) fold() {
	for _, p := range s.probes {
		p.fold()
	}
}

// Phase says what the variant is in now: one of [metric.Phases].
func (s *Set) Phase(phase string) {
	if s != nil {
		s.locked(func() { s.phase = phase })
	}
}

// Round says that a counted round is finished.
func (s *Set) Round() {
	if s != nil {
		s.locked(func() { s.rounds++ })
	}
}

// Judge sets the verdict.
func (s *Set) Judge(v Verdict) {
	if s != nil {
		s.locked(func() { s.verdict = v })
	}
}

// Relist says that the source was asked for n more lists.
func (s *Set) Relist(n int) {
	if s != nil {
		s.locked(func() { s.relists += uint64(max(n, 0)) })
	}
}

// Fault says that one was injected n times; name is one of loadgen/fault.
func (s *Set) Fault(name string, n int) {
	if s != nil {
		s.locked(func() { s.faults[name] += uint64(max(n, 0)) })
	}
}

// WatchError says that n watches broke, by which fault: a name of
// loadgen/fault, or [metric.OtherFault].
func (s *Set) WatchError(fault string, n int) {
	if s != nil {
		s.locked(func() { s.watchErrors[fault] += uint64(max(n, 0)) })
	}
}

// Depth has depth looked at by [Set.Look] from now on, and takes objects of the
// mean size given to wait there; nil ends that, and the depth is 0. depth must be
// safe to be called at any time until then, and a moment longer.
func (s *Set) Depth(depth func() int, objectBytes float64) {
	if s != nil {
		s.locked(func() { s.depth, s.depthNow, s.objectBytes = depth, 0, objectBytes })
	}
}

// Look asks how deep the queue is. A queue may make it wait for its lock, so that
// scraping doesn't ask.
func (s *Set) Look() {
	if s == nil {
		return
	}
	var depth func() int
	s.locked(func() { depth = s.depth })
	if depth == nil {
		return
	}
	n := depth()
	s.locked(func() {
		if s.depth != nil {
			s.depthNow = n
		}
	})
}

func (s *Set) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// Snapshot is what a set knew at one moment.
type Snapshot struct {
	Labels  Labels
	Created time.Time

	counts              [counters]uint64
	Late, Missed        uint64
	Relists, Rounds     uint64
	Faults, WatchErrors map[string]uint64
	Phase               string
	Verdict             Verdict
	QueueDepth          int
	QueueBytes          float64
	Histograms          []HistogramSnapshot
}

// Events that came to a stage, by type.
func (s *Snapshot) Events(stage Stage, t Type) uint64 { return s.counts[stageCounter(stage, t)] }

// Deltas is how many deltas, objects or notifications came out of the variant.
func (s *Snapshot) Deltas() (n uint64) {
	for t := range types {
		n += s.Events(Popped, t)
	}
	return n
}

// HistogramSnapshot is a histogram of which something has been recorded, in the
// unit of its metric.
type HistogramSnapshot struct {
	Histogram Histogram
	Count     uint64
	Sum       float64

	Zero    uint64
	Buckets map[int]int64

	Exemplars map[int]Exemplar
}

// Exemplar is a recorded value whose event was traced.
type Exemplar struct {
	Value           float64
	TraceID, SpanID string
	At              time.Time
}

// CountUpTo returns how many values are not above 2^e.
func (h *HistogramSnapshot) CountUpTo(e int) uint64 {
	n := h.Zero
	for b, c := range h.Buckets {
		if b <= e*perOctave {
			n += uint64(c)
		}
	}
	return n
}

// Quantile returns the upper end of the bucket in which the quantile q lies, at
// most 9 % above it; NaN where there is nothing, 0 for zero.
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

// Snapshot folds and returns a copy. Counts of different figures may be some
// events apart while the pipeline runs; the buckets of a histogram always add up.
func (s *Set) Snapshot() *Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fold()
	out := &Snapshot{
		Labels: s.labels, Created: s.created, counts: s.counts,
		Late: s.counts[late], Missed: s.counts[missed],
		Relists: s.relists, Rounds: s.rounds,
		Faults: maps.Clone(s.faults), WatchErrors: maps.Clone(s.watchErrors),
		Phase: s.phase, Verdict: s.verdict,
		QueueDepth: s.depthNow, QueueBytes: float64(s.depthNow) * s.objectBytes,
	}
	for h := range s.hists {
		if hs, ok := s.hists[h].snapshot(Histogram(h)); ok {
			out.Histograms = append(out.Histograms, hs)
		}
	}
	return out
}

func (h *histogram) snapshot(which Histogram) (HistogramSnapshot, bool) {
	// Divided, as the quotient is the float nearest to the decimal.
	unit := math.Round(1 / meanings[which].scale)
	out := HistogramSnapshot{Histogram: which, Count: h.zero, Zero: h.zero, Sum: float64(h.sum) / unit, Buckets: map[int]int64{}}
	for i, n := range h.buckets {
		if n > 0 {
			out.Buckets[i+lowest] = int64(n)
			out.Count += n
		}
	}
	if out.Count == 0 {
		return out, false
	}
	for octave, e := range h.exemplars {
		if out.Exemplars == nil {
			out.Exemplars = map[int]Exemplar{}
		}
		trace, span := e.trace.IDs(e.seq)
		out.Exemplars[octave] = Exemplar{Value: float64(e.value) / unit, TraceID: trace, SpanID: span, At: e.at}
	}
	return out, true
}
