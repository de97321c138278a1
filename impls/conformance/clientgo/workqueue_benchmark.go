package clientgo

import (
	"fmt"
	"math/bits"
	"runtime"
	"slices"
	"strconv"
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
	// stuck is the longest time of a pass.
	stuck = time.Minute
)

// BenchmarkWorkqueue measures the variants. An op is an item that passes Add, Get and Done. Workers do nothing
// in between, except that one item of ten is checked for per-key exclusion: to check each would cost
// about as much as a fast queue. The number of items that are handed out must be that of the added
// ones, otherwise the benchmark fails.
//
// In the cells of 100,000 items, adders add all items to an empty queue, and the next pass begins when
// the last item is done: no item is added while it is queued. The first pass is not measured.
//
// In the cell of 1,000,000 items that many stay queued, and each worker has an item in process, as if
// all were busy. Adders add other items, and permits let workers take as many as were added.
//
// add-p50-ns and add-p99-ns are of the duration of Add: of each in the cell of 1,000,000 items, of one
// in 61 in the others. floor-p99-ns is that of an empty call after it, in the same goroutine.
// Percentiles are exact to 1/16. cpu-ns/op is the CPU time of the process, garbage collection included.
func BenchmarkWorkqueue(b *testing.B, variants ...workqueue.Variant) {
	var items []string
	for _, l := range loads {
		for _, v := range variants {
			b.Run(fmt.Sprintf("impl=%s/adders=%d/workers=%d/items=%d", v.Name, l.adders, l.workers, l.items), func(b *testing.B) {
				if items == nil {
					items = make([]string, 1_000_000+addsWhenFull)
					for i := range items {
						items[i] = fmt.Sprintf("namespace-%02d/item-%0*d", i%97, digits, i)
					}
				}
				l.run(b, v, items)
			})
		}
	}
}

// digits is the length of the number at the end of an item.
const digits = 7

// checked reports whether an item is checked for per-key exclusion.
func checked(item string) bool { return item[len(item)-1] == '0' }

// workBenchmark adds items to a queue and takes them.
type workBenchmark struct {
	*testing.B
	load
	queue   workqueue.Queue[string]
	items   []string
	states  []atomic.Uint32 // of the items that are checked, by item
	taken   []counter       // by worker
	permits chan struct{}   // for a full queue
	workers sync.WaitGroup
	next    int // the item that is added next
	added   int
	broken  sync.Once // reports the first error

	mu           sync.Mutex
	adds, floors durations // guarded by mu
}

// The bits of an item's state.
const (
	waits = 1 << iota // it was added and not handed out
	busy              // it is in process
)

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
	p := &workBenchmark{B: b, load: l, queue: q, items: items, taken: make([]counter, l.workers), permits: make(chan struct{}, l.workers)}
	each, turns := addsWhenFull, 1
	if !l.full {
		each, turns = l.items, passes
		p.items = items[:l.items]
	}
	p.states = make([]atomic.Uint32, len(p.items))
	for w := range l.workers {
		p.workers.Go(func() { p.work(&p.taken[w]) })
	}
	if l.full {
		p.add(0, l.items, false)
		p.next = l.items
		p.settle(l.workers) // One in process for each.
	} else {
		p.pass(each)
		p.adds, p.floors = durations{}, durations{}
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
	p.end()
	b.ReportMetric(float64(b.Elapsed())/ops, "ns/op")
	b.ReportMetric(ops/b.Elapsed().Seconds(), "items/s")
	b.ReportMetric(cpu/ops, "cpu-ns/op")
	b.ReportMetric(mallocs/ops, "allocs/op")
	b.ReportMetric(size/ops, "B/op")
	b.ReportMetric(p.adds.quantile(0.5), "add-p50-ns")
	b.ReportMetric(p.adds.quantile(0.99), "add-p99-ns")
	b.ReportMetric(p.floors.quantile(0.99), "floor-p99-ns")
}

