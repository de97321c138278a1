package clientgo

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"watchlab/impls/workqueue"
)

// load is a cell of the benchmark.
type load struct {
	adders, workers, items int
	// full keeps that many items queued; otherwise the queue starts and ends empty.
	full bool
}

var loads = []load{
	{adders: 1, workers: 1, items: 100_000},
	{adders: 8, workers: 8, items: 100_000},
	{adders: 8, workers: 1000, items: 1_000_000, full: true},
}

const (
	// passes is how often an iteration adds all items of a queue that is not full.
	passes = 5
	// addsWhenFull is the number of Adds of an iteration to a full queue, and of items besides the
	// queued ones.
	addsWhenFull = 200_000
	// permitted is how many items one permit lets a worker take.
	permitted = 25
	// sampled is the share of Adds that are timed if the queue is not full. It is a prime, so that
	// samples do not keep step with the batches of a queue.
	sampled = 61
	// mostTimes is how many Adds of an adder are timed. Their memory is allocated before.
	mostTimes = 1 << 18
	// stuck is the longest time of a pass.
	stuck = time.Minute
)

// BenchmarkWorkqueue measures the variants. An op is an item that passes Add, Get and Done. Workers do nothing
// in between. The number of items that are handed out must be that of the added ones, otherwise the benchmark
// fails.
//
// In the cells of 100,000 items, adders add all items to an empty queue, and the next pass begins when
// the last item is done: no item is added while it is queued. The first pass is not measured.
//
// In the cell of 1,000,000 items that many stay queued, and each worker has an item in process, as if
// all were busy. Adders add other items, and permits let workers take as many as were added.
//
// add-p50-ns and add-p99-ns are of the duration of Add: of each in the cell of 1,000,000 items, of one
// in 61 in the others. floor-p99-ns is that of an empty call after it, in the same goroutine.
// cpu-ns/op is the CPU time of the process, garbage collection included.
func BenchmarkWorkqueue(b *testing.B, variants ...workqueue.Variant) {
	var items []string
	for _, l := range loads {
		for _, v := range variants {
			b.Run(fmt.Sprintf("impl=%s/adders=%d/workers=%d/items=%d", v.Name, l.adders, l.workers, l.items), func(b *testing.B) {
				for i := len(items); i < 1_000_000+addsWhenFull; i++ {
					items = append(items, fmt.Sprintf("namespace-%02d/item-%07d", i%97, i))
				}
				l.run(b, v, items)
			})
		}
	}
}

// workBenchmark adds items to a queue and takes them.
type workBenchmark struct {
	*testing.B
	load
	queue   workqueue.Queue[string]
	items   []string
	times   []times       // by adder
	taken   []counter     // by worker
	permits chan struct{} // for a full queue
	next    int           // the item that is added next
	wanted  int           // how many items are taken after a pass
}

// times are the durations of Adds, and of empty calls.
type times struct{ adds, floors []time.Duration }

// counter has a cache line of its own.
type counter struct {
	atomic.Int64
	_ [120]byte
}

