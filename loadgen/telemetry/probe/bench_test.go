package probe

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkTelemetryCost is what telemetry costs the goroutines of a pipeline an
// event, all stages and latencies of the informer pipeline together, told by one
// goroutine. Unpaced is as pipelines stamp there: one event in 64, and hand-overs
// of 64. Paced stamps each, one hand-over an event. Somebody folds 50 times a
// second, and somebody looks once a second, as when it is scraped. "off" is the
// nil probe.
func BenchmarkTelemetryCost(b *testing.B) {
	for _, on := range []bool{false, true} {
		for _, paced := range []bool{false, true} {
			b.Run(fmt.Sprintf("telemetry=%v/paced=%v", on, paced), func(b *testing.B) {
				var s *Set
				if on {
					s = New(Labels{})
					s.Sample(&Sampling{Every: 1 << 14, IDs: func(uint64) (string, string) { return "", "" }})
					stop := lookAt(s)
					defer stop()
				}
				in, out := s.Probe(paced), s.Probe(paced)
				defer in.Close()
				defer out.Close()
				b.ReportAllocs()
				seq := uint64(0)
				for b.Loop() {
					seq++
					event(in, out, seq, paced)
				}
			})
		}
	}
}

// event tells of one event as the informer pipeline does.
func event(in, out *Probe, seq uint64, paced bool) {
	in.Count(Released, Modified, 1)
	if paced {
		in.Release(1000, false)
	}
	in.Count(Enqueued, Modified, 1)
	in.Commit()
	if !paced && seq%seldom != 0 {
		out.Count(Popped, Modified, 1)
		out.Count(Stored, Modified, 1)
		out.Count(Handled, Modified, 1)
		return
	}
	out.Count(Popped, Modified, 1)
	out.Count(Stored, Modified, 1)
	out.Count(Handled, Modified, 1)
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
	out.Commit()
}

// lookAt folds and looks until it is stopped.
func lookAt(s *Set) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		fold, look := time.NewTicker(20*time.Millisecond), time.NewTicker(time.Second)
		defer fold.Stop()
		defer look.Stop()
		for {
			select {
			case <-done:
				return
			case <-fold.C:
				s.Fold()
			case <-look.C:
				s.Snapshot()
			}
		}
	}()
	return func() { close(done); <-ended }
}
