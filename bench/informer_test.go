package bench_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/bench/pipeline"
	"watchlab/impls"
	"watchlab/loadgen/source"
	"watchlab/loadgen/storm"
	"watchlab/loadgen/trace"
)

// gang is the recording that the pipelines play: 20 Jobs of 60 pods each come,
// run and go.
var gang = sync.OnceValues(func() (*storm.Storm, error) { return trace.Load("recorded-gang") })

// BenchmarkInformer measures the delta queues where they work: in client-go's
// controller, between a Reflector and an indexer with a handler, a workqueue
// and a worker behind it. It plays the workload that the command plays: see
// package pipeline.
//
// An iteration is one round: the initial list is handled before the clock
// starts, and the figures are of the events that follow. From memory these are
// 50,000 or more, from the API server as many as were recorded.
func BenchmarkInformer(b *testing.B) {
	storm, err := gang()
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range source.Names() {
		comparisons, err := pipeline.Compare(pipeline.Config{
			Family: impls.DeltaFIFO, Pipeline: pipeline.InformerPipeline, Source: name, Storm: storm,
		})
		if err != nil {
			b.Fatal(err)
		}
		for _, c := range comparisons {
			for _, cl := range c.Cells {
				b.Run(fmt.Sprintf("impl=%s/delivery=%s/source=%s", label(cl, "impl"), label(cl, "delivery"), name), func(b *testing.B) {
					measureRounds(b, cl)
				})
			}
		}
	}
}

func label(c lab.Cell, key string) string {
	for _, l := range c.Labels {
		if l.Key == key {
			return l.Value
		}
	}
	return ""
}

// measureRounds plays a cell once an iteration. The figures are those of the
// workload's own recorder, whose clock runs from the first event to the last:
// ns/op would count the garbage collection before each round too, and is left
// out. A round with a lost, reordered or duplicated event fails the benchmark.
func measureRounds(b *testing.B, c lab.Cell) {
	var events, deltas, allocs, bytes float64
	var elapsed time.Duration
	for b.Loop() {
		// Building a round and judging it are not the round.
		b.StopTimer()
		w, err := c.New()
		if err != nil {
			b.Fatal(err)
		}
		if err := w.Setup(b.Context()); err != nil {
			b.Fatal(err)
		}
		var rec cell.Recorder
		b.StartTimer()
		err = w.Run(b.Context(), &rec)
		b.StopTimer()
		if err == nil {
			err = w.Check()
		}
		if tearErr := w.Teardown(); err == nil {
			err = tearErr
		}
		if err != nil {
			b.Fatal(err)
		}
		r, err := rec.Result()
		if err != nil {
			b.Fatal(err)
		}
		n := float64(r.EventsIn)
		events += n
		deltas += float64(r.DeltasOut)
		allocs += r.AllocsPerEvent * n
		bytes += r.BytesPerEvent * n
		elapsed += r.Elapsed
		b.StartTimer()
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(elapsed.Nanoseconds())/events, "ns/event")
	b.ReportMetric(events/elapsed.Seconds(), "events/s")
	b.ReportMetric(allocs/events, "allocs/event")
	b.ReportMetric(bytes/events, "B/event")
	b.ReportMetric(deltas/events, "deltas/event")
}