func (l load) run(b *testing.B, v workqueue.Variant, items []string) {
	q, err := v.New(workqueue.Options[string]{})
	if err != nil {
		b.Fatal(err)
	}
	p := &workBenchmark{
		B: b, load: l, queue: q, items: items,
		times: make([]times, l.adders), taken: make([]counter, l.workers), permits: make(chan struct{}, l.workers),
	}
	var workers sync.WaitGroup
	for w := range l.workers {
		workers.Go(func() { p.work(&p.taken[w]) })
	}
	each, turns := addsWhenFull, 1
	if l.full {
		for _, item := range items[:l.items] {
			q.Add(item)
		}
		p.next, p.wanted = l.items, l.workers // One in process for each.
		p.settle(p.wanted)
	} else {
		p.items = items[:l.items]
		each, turns = l.items, passes
		p.pass(each)
	}
	for a := range p.times {
		p.times[a] = times{make([]time.Duration, 0, mostTimes), make([]time.Duration, 0, mostTimes)}
	}

	b.ReportAllocs()
	var before, after runtime.MemStats
	var ops, mallocs, size, cpu float64
	for b.Loop() {
		b.StopTimer()
		runtime.GC()
		runtime.ReadMemStats(&before)
		start := cpuTime()
		b.StartTimer()
		for range turns {
			p.pass(each)
		}
		b.StopTimer()
		cpu += float64(cpuTime() - start)
		runtime.ReadMemStats(&after)
		ops += float64(each * turns)
		mallocs, size = mallocs+float64(after.Mallocs-before.Mallocs), size+float64(after.TotalAlloc-before.TotalAlloc)
		b.StartTimer()
	}
	b.StopTimer()
	close(p.permits)
	if l.full {
		p.wanted += l.items - l.workers
	}
	p.settle(p.wanted)
	q.ShutDown()
	workers.Wait()

	var all times
	for _, t := range p.times {
		all.adds, all.floors = append(all.adds, t.adds...), append(all.floors, t.floors...)
	}
	slices.Sort(all.adds)
	slices.Sort(all.floors)
	b.ReportMetric(float64(b.Elapsed())/ops, "ns/op")
	b.ReportMetric(ops/b.Elapsed().Seconds(), "items/s")
	b.ReportMetric(cpu/ops, "cpu-ns/op")
	b.ReportMetric(mallocs/ops, "allocs/op")
	b.ReportMetric(size/ops, "B/op")
	b.ReportMetric(float64(all.adds[len(all.adds)/2]), "add-p50-ns")
	b.ReportMetric(float64(all.adds[len(all.adds)*99/100]), "add-p99-ns")
	b.ReportMetric(float64(all.floors[len(all.floors)*99/100]), "floor-p99-ns")
}

// pass adds the next n items, and waits until as many are taken, and done if the queue is not full.
func (p *workBenchmark) pass(n int) {
	var adders sync.WaitGroup
	share := n / p.adders
	for a := range p.adders {
		adders.Go(func() { p.add(p.next+a*share, share, &p.times[a]) })
	}
	adders.Wait()
	p.next = (p.next + n) % len(p.items)
	p.wanted += n
	p.settle(p.wanted)
}

// add adds n items from the given one on. Where permits are given, each is for as many items.
func (p *workBenchmark) add(from, n int, t *times) {
	for i := range n {
		item := p.items[(from+i)%len(p.items)]
		if !p.full && i%sampled != 0 || len(t.adds) == cap(t.adds) {
			p.queue.Add(item)
		} else {
			start := time.Now()
			p.queue.Add(item)
			added := time.Now()
			nothing()
			t.adds, t.floors = append(t.adds, added.Sub(start)), append(t.floors, time.Since(added))
		}
		if p.full && i%permitted == permitted-1 {
			p.permits <- struct{}{}
		}
	}
}

//go:noinline
func nothing() {}

// work takes items until the queue is shut down.
func (p *workBenchmark) work(taken *counter) {
	for n := int64(0); ; n++ {
		item, shutdown := p.queue.Get()
		if shutdown {
			return
		}
		if p.full && n%permitted == 0 {
			taken.Store(n + 1)
			<-p.permits
		}
		p.queue.Done(item)
		taken.Store(n + 1)
	}
}

// settle waits until n items are taken. It ends the benchmark if more are, or no more come.
func (p *workBenchmark) settle(n int) {
	for since := time.Now(); ; <-time.After(20 * time.Microsecond) {
		sum := 0
		for i := range p.taken {
			sum += int(p.taken[i].Load())
		}
		if sum == n {
			return
		}
		if sum > n || time.Since(since) > stuck {
			p.queue.ShutDown()
			p.Fatalf("%d items were handed out, want %d; %d are queued", sum, n, p.queue.Len())
		}
	}
}

// cpuTime returns the CPU time that the process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