// pass adds the next n items, and waits until as many are done, or taken if the queue is full.
func (p *workBenchmark) pass(n int) {
	var adders sync.WaitGroup
	share := n / p.adders
	for a := range p.adders {
		adders.Go(func() { p.add(p.next+a*share, share, true) })
	}
	adders.Wait()
	p.next = (p.next + n) % len(p.items)
	p.added += n
	ahead := 0
	if p.full {
		ahead = p.load.workers
	}
	p.settle(p.added + ahead)
}

// add adds n items from the given one on. Where permits are given, each is for as many items.
func (p *workBenchmark) add(from, n int, timed bool) {
	var adds, floors durations
	for i := range n {
		at := (from + i) % len(p.items)
		if checked(p.items[at]) {
			p.states[at].Or(waits)
		}
		if !timed || !p.full && i%sampled != 0 {
			p.queue.Add(p.items[at])
		} else {
			start := time.Now()
			p.queue.Add(p.items[at])
			added := time.Now()
			nothing()
			adds.record(added.Sub(start))
			floors.record(time.Since(added))
		}
		if timed && p.full && i%permitted == permitted-1 {
			p.permits <- struct{}{}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range adds {
		p.adds[i] += adds[i]
		p.floors[i] += floors[i]
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
		state := p.begin(item)
		if p.full && n%permitted == 0 {
			taken.Store(n + 1)
			<-p.permits
		}
		if state != nil {
			state.And(^uint32(busy))
		}
		p.queue.Done(item)
		taken.Store(n + 1)
	}
}

// begin returns the state of an item that is checked, or nil.
func (p *workBenchmark) begin(item string) *atomic.Uint32 {
	if !checked(item) {
		return nil
	}
	at, err := strconv.Atoi(item[len(item)-digits:])
	if err != nil {
		p.broken.Do(func() { p.Error(err) })
		return nil
	}
	state := &p.states[at]
	if state.Swap(busy)&busy != 0 {
		p.broken.Do(func() { p.Errorf("%s is in process twice", item) })
	}
	return state
}

// settle waits until n items are taken.
func (p *workBenchmark) settle(n int) {
	sum := 0
	p.wait("the last item", func() bool {
		sum = 0
		for i := range p.taken {
			sum += int(p.taken[i].Load())
		}
		return sum >= n
	})
	if sum > n {
		p.broken.Do(func() { p.Errorf("%d items were handed out, %d were added", sum, n) })
	}
}

// end lets workers take what is queued, checks that nothing is left, and shuts the queue down.
func (p *workBenchmark) end() {
	close(p.permits)
	at := 0
	p.wait("all items", func() bool {
		for at < len(p.states) && p.states[at].Load() == 0 {
			at++
		}
		return at == len(p.states) && p.queue.Len() == 0
	})
	p.queue.ShutDown()
	p.workers.Wait()
}

// wait waits for done. It ends the benchmark after an error.
func (p *workBenchmark) wait(what string, done func() bool) {
	for since := time.Now(); !done(); <-time.After(20 * time.Microsecond) {
		if time.Since(since) > stuck {
			p.broken.Do(func() { p.Errorf("%s was not handed out; %d are queued", what, p.queue.Len()) })
		}
		if p.Failed() {
			p.queue.ShutDown()
			p.FailNow()
		}
	}
}

// durations counts durations in buckets, 16 for each power of two.
type durations [64 * 16]uint64

func (d *durations) record(duration time.Duration) {
	n := uint64(max(0, duration))
	exponent := max(0, bits.Len64(n)-5)
	d[exponent*16+int(n>>exponent)]++
}

// quantile returns the lower bound of a quantile's bucket, in ns.
func (d *durations) quantile(q float64) float64 {
	var total, sum uint64
	for _, n := range d {
		total += n
	}
	at := slices.IndexFunc(d[:], func(n uint64) bool {
		sum += n
		return sum > 0 && float64(sum) >= q*float64(total)
	})
	exponent := max(0, at/16-1)
	return float64(at-exponent*16) * float64(uint64(1)<<exponent)
}

// cpuTime returns the CPU time that the process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
