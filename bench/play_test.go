package bench_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

const (
	// keys that the events are of.
	keys = 10_000
	// eventsPerOp is how many events one iteration plays.
	eventsPerOp = 200_000
	// zipfExponent is that of leader-election leases and of one huge
	// EndpointSlice, roughly.
	zipfExponent = 1.1
)

// play is what producers do in one iteration: each has its objects in order.
// Keys are parted among producers, as updates of a key have one author.
type play struct {
	objects [][]*v1.Pod
	keys    int
}

func newPlay(skew string, producers int) play {
	pods := make([]*v1.Pod, keys)
	for i := range pods {
		pods[i] = &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprintf("namespace-%d", i%100), Name: fmt.Sprintf("workload-7d9c6c5f4-%05d", i),
		}}
	}
	rng := rand.New(rand.NewPCG(1, uint64(producers)))
	next := func() int { return rng.IntN(keys) }
	if skew == "zipf" {
		zipf := rand.NewZipf(rng, zipfExponent, 1, keys-1)
		next = func() int { return int(zipf.Uint64()) }
	}
	p := play{objects: make([][]*v1.Pod, producers)}
	seen := make(map[int]bool)
	for range eventsPerOp {
		k := next()
		seen[k] = true
		p.objects[k%producers] = append(p.objects[k%producers], pods[k])
	}
	p.keys = len(seen)
	return p
}

// queueUnderTest is what the benchmark needs of a queue of any family.
type queueUnderTest struct {
	update   func(obj any) error
	take     func() error
	close    func()
	consumed func() int
}

// exactly holds a variant to one hand-over for each event.
func exactly(p play, consumed int) error {
	if consumed != eventsPerOp {
		return fmt.Errorf("consumed %d of %d events", consumed, eventsPerOp)
	}
	return nil
}

// folded holds a variant to one hand-over for each key at least and each event
// at most.
func folded(p play, consumed int) error {
	if consumed < p.keys || consumed > eventsPerOp {
		return fmt.Errorf("consumed %d objects of %d keys in %d events", consumed, p.keys, eventsPerOp)
	}
	return nil
}

// measure plays to a fresh queue in each iteration: producers start together,
// the last of them closes the queue, and the iteration ends when the consumer
// has drained it.
//
// The speed of light is measured beside each iteration, with a map where events
// are folded by key.
func measure(b *testing.B, p play, build func() queueUnderTest, check func(play, int) error, mapped bool) {
	floor, unit := newLight(p, mapped), "x-ring"
	if mapped {
		unit = "x-ring+map"
	}
	var light time.Duration
	// A collection that is due from building the objects is not the queue's.
	runtime.GC()
	var before, after runtime.MemStats
	var mallocs, bytes uint64
	ops, consumed := 0, 0
	for b.Loop() {
		b.StopTimer()
		light += floor.run()
		runtime.ReadMemStats(&before)
		b.StartTimer()
		q := build()
		var producers sync.WaitGroup
		for _, objects := range p.objects {
			producers.Go(func() {
				for _, obj := range objects {
					if err := q.update(obj); err != nil {
						panic(err)
					}
				}
			})
		}
		go func() {
			producers.Wait()
			q.close()
		}()
		for {
			if err := q.take(); err != nil {
				if !errors.Is(err, cache.ErrFIFOClosed) {
					b.Fatal(err)
				}
				break
			}
		}
		if err := check(p, q.consumed()); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		runtime.ReadMemStats(&after)
		mallocs += after.Mallocs - before.Mallocs
		bytes += after.TotalAlloc - before.TotalAlloc
		ops++
		consumed += q.consumed()
		b.StartTimer()
	}
	events := float64(ops) * eventsPerOp
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/events, "ns/event")
	b.ReportMetric(events/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(mallocs)/events, "allocs/event")
	b.ReportMetric(float64(bytes)/events, "B/event")
	b.ReportMetric(float64(consumed)/events, "deltas/event")
	b.ReportMetric(float64(b.Elapsed())/float64(light), unit)
}
