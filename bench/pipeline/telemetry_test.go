package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/bench/observe"
	"watchlab/bench/pipeline"
	"watchlab/bench/telemetry"
	"watchlab/impls"
	"watchlab/loadgen/fault"
)

// figures are those of one set.
type figures struct {
	t   *testing.T
	all *telemetry.Registry
}

// newFigures returns a set, which is in the context, and its figures.
func newFigures(t *testing.T) (context.Context, *telemetry.Set, figures) {
	f := figures{t, telemetry.New("test", "")}
	set := f.all.Set(telemetry.LabelsOf("deltafifo", lab.Labels{{Key: "impl", Value: "ring"}, {Key: "delivery", Value: "in-order"}}))
	return telemetry.With(t.Context(), set), set, f
}

// series returns the series of a metric that have all of some label values.
func (f figures) series(name string, values ...string) (found []*dto.Metric) {
	f.t.Helper()
	families, err := f.all.Gather()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			lacks := func(v string) bool {
				return !slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetValue() == v })
			}
			if family.GetName() == name && !slices.ContainsFunc(values, lacks) {
				found = append(found, m)
			}
		}
	}
	return found
}

// counted returns the sum of counters.
func (f figures) counted(name string, values ...string) (n uint64) {
	for _, m := range f.series(name, values...) {
		n += uint64(m.GetCounter().GetValue())
	}
	return n
}

// events counts the events of a stage with a type of a watch.
func (f figures) events(stage string) uint64 {
	const name = "watchlab_events_total"
	return f.counted(name, stage, "ADDED") + f.counted(name, stage, "MODIFIED") + f.counted(name, stage, "DELETED")
}

// histogram returns the number and the sum of values.
func (f figures) histogram(name string, values ...string) (count uint64, sum float64) {
	for _, m := range f.series(name, values...) {
		count += m.GetHistogram().GetSampleCount()
		sum += m.GetHistogram().GetSampleSum()
	}
	return count, sum
}

const (
	stageLatency = "watchlab_stage_latency_seconds"
	endToEnd     = "watchlab_end_to_end_latency_seconds"
)

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
				ctx, set, figures := newFigures(t)
				var mu sync.Mutex
				var traces []telemetry.EventTrace
				set.Sampler(func(int) *telemetry.Sampling {
					return &telemetry.Sampling{Every: 64, Export: func(j telemetry.EventTrace) {
						mu.Lock()
						defer mu.Unlock()
						traces = append(traces, j)
					}}
				})
				res, runErr, checkErr := play(ctx, t, cl)
				noError(t, errors.Join(runErr, checkErr))
				if cl.Labels[0].Value == pipeline.ClientGoInformer {
					// The queue of client-go's own informer is hidden.
					for _, boundary := range []string{"enqueued-popped", "popped-stored"} {
						if n, _ := figures.histogram(stageLatency, boundary); n != 0 {
							t.Errorf("%d values from %s", n, boundary)
						}
					}
					return
				}
				compareFigures(t, spec, cl.Labels[len(cl.Labels)-1].Value != "max", res, figures)
				checkTraces(t, traces, spec.Source == "apiserver")
			})
		}
	}
}

