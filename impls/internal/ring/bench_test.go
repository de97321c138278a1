package ring_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"watchlab/impls/internal/ring"
)

// delta is as large as client-go's.
type delta struct {
	kind   string
	object any
}

// pipe is a queue under benchmark. Producers call put. get fills at most len(dst)
// and waits for at least one value. done says that no value follows.
type pipe interface {
	put(delta)
	get(dst []delta) int
	done()
}

type ringPipe struct{ q ring.Queue[delta] }

func (p ringPipe) put(d delta) {
	if err := p.q.Push(context.Background(), d); err != nil {
		panic(err)
	}
}

func (p ringPipe) get(dst []delta) int {
	for {
		if n := pop(p.q, dst); n > 0 {
			return n
		}
		if p.q.Wait() != nil {
			return 0
		}
	}
}

func (p ringPipe) done() { p.q.Close() }

type chanPipe chan delta

func (p chanPipe) put(d delta) { p <- d }

func (p chanPipe) get(dst []delta) int {
	d, ok := <-p
	if !ok {
		return 0
	}
	n := 1
	dst[0] = d
	for n < len(dst) {
		select {
		case d, ok := <-p:
			if !ok {
				return n
			}
			dst[n] = d
			n++
		default:
			return n
		}
	}
	return n
}

func (p chanPipe) done() { close(p) }

// mutexPipe is the best simple queue: the consumer swaps slices under the lock,
// and producers signal only a waiting consumer.
type mutexPipe struct {
	// taken and at are owned by the consumer.
	taken []delta
	at    int

	mu      sync.Mutex
	cond    sync.Cond
	queued  []delta
	waiting bool
	closed  bool
}

func newMutexPipe() *mutexPipe {
	p := new(mutexPipe)
	p.cond.L = &p.mu
	return p
}

func (p *mutexPipe) put(d delta) {
	p.mu.Lock()
	p.queued = append(p.queued, d)
	wake := p.waiting
	p.waiting = false
	p.mu.Unlock()
	if wake {
		p.cond.Signal()
	}
}

func (p *mutexPipe) get(dst []delta) int {
	if p.at == len(p.taken) {
		clear(p.taken)
		p.mu.Lock()
		for len(p.queued) == 0 && !p.closed {
			p.waiting = true
			p.cond.Wait()
		}
		p.taken, p.queued, p.at = p.queued, p.taken[:0], 0
		p.mu.Unlock()
	}
	n := copy(dst, p.taken[p.at:])
	p.at += n
	return n
}

func (p *mutexPipe) done() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cond.Signal()
}

// BenchmarkRing moves values from producers at full speed to one consumer, which
// pops up to 256 at once. An operation is a round of 65,536 events, which ends
// when the consumer has received all of them.
func BenchmarkRing(b *testing.B) {
	const capacity, round = 1024, 1 << 16
	for _, impl := range []struct {
		name string
		make func() pipe
	}{
		{"unbounded", func() pipe { return ringPipe{ring.NewUnbounded[delta]()} }},
		{"bounded", func() pipe { return ringPipe{newQueue[delta](b, shape{capacity: capacity})} }},
		{"chan", func() pipe { return make(chanPipe, capacity) }},
		{"mutex", func() pipe { return newMutexPipe() }},
	} {
		for _, producers := range []int{1, 8} {
			b.Run(fmt.Sprintf("impl=%s/producers=%d", impl.name, producers), func(b *testing.B) {
				p := impl.make()
				var object any = new(delta)
				starts := make([]chan struct{}, producers)
				var wg sync.WaitGroup
				for i := range starts {
					starts[i] = make(chan struct{})
					wg.Go(func() {
						for range starts[i] {
							for range round / producers {
								p.put(delta{"Updated", object})
							}
						}
					})
				}
				dst := make([]delta, 256)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				for b.Loop() {
					for _, s := range starts {
						s <- struct{}{}
					}
					for left := round; left > 0; {
						n := p.get(dst)
						for _, d := range dst[:n] {
							if d.object != object {
								b.Fatal("popped what nobody pushed")
							}
						}
						left -= n
					}
				}
				b.StopTimer()
				runtime.ReadMemStats(&after)
				events := float64(b.N) * round
				b.ReportMetric(events/b.Elapsed().Seconds(), "events/s")
				b.ReportMetric(float64(after.Mallocs-before.Mallocs)/events, "allocs/event")
				for _, s := range starts {
					close(s)
				}
				wg.Wait()
				p.done()
				if n := p.get(dst); n != 0 {
					b.Fatalf("%d events too many", n)
				}
			})
		}
	}
}
