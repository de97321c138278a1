package pipeline_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/bench/observe"
	"watchlab/bench/pipeline"
	"watchlab/bench/telemetry"
	"watchlab/bench/telemetry/live"
	"watchlab/impls"
	"watchlab/loadgen/fault"
)

// total counts the events of a stage with a type of a watch.
func total(s *live.Figures, stage live.Stage) uint64 {
	return s.Events(stage, live.Added) + s.Events(stage, live.Modified) + s.Events(stage, live.Deleted)
}

// TestTelemetry: after a storm, telemetry has the same figures as the recorder.
func TestTelemetry(t *testing.T) {
	t.Parallel()
	for _, spec := range []pipeline.Config{
		{Family: impls.DeltaFIFO, Pipeline: "queue", Impls: []string{"clientgo-realfifo-batch", "clientgo-deltafifo", "ring"}, Producers: 2},
		{Family: impls.Queue, Pipeline: "queue", Impls: []string{"clientgo-fifo", "cond"}},
		{Family: impls.Merge, Pipeline: "queue", Impls: []string{"reference"}},
		{Family: impls.DeltaFIFO, Pipeline: "informer", Impls: []string{pipeline.ClientGoInformer, "clientgo-deltafifo", "ring"}},
		{Family: impls.DeltaFIFO, Pipeline: "informer", Source: "apiserver", Impls: []string{"cond"}, Modes: []string{"in-order"}},
		{Family: impls.Merge, Pipeline: "kubelet", Impls: []string{"cond"}},
	} {
		spec.Paces = rates(0, 10_000)
		if spec.Source == "" {
			spec.Events = 1000
		}
		for _, cl := range comparisons(t, spec) {
			t.Run(name(cl), func(t *testing.T) {
				t.Parallel()
				set := live.NewSet(live.Labels{})
				var mu sync.Mutex
				var traces []live.EventTrace
				set.Sampler(func(int) *live.Sampling {
					return &live.Sampling{Every: 64, IDs: func(uint64) (string, string) { return "", "" }, Export: func(j live.EventTrace) {
						mu.Lock()
						defer mu.Unlock()
						traces = append(traces, j)
					}}
				})
				res, runErr, checkErr := play(live.With(t.Context(), set), t, cl)
				if err := errors.Join(runErr, checkErr); err != nil {
					t.Fatal(err)
				}
				snap := set.Snapshot()
				if cl.Labels[0].Value == pipeline.ClientGoInformer {
					// The queue of client-go's own informer is hidden.
					for _, h := range []live.Histogram{live.EnqueuedPopped, live.PoppedStored} {
						if n := snap.Distribution(h).Count; n != 0 {
							t.Errorf("%d values in histogram %d", n, h)
						}
					}
					return
				}
				compareHistograms(t, spec, cl.Labels[len(cl.Labels)-1].Value != "max", res, snap)
				checkTraces(t, traces, spec.Pipeline == "informer", spec.Source == "apiserver")
			})
		}
	}
}

func compareHistograms(t *testing.T, spec pipeline.Config, paced bool, res cell.Result, snap *live.Figures) {
	t.Helper()
	if n := total(snap, live.Released); n != res.EventsIn {
		t.Errorf("%d released of %d", n, res.EventsIn)
	}
	// Events during a list are part of the list.
	if n := total(snap, live.Enqueued); n != res.EventsIn && spec.Source != "apiserver" {
		t.Errorf("%d enqueued of %d", n, res.EventsIn)
	}
	// The recorder does not count the initial list. A list may have several events of a key.
	if popped := snap.Total(live.Popped); popped != res.DeltasOut && spec.Source != "apiserver" {
		t.Errorf("%d deltas counted, want %d", popped, res.DeltasOut)
	}
	for _, stage := range []live.Stage{live.Enqueued, live.Popped, live.Handled, live.Worked} {
		if n := snap.Total(stage); n > max(res.EventsIn, res.DeltasOut) {
			t.Errorf("stage %d: %d of %d events, %d deltas", stage, n, res.EventsIn, res.DeltasOut)
		}
	}
	last := live.Handled
	if spec.Pipeline == "informer" {
		last = live.Worked
	}
	if total(snap, last) == 0 || snap.Distribution(live.BatchSize).Count == 0 {
		t.Error("nothing was handled")
	}
	intervals := map[live.Histogram]cell.Boundary{
		live.ReleasedHandled: observe.ReleasedHandled, live.ReleasedEnqueued: observe.ReleasedEnqueued,
	}
	if spec.Source == "apiserver" {
		intervals[live.ReleasedWire], intervals[live.WireDecoded], intervals[live.DecodedEnqueued] = observe.ReleasedWire, observe.WireDecoded, observe.DecodedEnqueued
	}
	switch {
	case spec.Family == impls.Merge:
		intervals[live.EnqueuedMerged] = observe.EnqueuedMerged
	default:
		intervals[live.EnqueuedPopped] = observe.EnqueuedPopped
	}
	if paced {
		intervals[live.IntendedHandled] = observe.Handled
		if n := snap.Distribution(live.GeneratorLag).Count; n != res.EventsIn {
			t.Errorf("%d lags of %d", n, res.EventsIn)
		}
		if late := snap.Counted(live.GeneratorLate); late != res.Lag.Late {
			t.Errorf("%d late, %d reported", late, res.Lag.Late)
		}
	}
	if paced && spec.Pipeline == "informer" {
		intervals[live.PoppedStored], intervals[live.StoredHandled] = observe.PoppedStored, observe.StoredHandled
		if snap.Distribution(live.Staleness).Count == 0 {
			t.Error("no staleness")
		}
	}
	for h, b := range intervals {
		want, ok := res.At(b)
		got, gotSum := snap.Distribution(h), snap.Sum(h)
		// Both count negative values as zero. During the play telemetry may read before a stamp is
		// set, and may count a repeated look-up at its second time. So the figures differ a little.
		const about = 0.2
		if sum := float64(want.Sum) / 1e9; !ok || got.Count != want.Count || paced && (gotSum < sum*(1-about) || gotSum > sum*(1+about)) ||
			!paced && (gotSum < sum*0.999999 || gotSum > sum*1.000001) {
			t.Errorf("%s: %d in telemetry, %v s; %d in the recorder, %v s", b, got.Count, gotSum, want.Count, sum)
		}
	}
}

