package pipeline_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"watchlab/bench/cell"
	"watchlab/bench/pipeline"
	"watchlab/bench/telemetry/metric"
	"watchlab/bench/telemetry/probe"
	"watchlab/impls"
	"watchlab/loadgen/fault"
)

// total counts the events of a stage with a type of a watch.
func total(s *probe.Snapshot, stage probe.Stage) uint64 {
	return s.Events(stage, probe.Added) + s.Events(stage, probe.Modified) + s.Events(stage, probe.Deleted)
}

func histogramOf(s *probe.Snapshot, h probe.Histogram) probe.HistogramSnapshot {
	for _, got := range s.Histograms {
		if got.Histogram == h {
			return got
		}
	}
	return probe.HistogramSnapshot{}
}

// TestTelemetry: after a storm, telemetry has the same figures as the recorder.
func TestTelemetry(t *testing.T) {
	for _, spec := range []pipeline.Config{
		{Family: impls.DeltaFIFO, Pipeline: "queue", Impls: []string{"clientgo-realfifo-batch", "clientgo-deltafifo", "ring"}, Producers: 2},
		{Family: impls.Queue, Pipeline: "queue", Impls: []string{"clientgo-fifo", "cond"}},
		{Family: impls.Merge, Pipeline: "queue", Impls: []string{"reference"}},
		{Family: impls.DeltaFIFO, Pipeline: "informer", Impls: []string{pipeline.ClientGoInformer, "clientgo-deltafifo", "ring"}},
		{Family: impls.DeltaFIFO, Pipeline: "informer", Source: "apiserver", Impls: []string{"cond"}, Modes: []string{"in-order"}},
		{Family: impls.Merge, Pipeline: "kubelet", Impls: []string{"cond"}},
	} {
		spec.Paces, spec.NoProbe = rates(0, 10_000), true
		if spec.Source == "" {
			spec.Events = 1000
		}
		for _, cl := range comparisons(t, spec) {
			t.Run(name(cl), func(t *testing.T) {
				set := probe.New(probe.Labels{})
				var mu sync.Mutex
				var journeys []probe.Journey
				set.Sampler(func(int) *probe.Sampling {
					return &probe.Sampling{Every: 64, IDs: func(uint64) (string, string) { return "", "" }, Journey: func(j probe.Journey) {
						mu.Lock()
						defer mu.Unlock()
						journeys = append(journeys, j)
					}}
				})
				res, runErr, checkErr := play(probe.With(t.Context(), set), t, cl)
				if err := errors.Join(runErr, checkErr); err != nil {
					t.Fatal(err)
				}
				snap := set.Snapshot()
				if cl.Labels[0].Value == pipeline.ClientGoInformer {
					// The queue of client-go's own informer is hidden.
					for _, h := range []probe.Histogram{probe.EnqueuedPopped, probe.PoppedStored} {
						if n := histogramOf(snap, h).Count; n != 0 {
							t.Errorf("%d values in histogram %d", n, h)
						}
					}
					return
				}
				compareHistograms(t, spec, cl.Labels[len(cl.Labels)-1].Value != "max", res, snap)
				checkJourneys(t, journeys, spec.Pipeline == "informer")
			})
		}
	}
}

func compareHistograms(t *testing.T, spec pipeline.Config, paced bool, res cell.Result, snap *probe.Snapshot) {
	t.Helper()
	if n := total(snap, probe.Released); n != res.EventsIn {
		t.Errorf("%d released of %d", n, res.EventsIn)
	}
	// Events during a list are part of the list.
	if n := total(snap, probe.Enqueued); n != res.EventsIn && spec.Source != "apiserver" {
		t.Errorf("%d enqueued of %d", n, res.EventsIn)
	}
	if snap.Total(probe.Popped) < res.DeltasOut {
		t.Errorf("%d deltas, %d counted", snap.Total(probe.Popped), res.DeltasOut)
	}
	last := probe.Handled
	if spec.Pipeline == "informer" {
		last = probe.Worked
	}
	if total(snap, last) == 0 || histogramOf(snap, probe.BatchSize).Count == 0 {
		t.Error("nothing was handled")
	}
	stretches := map[probe.Histogram]cell.Boundary{
		probe.ReleasedHandled: pipeline.ReleasedHandled, probe.ReleasedEnqueued: pipeline.ReleasedEnqueued,
	}
	switch {
	case spec.Family == impls.Merge:
		stretches[probe.EnqueuedMerged] = pipeline.EnqueuedMerged
	default:
		stretches[probe.EnqueuedPopped] = pipeline.EnqueuedPopped
	}
	if paced {
		stretches[probe.IntendedHandled] = pipeline.Handled
		if n := histogramOf(snap, probe.GeneratorLag).Count; n != res.EventsIn {
			t.Errorf("%d lags of %d", n, res.EventsIn)
		}
		if snap.Late != res.Lag.Late {
			t.Errorf("%d late, %d reported", snap.Late, res.Lag.Late)
		}
	}
	if paced && spec.Pipeline == "informer" {
		stretches[probe.PoppedStored], stretches[probe.StoredHandled] = pipeline.PoppedStored, pipeline.StoredHandled
		if histogramOf(snap, probe.Staleness).Count == 0 {
			t.Error("no staleness")
		}
	}
	for h, b := range stretches {
		want, ok := res.At(b)
		got := histogramOf(snap, h)
		// Both count negative values as zero. During the play telemetry may read before
		// a stamp is set, and may count a repeated look-up at its second time. So the
		// figures differ a little.
		const about = 0.2
		if sum := float64(want.Sum) / 1e9; !ok || got.Count != want.Count || paced && (got.Sum < sum*(1-about) || got.Sum > sum*(1+about)) ||
			!paced && (got.Sum < sum*0.999999 || got.Sum > sum*1.000001) {
			t.Errorf("%s: %d told, %v s; %d reported, %v s", b, got.Count, got.Sum, want.Count, sum)
		}
	}
}

