package bench_test

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"watchlab/bench/pipeline"
	"watchlab/impls"
	"watchlab/impls/decode"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/source"
	"watchlab/loadgen/storm"
	"watchlab/loadgen/trace"
)

// informerEvents bounds the storms of the stacks, without their initial lists.
const informerEvents = 6000

// informerRate is a rate that all stacks keep on two cores.
const informerRate pace.Rate = 1000

func TestMain(m *testing.M) {
	source.RunChild()
	os.Exit(m.Run())
}

// BenchmarkInformer plays recordings through whole informers, with a handler that adds keys to a
// workqueue and a worker. The stacks ([pipeline.Stacks]) are fed over HTTP, compressed unless their name says otherwise,
// by the simulated API server in another process: CPU time, allocations and memory are the client's
// alone. An op is an event; rate=1000 has p99-ns from the intended time. Readers list a namespace
// without a pause, so CPU time has theirs. The other variants are fed from memory, without a decoder:
// the informer of each delta queue and client-go's own.
func BenchmarkInformer(b *testing.B) {
	events := informerEvents
	if testing.Short() {
		events = shortEvents
	}
	for _, of := range []string{"recorded-rollout", "recorded-nodeloss"} {
		load := sync.OnceValues(func() (*storm.Storm, error) { return trace.Load(of) })
		for _, encoding := range decode.Encodings() {
			for _, stack := range pipeline.Stacks() {
				for _, readers := range []int{0, 4} {
					for _, rate := range []pace.Rate{pace.Unpaced, informerRate} {
						b.Run(fmt.Sprintf("impl=%s/encoding=%s/readers=%d/storm=%s/rate=%v", stack, encoding, readers, of, rate), func(b *testing.B) {
							recording := must(load())(b)
							comparisons, err := pipeline.Compare(pipeline.Config{
								Family: impls.DeltaFIFO, Pipeline: pipeline.InformerPipeline, Source: source.APIServerName,
								Impls: []string{stack}, Modes: []string{"in-order"}, Readers: readers, Paces: []pace.Pace{rate.Pace()},
								Storm: recording.First(recording.Initial + events),
								Wire:  source.Wire{Encoding: encoding},
							})
							if errors.Is(err, impls.ErrOptions) {
								b.Skip(err)
							}
							if err != nil {
								b.Fatal(err)
							}
							measure(b, comparisons[0].Cells[0])
						})
					}
				}
			}
		}
	}
	play(b, recorded(b, pipeline.Config{Family: impls.DeltaFIFO, Pipeline: pipeline.InformerPipeline}))
}
