package bench_test

import (
	"runtime/debug"
	"testing"

	"watchlab/bench/cell"
	"watchlab/bench/pipeline"
	"watchlab/bench/stats"
	"watchlab/impls"
)

// BenchmarkGarbage compares the price of an allocated byte ([cell.MeasureGCPrice]) with what the
// collections of real rounds take. A longer round would not have more of them: what it plays is in
// the heap before the clock starts, and the heap grows with it. A lower GOGC does.
//
// measured-gc-ns/B is the CPU time that the collections added to that of rounds without a
// collection, for each byte that they marked. priced/measured is the ratio of the whole CPU times of
// an event, with the garbage at gc-ns/B and at measured-gc-ns/B: 1 if the price is right.
func BenchmarkGarbage(b *testing.B) {
	const percent, rounds = 10, 5
	price := cell.MeasureGCPrice().NsPerByte
	for _, config := range []func() pipeline.Config{
		func() pipeline.Config {
			return pipeline.Config{Pipeline: pipeline.QueuePipeline, Storm: updates(b, "uniform", queueEvents), Events: queueEvents}
		},
		func() pipeline.Config {
			return recorded(b, pipeline.Config{Pipeline: pipeline.InformerPipeline, Events: 50_000})
		},
	} {
		c := config()
		c.Family, c.Impls, c.Modes = impls.DeltaFIFO, []string{"clientgo-realfifo", "clientgo-realfifo-batch"}, []string{"in-order"}
		comparisons := must(pipeline.Compare(c))(b)
		c.Storm = nil // Only what is played stays in the heap.
		for _, cl := range comparisons[0].Cells {
			b.Run(cl.BenchName(), func(b *testing.B) {
				var off, on, bytes, marked, gcs []float64
				for b.Loop() {
					for range rounds {
						none := func() {}
						old := debug.SetGCPercent(-1)
						r := round(b, cl, none, none)
						off = append(off, r.CPUSecondsPerEvent*1e9)
						debug.SetGCPercent(percent)
						r = round(b, cl, none, none)
						debug.SetGCPercent(old)
						on, bytes = append(on, r.CPUSecondsPerEvent*1e9), append(bytes, r.BytesPerEvent)
						gcs, marked = append(gcs, float64(r.GCs)), append(marked, r.PaidBytesPerEvent*100/percent)
					}
				}
				free, garbage := stats.Median(off), stats.Median(bytes)
				measured := (stats.Median(on) - free) / stats.Median(marked)
				for unit, v := range map[string]float64{
					"ns/op": 0, "B/op": garbage, "off-ns/op": free, "gcs/run": stats.Median(gcs), "gc-ns/B": price,
					"measured-gc-ns/B": measured, "priced/measured": (free + garbage*price) / (free + garbage*measured),
				} {
					b.ReportMetric(v, unit)
				}
			})
		}
	}
}