// checkJourneys: the times of a journey's stages never decrease, and the event that
// another was coalesced into has a journey too. A popped event is coalesced only if a
// worker looks keys up.
func checkJourneys(t *testing.T, journeys []probe.Journey, lookedUp bool) {
	t.Helper()
	if len(journeys) == 0 {
		t.Error("no journeys")
	}
	bySeq := map[uint64]probe.Journey{}
	for _, j := range journeys {
		if _, ok := bySeq[j.Seq]; ok {
			t.Errorf("event %d has two journeys", j.Seq)
		}
		bySeq[j.Seq] = j
	}
	for _, j := range journeys {
		// The journey of a coalescing event that is not sampled may lack its first
		// stages.
		if len(j.Stages) == 0 || j.Seq%64 == 0 && j.Stages[0].Stage != metric.Released {
			t.Errorf("event %d has stages %v", j.Seq, j.Stages)
			continue
		}
		for i, a := range j.Stages[1:] {
			if a.At.Before(j.Stages[i].At) {
				t.Errorf("event %d: %s before %s", j.Seq, a.Stage, j.Stages[i].Stage)
			}
		}
		if j.Into == 0 {
			continue
		}
		for _, a := range j.Stages {
			if a.Stage == metric.Popped && !lookedUp {
				t.Errorf("event %d came out and was coalesced", j.Seq)
			}
		}
		if into, ok := bySeq[j.Into]; !ok || into.Key != j.Key || j.Into <= j.Seq {
			t.Errorf("event %d of %s was coalesced into event %d of %q", j.Seq, j.Key, j.Into, into.Key)
		}
	}
}

// TestCoalescedJourney: a coalesced version links to the version that was handled in its
// place.
func TestCoalescedJourney(t *testing.T) {
	cl := comparisons(t, pipeline.Config{Family: impls.Queue, Pipeline: "queue", Impls: []string{"cond"}, Paces: rates(0), Events: 5000, HandlerCost: 10 * time.Microsecond})[0]
	set := probe.New(probe.Labels{})
	coalesced := 0
	set.Sampler(func(int) *probe.Sampling {
		return &probe.Sampling{Every: 64, IDs: func(uint64) (string, string) { return "", "" }, Journey: func(j probe.Journey) {
			if j.Into != 0 {
				coalesced++
				for _, a := range j.Stages {
					if a.Stage == metric.Popped {
						t.Errorf("event %d came out and was coalesced", j.Seq)
					}
				}
			}
		}}
	})
	// Which of the sampled events the queue coalesces depends on the scheduler.
	for round := 0; coalesced == 0 && round < 50; round++ {
		if _, runErr, checkErr := play(probe.With(t.Context(), set), t, cl); runErr != nil || checkErr != nil {
			t.Fatal(runErr, checkErr)
		}
	}
	if coalesced == 0 {
		t.Error("nothing was coalesced")
	}
}

// BenchmarkTelemetry measures the cost of telemetry for an event of a whole pipeline.
func BenchmarkTelemetry(b *testing.B) {
	for _, pipe := range []string{"queue", "informer"} {
		cl := comparisons(b, pipeline.Config{Family: impls.DeltaFIFO, Pipeline: pipe, Impls: []string{"ring"}, Modes: []string{"in-order"}, Paces: rates(0), Events: 100_000})[0]
		for _, on := range []bool{false, true} {
			b.Run(fmt.Sprintf("pipeline=%s/telemetry=%v", pipe, on), func(b *testing.B) {
				var perEvent, allocs float64
				for b.Loop() {
					ctx := b.Context()
					if on {
						ctx = probe.With(ctx, probe.New(probe.Labels{}))
					}
					res, runErr, checkErr := play(ctx, b, cl)
					if runErr != nil || checkErr != nil {
						b.Fatal(runErr, checkErr)
					}
					perEvent += res.Elapsed.Seconds() * 1e9 / float64(res.EventsIn)
					allocs += res.AllocsPerEvent
				}
				b.ReportMetric(perEvent/float64(b.N), "ns/event")
				b.ReportMetric(allocs/float64(b.N), "allocs/event")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// TestTelemetryOfFaults: telemetry counts each of the server's faults under its own
// name.
func TestTelemetryOfFaults(t *testing.T) {
	cl := comparisons(t, pipeline.Config{
		Family: impls.DeltaFIFO, Pipeline: "informer", Source: "apiserver", Impls: []string{"ring"}, Modes: []string{"in-order"},
		Faults: []fault.Spec{{Name: fault.Disconnect, Frames: 20, Count: 1}},
	})[0]
	set := probe.New(probe.Labels{})
	if _, runErr, checkErr := play(probe.With(t.Context(), set), t, cl); runErr != nil || checkErr != nil {
		t.Fatal(runErr, checkErr)
	}
	snap := set.Snapshot()
	if n := snap.Faults["disconnect"]; n == 0 || snap.WatchErrors["disconnect"] != n || len(snap.WatchErrors) != 1 {
		t.Errorf("faults %v, watch errors %v, %d relists", snap.Faults, snap.WatchErrors, snap.Relists)
	}
}
