// Package bench_test is the benchmark suite of `go test -bench`. Each benchmark plays
// the workloads of package pipeline, and a lost, duplicated or reordered event fails
// it, as in `watchlab run`. Names and units are those of `watchlab run -o bench`, so
// that benchstat and `watchlab compare` read both.
package bench_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/bench/pipeline"
	"watchlab/bench/stats"
	"watchlab/impls"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/storm"
	"watchlab/loadgen/trace"
)

// queueEvents is the length of the storms of the queue pipeline, with 10,000 keys.
const queueEvents = 200_000

// gang is a recording of 20 Jobs of 60 pods each.
var gang = sync.OnceValues(func() (*storm.Storm, error) { return trace.Load("recorded-gang") })

// updates returns a storm of updates of 10,000 pods. skew is a [storm.Skew]: uniform,
// or about that of leader-election leases.
func updates(tb testing.TB, skew string, events int) *storm.Storm {
	tb.Helper()
	p, err := storm.NewProfile("ceiling")
	if err != nil {
		tb.Fatal(err)
	}
	p.Events = float64(events)
	if p.Skew, err = storm.ParseSkew(skew); err != nil {
		tb.Fatal(err)
	}
	set := must(p.Set(1))(tb)
	s := set.Storms[0]
	if name, _, drawn := strings.Cut(skew, ":"); drawn {
		s.Name += "-" + name
	}
	return s
}

// BenchmarkDeltaFIFO plays updates through each delta queue alone. The cells with
// handover=lent and capacity have options that client-go's queues do not have: ratios
// to these are between unequal guarantees.
func BenchmarkDeltaFIFO(b *testing.B) {
	for _, k := range []pipeline.Knobs{{}, {HandOver: impls.Lent}, {HandOver: impls.Lent, Capacity: 4096}} {
		playQueues(b, pipeline.Config{Family: impls.DeltaFIFO, Knobs: k})
	}
}

// BenchmarkQueue plays updates through each latest-object queue alone. ns/op and events/s are per
// event that the queue accepted, also of events that a newer one of their key replaced.
// deltas/event is the share that came out: a slower consumer takes fewer.
func BenchmarkQueue(b *testing.B) { playQueues(b, pipeline.Config{Family: impls.Queue}) }

func playQueues(b *testing.B, c pipeline.Config) {
	c.Pipeline, c.Events = pipeline.QueuePipeline, queueEvents
	for _, skew := range []string{"uniform", "zipf:1.1"} {
		c.Storm = updates(b, skew, queueEvents)
		for _, c.Producers = range []int{1, 8} {
			play(b, c)
		}
	}
}

// BenchmarkMerge plays the pods of one node of the recording through each merger alone.
func BenchmarkMerge(b *testing.B) {
	play(b, recorded(b, pipeline.Config{Family: impls.Merge, Pipeline: pipeline.QueuePipeline}))
}

// BenchmarkKubelet plays the same pods through the kubelet pipeline.
func BenchmarkKubelet(b *testing.B) {
	play(b, recorded(b, pipeline.Config{Family: impls.Merge, Pipeline: pipeline.KubeletPipeline}))
}

// BenchmarkAddLatency measures the waiting time of producers at 20,000 events/s, with a
// handler that manages half of that. released-to-enqueued is the duration of the call; p99-ns,
// from the intended time, has its delay by earlier calls too.
func BenchmarkAddLatency(b *testing.B) {
	play(b, pipeline.Config{
		Family: impls.DeltaFIFO, Pipeline: pipeline.QueuePipeline, Storm: updates(b, "uniform", 20_000),
		HandlerCost: 100 * time.Microsecond, Paces: []pace.Pace{pace.Rate(20_000).Pace()}, Duration: 250 * time.Millisecond,
	})
}

func recorded(b *testing.B, c pipeline.Config) pipeline.Config {
	b.Helper()
	s := must(gang())(b)
	c.Storm = s
	return c
}

// play runs a benchmark for each cell. With options it runs only cells that take them.
func play(b *testing.B, c pipeline.Config) {
	b.Helper()
	comparisons := must(pipeline.Compare(c))(b)
	for _, comparison := range comparisons {
		for _, cl := range comparison.Cells {
			if c.Knobs != (pipeline.Knobs{}) && !hasLabel(cl, "handover") {
				continue
			}
			_, name, _ := strings.Cut(cl.BenchName(), "/")
			b.Run(name, func(b *testing.B) { measure(b, cl) })
		}
	}
}

func hasLabel(c lab.Cell, key string) bool {
	return slices.ContainsFunc(c.Labels, func(l lab.Label) bool { return l.Key == key })
}

// measure plays one round of a cell an iteration and reports the median of each
// figure. Setting up and checking are outside the benchmark's time.
func measure(b *testing.B, c lab.Cell) {
	b.ReportAllocs()
	samples := stats.Samples{}
	for b.Loop() {
		b.StopTimer()
		samples.Add(stats.Values(round(b, c, b.StartTimer, b.StopTimer)))
		b.StartTimer()
	}
	for _, unit := range samples.Units() {
		b.ReportMetric(stats.Median(samples[unit]), unit)
	}
}

// round plays one round of a cell and checks it. start and stop enclose the play.
func round(tb testing.TB, c lab.Cell, start, stop func()) cell.Result {
	tb.Helper()
	w := must(c.New())(tb)
	if err := w.Setup(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	var rec cell.Recorder
	start()
	err := w.Run(tb.Context(), &rec)
	stop()
	if err == nil {
		err = w.Check()
	}
	if closeErr := w.Teardown(); err == nil {
		err = closeErr
	}
	if err != nil {
		tb.Fatal(err)
	}
	r := must(rec.Result())(tb)
	r.GCNsPerByte = cell.MeasureGCPrice().NsPerByte
	return r
}

// must returns the value of a call, or ends the test with its error.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