func compareFigures(t *testing.T, spec pipeline.Config, paced bool, res cell.Result, f figures) {
	t.Helper()
	if n := f.events("released"); n != res.EventsIn {
		t.Errorf("%d released of %d", n, res.EventsIn)
	}
	// Events during a list are part of the list.
	if n := f.events("enqueued"); n != res.EventsIn && spec.Source != "apiserver" {
		t.Errorf("%d enqueued of %d", n, res.EventsIn)
	}
	// The recorder does not count the initial list. A list may have several events of a key.
	if n := f.counted("watchlab_deltas_total"); n != res.DeltasOut && spec.Source != "apiserver" {
		t.Errorf("%d deltas counted, want %d", n, res.DeltasOut)
	}
	for _, stage := range []string{"enqueued", "popped", "handled", "worked"} {
		if n := f.counted("watchlab_events_total", stage); n > max(res.EventsIn, res.DeltasOut) {
			t.Errorf("%s: %d of %d events, %d deltas", stage, n, res.EventsIn, res.DeltasOut)
		}
	}
	last := "handled"
	if spec.Pipeline == "informer" {
		last = "worked"
	}
	if n, _ := f.histogram("watchlab_batch_size"); n == 0 || f.events(last) == 0 {
		t.Error("nothing was handled")
	}
	boundaries := []cell.Boundary{observe.ReleasedEnqueued, observe.EnqueuedPopped}
	if spec.Family == impls.Merge {
		boundaries[1] = observe.EnqueuedMerged
	}
	if spec.Source == "apiserver" {
		boundaries = append(boundaries, observe.ReleasedWire, observe.WireDecoded, observe.DecodedEnqueued)
	}
	if paced && spec.Pipeline == "informer" {
		boundaries = append(boundaries, observe.PoppedStored, observe.StoredHandled)
		if n, _ := f.histogram("watchlab_staleness_events"); n == 0 {
			t.Error("no staleness")
		}
	}
	compare := func(b cell.Boundary, count uint64, sum float64) {
		// Both count negative values as zero. During the play telemetry may read before a stamp is
		// set, and may count a repeated look-up at its second time. So the figures differ a little.
		want, ok := res.At(b)
		about, wantSum := 0.000001, float64(want.Sum)/1e9
		if paced {
			about = 0.2
		}
		if !ok || count != want.Count || sum < wantSum*(1-about) || sum > wantSum*(1+about) {
			t.Errorf("%s: %d in telemetry, %v s; %d in the recorder, %v s", b, count, sum, want.Count, wantSum)
		}
	}
	for _, b := range boundaries {
		count, sum := f.histogram(stageLatency, strings.ReplaceAll(string(b), "→", "-"))
		compare(b, count, sum)
	}
	count, sum := f.histogram(endToEnd, "released")
	compare(observe.ReleasedHandled, count, sum)
	if !paced {
		return
	}
	count, sum = f.histogram(endToEnd, "intended")
	compare(observe.Handled, count, sum)
	if n, _ := f.histogram("watchlab_generator_lag_seconds"); n != res.EventsIn {
		t.Errorf("%d lags of %d", n, res.EventsIn)
	}
	if n := f.counted("watchlab_generator_late_total"); n != res.Lag.Late {
		t.Errorf("%d late, %d reported", n, res.Lag.Late)
	}
}

// checkTraces: the times of a trace's stages never decrease.
func checkTraces(t *testing.T, traces []telemetry.EventTrace, decoded bool) {
	t.Helper()
	if len(traces) == 0 {
		t.Error("no traces")
	}
	seen := map[uint64]bool{}
	for _, j := range traces {
		var names []string
		for _, s := range j.Stages {
			names = append(names, s.Stage)
		}
		if seen[j.Seq] || j.Seq%64 != 0 {
			t.Errorf("event %d is not sampled, or has two traces", j.Seq)
		}
		seen[j.Seq] = true
		if (!slices.Contains(names, "released") || slices.Contains(names, "wire") != decoded) ||
			!slices.IsSortedFunc(j.Stages, func(a, b telemetry.StageTime) int { return a.At.Compare(b.At) }) {
			t.Errorf("event %d has stages %v", j.Seq, j.Stages)
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
				on := session.Watch("deltafifo", off, false)
				figures := map[string][]float64{}
				for b.Loop() {
					for state, cl := range map[string]lab.Cell{"off": off, "on": on} {
						res, runErr, checkErr := play(b.Context(), b, cl)
						noError(b, errors.Join(runErr, checkErr))
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
	ctx, _, f := newFigures(t)
	if _, runErr, checkErr := play(ctx, t, cl); runErr != nil || checkErr != nil {
		t.Fatal(runErr, checkErr)
	}
	faults, broken := f.counted("watchlab_faults_total", "disconnect"), f.counted("watchlab_watch_errors_total")
	if faults == 0 || broken != faults || f.counted("watchlab_watch_errors_total", "disconnect") != broken {
		t.Errorf("%d faults, %d broken watches", faults, broken)
	}
}
