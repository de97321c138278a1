package probe

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	"watchlab/bench/telemetry/metric"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestPadding: two cache lines separate the fields of the probe's goroutine from those of
// others.
func TestPadding(t *testing.T) {
	var p Probe
	type field struct {
		name       string
		start, end uintptr
	}
	fields := []field{
		{"set to ring", unsafe.Offsetof(p.set), unsafe.Offsetof(p.ring) + unsafe.Sizeof(p.ring)},
		{"head to flushed", unsafe.Offsetof(p.head), unsafe.Offsetof(p.flushed) + unsafe.Sizeof(p.flushed)},
		{"published", unsafe.Offsetof(p.published), unsafe.Offsetof(p.published) + unsafe.Sizeof(p.published)},
		{"tail and sequence", unsafe.Offsetof(p.tail), unsafe.Offsetof(p.sequence) + unsafe.Sizeof(p.sequence)},
		{"after", unsafe.Sizeof(p), unsafe.Sizeof(p)},
	}
	for i, f := range fields[1:] {
		if prev := fields[i]; f.start < prev.end+pad {
			t.Errorf("%s starts at %d, %s ends at %d: less than %d apart", f.name, f.start, prev.name, prev.end, pad)
		}
	}
	if counters > 64 {
		t.Errorf("%d counters, and bits for 64", counters)
	}
	if sequenceAt > 255 {
		t.Errorf("%d kinds of records do not fit into a byte", sequenceAt)
	}
}

// TestBucketsAsPrometheus: values fall into the same native buckets as in client_golang's
// histogram, including exact powers of two and their neighbours.
func TestBucketsAsPrometheus(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var values []uint64
	for range 20_000 {
		values = append(values, uint64(math.Exp2(rng.Float64()*40)))
	}
	for e := range 41 {
		values = append(values, 1<<e-1, 1<<e, 1<<e+1)
	}
	values = append(values, 0)
	for _, h := range []Histogram{ReleasedHandled, Staleness} {
		theirs := prometheus.NewHistogram(prometheus.HistogramOpts{
			NativeHistogramBucketFactor: 1.1, NativeHistogramZeroThreshold: metric.ZeroThreshold,
			NativeHistogramMaxBucketNumber: 10_000, Buckets: meanings[h].metric.Buckets,
		})
		s := New(Labels{})
		p := s.Probe()
		for _, v := range values {
			if h == Staleness && v > 1<<25 {
				continue
			}
			theirs.Observe(float64(v) * meanings[h].scale)
			p.Value(h, int64(v))
		}
		p.Close()
		var want dto.Metric
		if err := theirs.Write(&want); err != nil {
			t.Fatal(err)
		}
		if want.Histogram.GetSchema() != metric.Schema {
			t.Fatalf("client_golang has schema %d", want.Histogram.GetSchema())
		}
		got := s.Snapshot().Histograms[0]
		if got.Count != want.Histogram.GetSampleCount() || got.Zero != want.Histogram.GetZeroCount() {
			t.Errorf("%d: count %d, zero %d, want %d and %d", h, got.Count, got.Zero, want.Histogram.GetSampleCount(), want.Histogram.GetZeroCount())
		}
		if diff := math.Abs(got.Sum/want.Histogram.GetSampleSum() - 1); diff > 1e-9 {
			t.Errorf("%d: sum %v, want %v", h, got.Sum, want.Histogram.GetSampleSum())
		}
		for b, n := range nativeBuckets(want.Histogram) {
			if got.Buckets[b] != n {
				t.Errorf("%d: bucket %d has %d, want %d", h, b, got.Buckets[b], n)
			}
		}
		for _, b := range want.Histogram.GetBucket() {
			e := math.MinInt
			if b.GetUpperBound() > 0 {
				e = int(math.Log2(b.GetUpperBound()))
			}
			if n := got.CountUpTo(max(e, lowest/perOctave)); n != b.GetCumulativeCount() {
				t.Errorf("%d: %d up to %v, want %d", h, n, b.GetUpperBound(), b.GetCumulativeCount())
			}
		}
	}
}

// nativeBuckets undoes the spans and deltas.
func nativeBuckets(h *dto.Histogram) map[int]int64 {
	out := map[int]int64{}
	at, n, d := 0, int64(0), 0
	for _, s := range h.GetPositiveSpan() {
		at += int(s.GetOffset())
		for range s.GetLength() {
			n += h.GetPositiveDelta()[d]
			d++
			if n != 0 {
				out[at] = n
			}
			at++
		}
	}
	return out
}

