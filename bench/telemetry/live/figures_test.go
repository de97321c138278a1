package live

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// TestBucketsMatchPrometheus: values fall into the same native buckets as in client_golang's
// histogram, including exact powers of two and their neighbours.
func TestBucketsMatchPrometheus(t *testing.T) {
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
			NativeHistogramBucketFactor: 1.1, NativeHistogramZeroThreshold: zeroThreshold,
			NativeHistogramMaxBucketNumber: 10_000, Buckets: series[h].Buckets,
		})
		f := &NewSet(Labels{}).figures
		for _, v := range values {
			if h == Staleness && v > 1<<25 {
				continue
			}
			theirs.Observe(float64(v) / series[h].per)
			f.Observe(h, int64(v))
		}
		var want dto.Metric
		if err := theirs.Write(&want); err != nil {
			t.Fatal(err)
		}
		if want.Histogram.GetSchema() != nativeSchema {
			t.Fatalf("client_golang has schema %d", want.Histogram.GetSchema())
		}
		got := f.Distribution(h)
		if got.Count != want.Histogram.GetSampleCount() || got.zero != want.Histogram.GetZeroCount() {
			t.Errorf("%d: count %d, zero %d, want %d and %d", h, got.Count, got.zero, want.Histogram.GetSampleCount(), want.Histogram.GetZeroCount())
		}
		if diff := math.Abs(f.Sum(h)/want.Histogram.GetSampleSum() - 1); diff > 1e-9 {
			t.Errorf("%d: sum %v, want %v", h, f.Sum(h), want.Histogram.GetSampleSum())
		}
		for b, n := range nativeBuckets(want.Histogram) {
			if got.buckets[b-lowest] != uint64(n) {
				t.Errorf("%d: bucket %d has %d, want %d", h, b, got.buckets[b-lowest], n)
			}
		}
		for _, b := range want.Histogram.GetBucket() {
			e := math.MinInt
			if b.GetUpperBound() > 0 {
				e = int(math.Log2(b.GetUpperBound()))
			}
			if n := got.upTo(max(e, lowest/perOctave)); n != b.GetCumulativeCount() {
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
	f := &NewSet(Labels{}).figures
	f.Observe(ReleasedHandled, math.MaxInt64)
	f.Observe(ReleasedHandled, -1)
	f.Observe(BatchSize, math.MaxInt64)
	latency, batch := f.Distribution(ReleasedHandled), f.Distribution(BatchSize)
	if latency.zero != 1 || latency.Count != 2 || batch.buckets[highest-lowest] != 1 {
		t.Errorf("latency: %d of %d are zero; batch: %d in the highest bucket", latency.zero, latency.Count, batch.buckets[highest-lowest])
	}
}

// TestConcurrentUpdates: several goroutines update a set while another takes snapshots.
func TestConcurrentUpdates(t *testing.T) {
	const writers, events = 4, 10_000
	s := NewSet(Labels{})
	done := make(chan struct{})
	var reading, writing sync.WaitGroup
	reading.Go(func() {
		var before uint64
		for {
			snap := s.Snapshot()
			now := snap.Events(Released, Modified)
			if now < before {
				t.Errorf("a count fell from %d to %d", before, now)
			}
			before = now
			if d := snap.Distribution(GeneratorLag); d.upTo(highest/perOctave) != d.Count {
				t.Errorf("%d in buckets of %d", d.upTo(highest/perOctave), d.Count)
			}
			select {
			case <-done:
				return
			default:
			}
		}
	})
	for range writers {
		writing.Go(func() {
			for n := range int64(events) {
				s.Update(func(f *Figures) {
					f.Count(Released, Modified, 1)
					f.Count(Popped, Added, 2)
					f.Observe(GeneratorLag, n)
				})
			}
		})
	}
	writing.Wait()
	close(done)
	reading.Wait()
	snap := s.Snapshot()
	const n = writers * events
	if snap.Events(Released, Modified) != n || snap.Events(Released, Added) != 0 || snap.Total(Popped) != 2*n || snap.Distribution(GeneratorLag).Count != n {
		t.Errorf("%+v", snap.events)
	}
}

// TestExemplars: a histogram keeps the newest traced event of each power of two.
func TestExemplars(t *testing.T) {
	s := NewSet(Labels{})
	s.Sampler(func(int) *Sampling {
		return &Sampling{Every: 4, IDs: func(seq uint64) (string, string) { return "t", string(rune('a' + seq/4)) }}
	})
	s.Begin(1)
	s.Update(func(f *Figures) {
		f.ObserveEvent(ReleasedHandled, 2, 4)
		f.ObserveEvent(ReleasedHandled, 3, 5)
		f.ObserveEvent(ReleasedHandled, 1000, 12)
		f.ObserveEvent(ReleasedHandled, 1001, 16)
	})
	got := s.Snapshot().Distribution(ReleasedHandled).exemplars
	want := map[int]string{-28: "b", -19: "e"} // 2 ns ≤ 2^-28 s, 1.001 µs ≤ 2^-19 s
	if len(got) != len(want) {
		t.Errorf("exemplars %v, want %v", got, want)
	}
	for octave, span := range want {
		if l := got[octave].Labels; l["span_id"] != span || l["trace_id"] != "t" {
			t.Errorf("2^%d: %+v, want span %s", octave, got[octave], span)
		}
	}
}

func TestQuantile(t *testing.T) {
	f := &NewSet(Labels{}).figures
	for v := range int64(1000) {
		f.Observe(Staleness, v)
	}
	d := f.Distribution(Staleness)
	for q, want := range map[float64]float64{0.0005: 0, 0.5: 500, 0.99: 990, 1: 999} {
		if got := d.Quantile(q); got < want || got > want*1.1 {
			t.Errorf("quantile %v is %v, want %v to 10 %% above", q, got, want)
		}
	}
	if got := (&Distribution{}).Quantile(0.5); !math.IsNaN(got) {
		t.Errorf("quantile of an empty distribution is %v", got)
	}
}

// TestNil: the methods of the nil Set are no-ops.
func TestNil(t *testing.T) {
	s := From(t.Context())
	if s != nil || s.Upstream() != nil {
		t.Fatalf("set %v", s)
	}
	s.Update(func(*Figures) { t.Error("updated") })
	s.Look()
	s.Depth(nil)
	s.Sampler(nil)
	if s.Begin(1).Sampled(0) {
		t.Error("an event is traced")
	}
}

// TestDepth: the depth is that of the last Look, and 0 after the round, even if a Look ends later.
func TestDepth(t *testing.T) {
	s := NewSet(Labels{})
	length := 5
	var meanwhile func()
	s.Depth(func() int {
		if meanwhile != nil {
			meanwhile()
		}
		return length
	})
	s.Look()
	if snap := s.Snapshot(); snap.QueueDepth != 5 {
		t.Errorf("depth %d", snap.QueueDepth)
	}
	stop := s.Clock()
	s.Look()
	stop()
	s.Look()
	if read := s.Snapshot().Distribution(QueuedEvents); read.Count != 1 || read.sum != 5 {
		t.Errorf("%d readings of %d events during the play, want 1 of 5", read.Count, read.sum)
	}
	meanwhile = func() { s.Depth(nil) }
	s.Look()
	s.Look()
	if snap := s.Snapshot(); snap.QueueDepth != 0 {
		t.Errorf("after the round: depth %d", snap.QueueDepth)
	}
}

// TestPlayTime: it is the time between the starts and the ends of plays.
func TestPlayTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSet(Labels{})
		for _, want := range []time.Duration{3 * time.Second, 6 * time.Second} {
			stop := s.Clock()
			time.Sleep(2 * time.Second)
			if got := s.Snapshot().PlayTime(); got != want-time.Second {
				t.Errorf("%v during a play, want %v", got, want-time.Second)
			}
			time.Sleep(time.Second)
			stop()
			time.Sleep(time.Minute)
			if got := s.Snapshot().PlayTime(); got != want {
				t.Errorf("%v after a play, want %v", got, want)
			}
		}
	})
}

