package probe

import (
	"testing"
	"time"
)

// burst is how many events are told between two folds; their records fit into a
// ring.
const burst = 1024

// BenchmarkTelemetryCost is what telemetry costs an event: ns/event is what the
// goroutines of the pipeline pay for telling of all stages and latencies of an
// informer, together; fold-ns/event is what another goroutine pays for taking it in,
// while the pipeline goes on. Unpaced stamps one event in 64, and hand-overs of 64,
// as pipelines do; paced stamps each, one hand-over an event, at 100,000 events a
// second. "off" is the nil probe.
func BenchmarkTelemetryCost(b *testing.B) {
	for _, state := range []string{"off", "on"} {
		for _, pace := range []string{"max", "100000"} {
			b.Run("telemetry="+state+"/rate="+pace, func(b *testing.B) {
				var s *Set
				if state == "on" {
					s = New(Labels{})
					s.Sampler(func(int) *Sampling {
						return &Sampling{Every: 1 << 14, IDs: func(uint64) (string, string) { return "", "" }}
					})
					s.Begin(1)
				}
				in, out := s.Probe(), s.Probe()
				defer in.Close()
				defer out.Close()
				b.ReportAllocs()
				var folding time.Duration
				seq, paced := uint64(0), pace != "max"
				for b.Loop() {
					for range burst {
						seq++
						tellEvent(in, out, seq, paced)
					}
					b.StopTimer()
					t0 := time.Now()
					s.Fold()
					folding += time.Since(t0)
					b.StartTimer()
				}
				events := float64(b.N) * burst
				b.ReportMetric(float64(b.Elapsed())/events, "ns/event")
				b.ReportMetric(float64(folding)/events, "fold-ns/event")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// tellEvent tells of one event as the informer pipeline does.
func tellEvent(in, out *Probe, seq uint64, paced bool) {
	now := int64(0)
	if paced {
		now = int64(seq) * int64(10*time.Microsecond)
	}
	in.Count(Released, Modified, 1)
	if paced {
		in.Release(1000, false)
	}
	in.Count(Enqueued, Modified, 1)
	in.Commit(now)
	out.Count(Popped, Modified, 1)
	out.Count(Stored, Modified, 1)
	out.Count(Handled, Modified, 1)
	if !paced && seq%seldom != 0 {
		return
	}
	out.Deltas(1)
	out.Value(BatchSize, 1)
	out.Observe(ReleasedEnqueued, 300)
	out.Observe(EnqueuedPopped, 2000)
	if paced {
		out.Observe(PoppedStored, 500)
		out.Observe(StoredHandled, 800)
		out.ObserveEvent(IntendedHandled, 4000, seq)
	}
	out.ObserveEvent(ReleasedHandled, 3600, seq)
	out.Commit(now)
}
