package bench_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"watchlab/bench/pipeline"
	"watchlab/bench/stats"
	"watchlab/impls"
	"watchlab/impls/decode"
	"watchlab/impls/informer"
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
// workqueue and a worker. The stacks (impl=clientgo, clientgo-transform, watchlab) are fed over HTTP
// by the simulated API server in another process: CPU time, allocations and memory are the client's
// alone. An op is an event; rate=1000 has p99-ns from the intended time. Readers list a namespace
// without a pause, so CPU time has theirs. The other variants are fed from memory, without a decoder:
// the informer of each delta queue and client-go's own.
func BenchmarkInformer(b *testing.B) {
	for _, of := range []string{"recorded-rollout", "recorded-nodeloss"} {
		load := sync.OnceValues(func() (*storm.Storm, error) { return trace.Load(of) })
		for _, encoding := range decode.Encodings() {
			for _, stack := range pipeline.Stacks() {
				for _, readers := range []int{0, 4} {
					for _, rate := range []pace.Rate{pace.Unpaced, informerRate} {
						b.Run(fmt.Sprintf("impl=%s/encoding=%s/readers=%d/storm=%s/rate=%v", stack, encoding, readers, of, rate), func(b *testing.B) {
							recording, err := load()
							if err != nil {
								b.Fatal(err)
							}
							comparisons, err := pipeline.Compare(pipeline.Config{
								Family: impls.DeltaFIFO, Pipeline: pipeline.InformerPipeline, Source: source.APIServerName,
								Impls: []string{stack}, Modes: []string{"in-order"}, Readers: readers, Paces: []pace.Pace{rate.Pace()},
								Storm: recording.First(recording.Initial + informerEvents),
								Wire:  source.Wire{Encoding: encoding},
							})
							if errors.Is(err, impls.ErrOptions) {
								b.Skip(err)
							}
							if err != nil {
								b.Fatal(err)
							}
							measure(b, comparisons[0].Cells[0], comparisons[0].Latency)
						})
					}
				}
			}
		}
	}
	play(b, recorded(b, pipeline.Config{Family: impls.DeltaFIFO, Pipeline: pipeline.InformerPipeline}))
}

// BenchmarkSlowHandler is a handler beside another one that takes a second for an event: p99-ns is its
// latency from the intended time, and waiting-B the growth of the live heap until it has the last
// event. slow=0 has no other handler. The events are those of a paced rollout over HTTP, with
// client-go's decoder and transform for both informers; watchlab coalesces what waits for a handler.
func BenchmarkSlowHandler(b *testing.B) {
	load := sync.OnceValues(func() (*storm.Storm, error) { return trace.Load("recorded-rollout") })
	build := map[string]func(cache.ListerWatcher) (cache.SharedIndexInformer, error){
		"clientgo": func(lw cache.ListerWatcher) (cache.SharedIndexInformer, error) {
			return cache.NewSharedIndexInformer(lw, &v1.Pod{}, 0, cache.Indexers{}), nil
		},
		"watchlab": func(lw cache.ListerWatcher) (cache.SharedIndexInformer, error) {
			return informer.New(lw, &v1.Pod{}, informer.Options{Handlers: informer.Handlers{Coalesce: true}})
		},
	}
	for _, impl := range []string{"clientgo", "watchlab"} {
		for _, slow := range []int{0, 1} {
			b.Run(fmt.Sprintf("impl=%s/slow=%d/rate=%v", impl, slow, informerRate), func(b *testing.B) {
				s, err := load()
				if err != nil {
					b.Fatal(err)
				}
				s = s.First(s.Initial + informerEvents)
				open, err := source.Options{Wire: source.Wire{Decode: "clientgo-protobuf-transform"}}.Prepare(source.APIServerName, s)
				if err != nil {
					b.Fatal(err)
				}
				var latencies, waiting []float64
				for b.Loop() {
					src, err := open(b.Context())
					if err != nil {
						b.Fatal(err)
					}
					inf, err := build[impl](src.ListerWatcher())
					if err != nil {
						b.Fatal(err)
					}
					h := playBeside(b, src, inf, s, slow)
					latencies, waiting = append(latencies, h.latencies...), append(waiting, h.waiting)
					if err := src.Close(); err != nil {
						b.Fatal(err)
					}
				}
				slices.Sort(latencies)
				b.ReportMetric(latencies[len(latencies)*99/100], "p99-ns")
				b.ReportMetric(latencies[len(latencies)/2], "p50-ns")
				b.ReportMetric(stats.Median(waiting), "waiting-B")
			})
		}
	}
}

// timed is a handler that takes the time of each event after the initial list.
type timed struct {
	pacer     *pace.Pacer
	initial   int
	last      string        // version of the last event
	done      chan struct{} // closed at the last event
	latencies []float64     // in nanoseconds
	waiting   float64
}

func (h *timed) OnAdd(obj any, initial bool) {
	if !initial {
		h.OnDelete(obj)
	}
}
func (h *timed) OnUpdate(_, obj any) { h.OnDelete(obj) }
func (h *timed) OnDelete(obj any) {
	version := obj.(*v1.Pod).ResourceVersion
	if seq, err := strconv.Atoi(version); err == nil {
		due := h.pacer.Started().Add(h.pacer.Intended(seq - 1 - h.initial))
		h.latencies = append(h.latencies, float64(time.Since(due)))
	}
	if version == h.last {
		close(h.done)
	}
}

// playBeside plays the storm to a timed handler, and to slow ones.
func playBeside(b *testing.B, src source.Source, inf cache.SharedIndexInformer, s *storm.Storm, slow int) *timed {
	p := pace.On(informerRate)
	h := &timed{pacer: p, initial: s.Initial, last: strconv.Itoa(len(s.Events)), done: make(chan struct{})}
	ctx, cancel := context.WithCancel(b.Context())
	var running sync.WaitGroup
	defer func() {
		cancel()
		running.Wait()
		_ = p.Close()
	}()
	for range slow {
		sleep := func() {
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
		if _, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { sleep() }, UpdateFunc: func(_, _ any) { sleep() }, DeleteFunc: func(any) { sleep() },
		}); err != nil {
			b.Fatal(err)
		}
	}
	registered, err := inf.AddEventHandler(h)
	if err == nil {
		err = src.Ready(p)
	}
	if err != nil {
		b.Fatal(err)
	}
	running.Go(func() { inf.RunWithContext(ctx) })
	<-registered.HasSyncedChecker().Done()
	before := heap()
	p.Start(time.Now())
	if err := src.Play(ctx, p, uint64(len(s.Events)), nil); err != nil {
		b.Fatal(err)
	}
	<-h.done
	if after := heap(); after.HeapAlloc > before.HeapAlloc {
		h.waiting = float64(after.HeapAlloc - before.HeapAlloc)
	}
	return h
}
