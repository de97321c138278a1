package workqueuetest

import (
	"fmt"
	"math/bits"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"watchlab/impls/conformance"
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
	// sampled is the share of Adds that are timed if the queue is not full.
	sampled = 64
	// stuck is the longest time without a Get.
	stuck = 30 * time.Second
)

// Benchmark measures the variants. An op is an item that passes Add, Get and Done. Workers do nothing
// in between, except for the check of per-key exclusion. Each added item must be handed out,
// otherwise the benchmark fails.
//
// In the cells of 100,000 items, adders add all items to an empty queue, and the next pass begins when
// the last item is done: no item is added while it is queued. The first pass is not measured.
//
// In the cell of 1,000,000 items that many stay queued, and each worker has an item in process, as if
// all were busy. Adders add other items, and permits let workers take as many as were added.
//
// add-p50-ns and add-p99-ns are of the duration of Add: of each in the cell of 1,000,000 items, of one
// in 64 in the others. floor-p99-ns is that of an empty call after it, in the same goroutine.
// Percentiles are exact to 1/16. cpu-ns/op is the CPU time of the process, garbage collection included.
func Benchmark(b *testing.B, variants ...workqueue.Variant) {
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

// player adds items to a queue and takes them.
type player struct {
	load
	queue   workqueue.Queue[string]
	items   []string
	states  []state
	taken   []counter     // by worker
	permits chan struct{} // nil unless the queue is full
	workers sync.WaitGroup
	next    int // the item that is added next
	added   int

	mu     sync.Mutex
	failed error
	// adds and floors are guarded by mu.
	adds, floors durations
}

// state is that of an item.
type state struct {
	waits atomic.Bool // it was added and not handed out
	busy  atomic.Bool
}

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
	p := &player{load: l, queue: q, items: items, taken: make([]counter, l.workers)}
	each, turns := l.items, passes
	if l.full {
		p.permits = make(chan struct{}, l.workers)
		each, turns = addsWhenFull, 1
	} else {
		p.items = items[:l.items]
	}
	p.states = make([]state, len(p.items))
	if l.full {
		p.add(0, l.items, false)
		p.next = l.items
	}
	for w := range l.workers {
		p.workers.Go(func() { p.work(&p.taken[w]) })
	}
	if !l.full {
		p.pass(b, each)
		p.adds, p.floors = durations{}, durations{}
	} else {
		p.settle(b, l.workers) // One in process for each.
	}

	b.ReportAllocs()
	var before, after runtime.MemStats
	var ops, mallocs, size uint64
	var cpu time.Duration
	for b.Loop() {
		b.StopTimer()
		runtime.GC()
		runtime.ReadMemStats(&before)
		start := conformance.CPUTime()
		b.StartTimer()
		for range turns {
			p.pass(b, each)
		}
		b.StopTimer()
		cpu += conformance.CPUTime() - start
		runtime.ReadMemStats(&after)
		ops += uint64(each * turns)
		mallocs, size = mallocs+after.Mallocs-before.Mallocs, size+after.TotalAlloc-before.TotalAlloc
		b.StartTimer()
	}
	b.StopTimer()
	p.end(b)
	report := func(value float64, unit string) { b.ReportMetric(value, unit) }
	report(float64(b.Elapsed())/float64(ops), "ns/op")
	report(float64(ops)/b.Elapsed().Seconds(), "items/s")
	report(float64(cpu)/float64(ops), "cpu-ns/op")
	report(float64(mallocs)/float64(ops), "allocs/op")
	report(float64(size)/float64(ops), "B/op")
	report(p.adds.quantile(0.5), "add-p50-ns")
	report(p.adds.quantile(0.99), "add-p99-ns")
	report(p.floors.quantile(0.99), "floor-p99-ns")
}

// pass adds the next n items, and waits until as many are done, or taken if the queue is full.
func (p *player) pass(b *testing.B, n int) {
	var adders sync.WaitGroup
	share := n / p.adders
	for a := range p.adders {
		adders.Go(func() { p.add(p.next+a*share, share, true) })
	}
	adders.Wait()
	p.next = (p.next + n) % len(p.items)
	p.added += n
	target := p.added
	if p.full {
		target += len(p.taken)
	}
	p.settle(b, target)
}

// add adds n items from the given one on. Where permits are given, each is for as many items.
func (p *player) add(from, n int, timed bool) {
	var adds, floors durations
	every := sampled
	if p.full {
		every = 1
	}
	for i := range n {
		at := (from + i) % len(p.items)
		p.states[at].waits.Store(true)
		if !timed || i%every != 0 {
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
	p.adds.merge(&adds)
	p.floors.merge(&floors)
}

//go:noinline
func nothing() {}

// work takes items until the queue is shut down.
func (p *player) work(taken *counter) {
	for n := int64(0); ; n++ {
		item, shutdown := p.queue.Get()
		if shutdown {
			return
		}
		at, err := strconv.Atoi(item[len(item)-digits:])
		if err != nil {
			p.fail(err)
			return
		}
		s := &p.states[at]
		if s.busy.Swap(true) {
			p.fail(fmt.Errorf("%s is in process twice", item))
		}
		s.waits.Store(false)
		if p.full && n%permitted == 0 {
			taken.Store(n + 1)
			<-p.permits
		}
		s.busy.Store(false)
		p.queue.Done(item)
		taken.Store(n + 1)
	}
}

// settle waits until n items are taken.
func (p *player) settle(b *testing.B, n int) {
	last, since := 0, time.Now()
	for {
		sum := 0
		for i := range p.taken {
			sum += int(p.taken[i].Load())
		}
		switch {
		case sum == n:
			return
		case sum > n:
			p.fail(fmt.Errorf("%d items were handed out, %d were added", sum, n))
		case sum > last:
			last, since = sum, time.Now()
		case time.Since(since) > stuck:
			p.fail(fmt.Errorf("%d of %d items were handed out, and no more come", sum, n))
		}
		if err := p.failure(); err != nil {
			p.queue.ShutDown()
			b.Fatal(err)
		}
		<-time.After(20 * time.Microsecond)
	}
}

// end lets workers take what is queued, checks that nothing is left, and shuts the queue down.
func (p *player) end(b *testing.B) {
	if p.permits != nil {
		close(p.permits)
	}
	for since := time.Now(); p.queue.Len() > 0 || p.left() >= 0; <-time.After(time.Millisecond) {
		if p.failure() == nil && time.Since(since) > stuck {
			p.fail(fmt.Errorf("%d items are queued, and %s was added and never done", p.queue.Len(), p.items[max(p.left(), 0)]))
		}
		if p.failure() != nil {
			break
		}
	}
	p.queue.ShutDown()
	if err := p.failure(); err != nil {
		b.Fatal(err)
	}
	p.workers.Wait()
}

// left returns an item that was added and is not done, or -1.
func (p *player) left() int {
	for i := range p.states {
		if p.states[i].waits.Load() || p.states[i].busy.Load() {
			return i
		}
	}
	return -1
}

func (p *player) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed == nil {
		p.failed = err
	}
}

func (p *player) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// durations counts durations in buckets, 16 for each power of two.
type durations [64 * 16]uint64

func (d *durations) record(duration time.Duration) {
	n := uint64(max(0, duration))
	if n < 16 {
		d[n]++
		return
	}
	exponent := bits.Len64(n) - 5
	d[(exponent+1)*16+int(n>>exponent)-16]++
}

func (d *durations) merge(other *durations) {
	for i, n := range other {
		d[i] += n
	}
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
	if at < 16 {
		return float64(at)
	}
	return float64(uint64(16+at%16) << (at/16 - 1))
}
