package workqueue

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
)

// BenchmarkRounds: adders add all keys, workers take them; an operation is a round over all keys.
func BenchmarkRounds(b *testing.B) {
	for _, shape := range []struct{ adders, workers, items int }{{8, 8, 100_000}, {1, 1, 100_000}, {8, 8, 1000}} {
		for pass := range 3 {
			for _, v := range Variants() {
				b.Run(fmt.Sprintf("adders=%d/workers=%d/items=%d/impl=%s/pass=%d", shape.adders, shape.workers, shape.items, v.Name, pass), func(b *testing.B) {
					keys := make([]string, shape.items)
					for i := range keys {
						keys[i] = fmt.Sprintf("namespace-%d/pod-%06d", i%50, i)
					}
					q, _ := v.New(Options[string]{})
					var left sync.WaitGroup
					var workers sync.WaitGroup
					for range shape.workers {
						workers.Go(func() {
							for {
								k, down := q.Get()
								if down {
									return
								}
								q.Done(k)
							}
						})
					}
					starts := make([]chan struct{}, shape.adders)
					for i := range starts {
						starts[i] = make(chan struct{})
						mine := keys[i*shape.items/shape.adders : (i+1)*shape.items/shape.adders]
						go func() {
							for range starts[i] {
								for _, k := range mine {
									q.Add(k)
								}
								left.Done()
							}
						}()
					}
					var before, after runtime.MemStats
					runtime.ReadMemStats(&before)
					for b.Loop() {
						left.Add(len(starts))
						for _, s := range starts {
							s <- struct{}{}
						}
						left.Wait()
						for q.Len() > 0 {
							runtime.Gosched()
						}
					}
					b.StopTimer()
					runtime.ReadMemStats(&after)
					n := float64(b.N) * float64(shape.items)
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/n, "ns/item")
					b.ReportMetric(float64(after.Mallocs-before.Mallocs)/n, "allocs/item")
					q.ShutDown()
					workers.Wait()
					for _, s := range starts {
						close(s)
					}
				})
			}
		}
	}
}