// checkTraces: the times of a trace's stages never decrease, and the event that another was
// coalesced into has a trace too. A popped event is coalesced only if a worker looks keys up.
func checkTraces(t *testing.T, traces []live.EventTrace, lookedUp, decoded bool) {
	t.Helper()
	first := []string{"released"}
	if decoded {
		first = append(first, "wire", "decoded")
	}
	begins := func(stages []live.StageTime) bool {
		return slices.EqualFunc(first, stages[:min(len(first), len(stages))], func(name string, s live.StageTime) bool { return s.Stage == name })
	}
	if len(traces) == 0 {
		t.Error("no traces")
	}
	bySeq := map[uint64]live.EventTrace{}
	for _, j := range traces {
		if _, ok := bySeq[j.Seq]; ok {
			t.Errorf("event %d has two traces", j.Seq)
		}
		bySeq[j.Seq] = j
	}
	for _, j := range traces {
		// The trace of a coalescing event that is not sampled may lack its first stages.
		if len(j.Stages) == 0 || j.Seq%64 == 0 && !begins(j.Stages) {
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
			if a.Stage == "popped" && !lookedUp {
				t.Errorf("event %d came out and was coalesced", j.Seq)
			}
		}
		if into, ok := bySeq[j.Into]; !ok || into.Key != j.Key || j.Into <= j.Seq {
			t.Errorf("event %d of %s was coalesced into event %d of %q", j.Seq, j.Key, j.Into, into.Key)
		}
	}
}

// BenchmarkTelemetryCost plays the same cell without and with a telemetry session, in
// turn, and reports the medians of both: off- and on-ns/event, off- and on-allocs/event.
// The aim is a difference of at most 15 ns and 0 allocations.
func BenchmarkTelemetryCost(b *testing.B) {
	for _, pipe := range []string{"queue", "informer"} {
		for _, stamps := range []pipeline.Stamps{pipeline.StampsSampled, pipeline.StampsAll} {
			b.Run(fmt.Sprintf("pipeline=%s/stamps=%s", pipe, stamps), func(b *testing.B) {
				session, err := telemetry.Start(b.Context(), telemetry.Options{MetricsAddr: "127.0.0.1:0", Warn: func(w string) { b.Log(w) }})
				if err != nil {
					b.Fatal(err)
				}
				defer session.Close(b.Context(), nil)
				off := comparisons(b, pipeline.Config{
					Family: impls.DeltaFIFO, Pipeline: pipe, Impls: []string{"ring"}, Modes: []string{"in-order"},
					Paces: rates(0), Events: 100_000, Stamps: stamps,
				})[0]
				on := session.Watch([]lab.Comparison{{Cells: []lab.Cell{off}}})[0].Cells[0]
				figures := map[string][]float64{}
				for b.Loop() {
					for state, cl := range map[string]lab.Cell{"off": off, "on": on} {
						res, runErr, checkErr := play(b.Context(), b, cl)
						if err := errors.Join(runErr, checkErr); err != nil {
							b.Fatal(err)
						}
						figures[state+"-ns/event"] = append(figures[state+"-ns/event"], float64(res.Elapsed)/float64(res.EventsIn))
						figures[state+"-allocs/event"] = append(figures[state+"-allocs/event"], res.AllocsPerEvent)
					}
				}
				for unit, values := range figures {
					slices.Sort(values)
					b.ReportMetric(values[len(values)/2], unit)
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// TestTelemetryOfFaults: telemetry counts each of the server's faults under its own name.
func TestTelemetryOfFaults(t *testing.T) {
	t.Parallel()
	cl := comparisons(t, pipeline.Config{
		Family: impls.DeltaFIFO, Pipeline: "informer", Source: "apiserver", Impls: []string{"ring"}, Modes: []string{"in-order"},
		Faults: []fault.Spec{{Name: fault.Disconnect, Frames: 20, Count: 1}},
	})[0]
	set := live.NewSet(live.Labels{})
	if _, runErr, checkErr := play(live.With(t.Context(), set), t, cl); runErr != nil || checkErr != nil {
		t.Fatal(runErr, checkErr)
	}
	snap := set.Snapshot()
	n, broken, other := snap.Counted(live.Faults, "disconnect"), snap.Counted(live.WatchErrors, "disconnect"), snap.Counted(live.WatchErrors, live.OtherFault)
	if n == 0 || broken != n || other != 0 {
		t.Errorf("%d faults, %d broken watches, %d without a cause", n, broken, other)
	}
}