// TestExtremes: the highest bucket counts larger values, and zero counts negative ones.
func TestExtremes(t *testing.T) {
	s := New(Labels{})
	p := s.Probe()
	p.Observe(ReleasedHandled, math.MaxInt64)
	p.Observe(ReleasedHandled, -1)
	p.Value(BatchSize, math.MaxInt64)
	p.Close()
	snap := s.Snapshot()
	latency, batch := snap.Histograms[0], snap.Histograms[1]
	if latency.Zero != 1 || latency.Count != 2 || batch.Buckets[highest] != 1 {
		t.Errorf("latency %+v, batch %+v", latency, batch)
	}
}

// TestNothingIsLost: several goroutines record more than their rings hold, while another
// takes snapshots.
func TestNothingIsLost(t *testing.T) {
	const probes, events = 4, 3 * ringSize
	s := New(Labels{})
	done := make(chan struct{})
	var reading, recording sync.WaitGroup
	reading.Go(func() {
		var before uint64
		for {
			snap := s.Snapshot()
			now := snap.Events(Released, Modified)
			if now < before {
				t.Errorf("a count fell from %d to %d", before, now)
			}
			before = now
			for _, h := range snap.Histograms {
				sum := int64(h.Zero)
				for _, n := range h.Buckets {
					sum += n
				}
				if uint64(sum) != h.Count {
					t.Errorf("%d in buckets of %d", sum, h.Count)
				}
			}
			select {
			case <-done:
				return
			default:
			}
		}
	})
	for i := range probes {
		recording.Go(func() {
			p := s.Probe()
			defer p.Close()
			for n := range events {
				p.Count(Released, Modified, 1)
				p.Count(Popped, Added, 2)
				p.HandOver(1)
				p.Observe(GeneratorLag, time.Duration(n))
				if n%4 == 0 {
					p.Late()
				}
				p.ObserveEvent(IntendedHandled, time.Duration(n), uint64(n))
				p.Commit(int64(n * i))
			}
			p.Missed(7)
		})
	}
	recording.Wait()
	close(done)
	reading.Wait()
	snap := s.Snapshot()
	const n = probes * events
	for what, got := range map[string][2]uint64{
		"released": {snap.Events(Released, Modified), n},
		"popped":   {snap.Events(Popped, Added), 2 * n},
		"others":   {snap.Events(Released, Added), 0},
		"deltas":   {snap.Total(Popped), 2 * n},
		"late":     {snap.Late, n / 4},
		"missed":   {snap.Missed, 7 * probes},
		"latency":  {snap.Histograms[0].Count, n},
		"lag":      {snap.Histograms[1].Count, n},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: %d, want %d", what, got[0], got[1])
		}
	}
	if len(s.probes) != 0 {
		t.Errorf("%d probes are not closed", len(s.probes))
	}
}

// TestWhenVisible: records become visible after 64 events, after a millisecond, or at
// Flush.
func TestWhenVisible(t *testing.T) {
	s := New(Labels{})
	p := s.Probe()
	defer p.Close()
	want := uint64(0)
	count := func(n int, now int64, visible uint64) {
		t.Helper()
		for range n {
			p.Count(Handled, Added, 1)
			p.Commit(now)
		}
		want += visible
		if got := s.Snapshot().Events(Handled, Added); got != want {
			t.Errorf("%d are visible, want %d", got, want)
		}
	}
	count(flushEvents-1, 0, 0)
	count(1, 0, flushEvents)
	count(1, flushNanos-1, 0)
	count(1, flushNanos, 2)
	count(3, 2*flushNanos-1, 0)
	p.Flush()
	count(1, 0, 3)
}

