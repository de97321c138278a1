package probe

import (
	"testing"
	"time"
)

// burst is the number of events between two folds; their records fit into a ring.
const burst = 1024

// BenchmarkTelemetryCost measures the cost of an event: ns/event is the time of an
// informer's goroutines for recording all stages and latencies as bench/pipeline does,
// fold-ns/event that of the folding goroutine. Unpaced cells (rate=max) record counts and
// batches of 64. Paced cells record batches of 1, and latencies of every eighth event.
// telemetry=off is the nil probe. bench/pipeline measures whole pipelines.
func BenchmarkTelemetryCost(b *testing.B) {
	for _, state := range []string{"off", "on"} {
		for _, rate := range []struct {
			name          string
			period        time.Duration
			every, handed uint64
		}{{"max", 0, 0, 64}, {"100000", 10 * time.Microsecond, 8, 1}} {
			b.Run("telemetry="+state+"/rate="+rate.name, func(b *testing.B) {
				var s *Set
				if state == "on" {
					s = New(Labels{})
					s.Sampler(func(int) *Sampling {
						return &Sampling{Every: 1 << 14, IDs: func(uint64) (string, string) { return "", "" }}
					})
					s.Begin(1)
				}
				in, out, work := s.Probe(), s.Probe(), s.Probe()
				defer in.Close()
				defer out.Close()
				defer work.Close()
				b.ReportAllocs()
				var folding time.Duration
				seq := uint64(0)
				for b.Loop() {
					for range burst {
						seq++
						now := int64(seq) * int64(rate.period)
						recordRelease(in, seq, now, rate.every)
						if seq%rate.handed == 0 {
							recordBatch(out, seq, now, rate.every, int(rate.handed))
						}
						recordWork(work, seq, now, rate.every)
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

// due reports whether to record latencies of an event: every so many, none for 0.
func due(seq, every uint64) bool { return every != 0 && seq&(every-1) == 0 }

func recordRelease(p *Probe, seq uint64, now int64, every uint64) {
	p.Count(Released, Modified, 1)
	if due(seq, every) {
		p.Observe(GeneratorLag, 1000)
	}
	p.Count(Enqueued, Modified, 1)
	if due(seq, every) {
		p.Observe(ReleasedEnqueued, 300)
	}
	p.Commit(now)
}

func recordBatch(p *Probe, seq uint64, now int64, every uint64, n int) {
	p.Through(PoppedToHandled, Modified, n)
	p.HandOver(n)
	if due(seq, every) {
		p.Observe(EnqueuedPopped, 2000)
		p.Observe(PoppedStored, 500)
	}
	p.Commit(now)
}

func recordWork(p *Probe, seq uint64, now int64, every uint64) {
	p.Count(Worked, Modified, 1)
	if due(seq, every) {
		p.Value(Staleness, 1)
		p.Observe(StoredHandled, 800)
		p.ObserveEvent(IntendedHandled, 4000, seq)
		p.ObserveEvent(ReleasedHandled, 3600, seq)
	}
	p.Commit(now)
}