// TestSnapshotIsACopy: later changes of the set do not change a snapshot.
func TestSnapshotIsACopy(t *testing.T) {
	s := NewSet(Labels{Variant: "ring"})
	s.Update(func(f *Figures) { f.Add(Faults, 1, "gone") })
	before := s.Snapshot()
	s.Update(func(f *Figures) { f.Add(Faults, 1, "gone") })
	if before.Counted(Faults, "gone") != 1 || s.Snapshot().Counted(Faults, "gone") != 2 {
		t.Errorf("before %v", before.counters)
	}
	if !slices.Contains(before.Labels.Values(), "ring") {
		t.Errorf("labels %v", before.Labels.Values())
	}
}

// BenchmarkFigures measures the updates for an event of a paced cell: six counts, a batch,
// and five histograms.
func BenchmarkFigures(b *testing.B) {
	s := NewSet(Labels{})
	s.Sampler(func(int) *Sampling {
		return &Sampling{Every: 1 << 14, IDs: func(uint64) (string, string) { return "", "" }}
	})
	s.Begin(1)
	s.Update(func(f *Figures) {
		seq := uint64(0)
		for b.Loop() {
			seq++
			for stage := range stages {
				f.Count(stage, Modified, 1)
			}
			f.Observe(BatchSize, 1)
			f.Observe(GeneratorLag, 1000)
			f.Observe(ReleasedEnqueued, 300)
			f.Observe(EnqueuedPopped, 2000)
			f.ObserveEvent(IntendedHandled, 4000, seq)
			f.ObserveEvent(ReleasedHandled, 3600, seq)
		}
	})
}