// TestExemplars: a histogram keeps the newest traced event of each power of two, also when
// the set folds two probes at once.
func TestExemplars(t *testing.T) {
	s := New(Labels{})
	ids := func(seq uint64) (string, string) { return "t", string(rune('a' + seq/4)) }
	s.Sampler(func(int) *Sampling { return &Sampling{Every: 4, IDs: ids} })
	s.Begin(1)
	a, b := s.Probe(), s.Probe()
	a.push(record(sequenceAt, 4)) // its value follows later
	a.Flush()
	b.ObserveEvent(ReleasedHandled, 3, 5)
	b.ObserveEvent(ReleasedHandled, 1000, 12)
	b.Flush()
	s.Fold()
	a.Observe(ReleasedHandled, 2)
	a.Close()
	b.ObserveEvent(ReleasedHandled, 1001, 16)
	b.Close()
	got := s.Snapshot().Histograms[0].Exemplars
	want := map[int]string{-28: "b", -19: "e"} // 2 ns ≤ 2^-28 s, 1.001 µs ≤ 2^-19 s
	if len(got) != len(want) {
		t.Errorf("exemplars %v, want %v", got, want)
	}
	for octave, span := range want {
		if got[octave].SpanID != span || got[octave].TraceID != "t" {
			t.Errorf("2^%d: %+v, want span %s", octave, got[octave], span)
		}
	}
}

// TestRingReuse: a new probe reuses the ring of a closed one, without its records.
func TestRingReuse(t *testing.T) {
	s := New(Labels{})
	first := s.Probe()
	first.Observe(ReleasedHandled, time.Second)
	ring := first.ring
	first.Close()
	second := s.Probe()
	if second.ring != ring {
		t.Error("the ring is not reused")
	}
	second.Close()
	if n := s.Snapshot().Histograms[0].Count; n != 1 {
		t.Errorf("%d values, want 1", n)
	}
}

func TestQuantile(t *testing.T) {
	s := New(Labels{})
	p := s.Probe()
	for v := range int64(1000) {
		p.Value(Staleness, v)
	}
	p.Close()
	h := s.Snapshot().Histograms[0]
	for q, want := range map[float64]float64{0.0005: 0, 0.5: 500, 0.99: 990, 1: 999} {
		if got := h.Quantile(q); got < want || got > want*1.1 {
			t.Errorf("quantile %v is %v, want %v to 10 %% above", q, got, want)
		}
	}
	if got := (&HistogramSnapshot{}).Quantile(0.5); !math.IsNaN(got) {
		t.Errorf("quantile of an empty histogram is %v", got)
	}
}

// TestNil: the methods of the nil Set and the nil Probe are no-ops.
func TestNil(t *testing.T) {
	s := From(t.Context())
	p := s.Probe()
	if s != nil || p != nil {
		t.Fatalf("set %v, probe %v", s, p)
	}
	p.Count(Released, Added, 1)
	p.HandOver(1)
	p.Observe(GeneratorLag, 1)
	p.ObserveEvent(ReleasedHandled, 1, 1)
	p.Late()
	p.Missed(1)
	p.Commit(0)
	p.Flush()
	p.Close()
	s.Fold()
	s.Look()
	s.Phase(metric.Measure)
	s.Judge(Verdict{})
	s.Round()
	s.Relist(1)
	s.Fault("gone", 1)
	s.WatchError("gone", 1)
	s.Depth(nil, 0)
	s.Begin(1)
	s.Sampler(nil)
	if s.Sampling().Sampled(0) {
		t.Error("an event is traced")
	}
}

// TestDepth: the depth is that of the last Look, and 0 after the round, even if a Look
// ends later.
func TestDepth(t *testing.T) {
	s := New(Labels{})
	length := 5
	var meanwhile func()
	s.Depth(func() int {
		if meanwhile != nil {
			meanwhile()
		}
		return length
	}, 100)
	s.Look()
	if snap := s.Snapshot(); snap.QueueDepth != 5 || snap.QueueBytes != 500 {
		t.Errorf("depth %d, %v bytes", snap.QueueDepth, snap.QueueBytes)
	}
	meanwhile = func() { s.Depth(nil, 0) }
	s.Look()
	s.Look()
	if snap := s.Snapshot(); snap.QueueDepth != 0 || snap.QueueBytes != 0 {
		t.Errorf("after the round: depth %d, %v bytes", snap.QueueDepth, snap.QueueBytes)
	}
}

// TestSnapshotIsACopy: later changes of the set do not change a snapshot.
func TestSnapshotIsACopy(t *testing.T) {
	s := New(Labels{Variant: "ring"})
	s.Fault("gone", 1)
	before := s.Snapshot()
	s.Fault("gone", 1)
	if before.Faults["gone"] != 1 || s.Snapshot().Faults["gone"] != 2 {
		t.Errorf("before %v", before.Faults)
	}
	if !slices.Contains(before.Labels.Values(), "ring") {
		t.Errorf("labels %v", before.Labels.Values())
	}
}
