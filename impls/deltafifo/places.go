package deltafifo

import (
	"context"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"
)

// places counts the places of all shards together that are taken.
//
// # Why no wake-up is missed
//
// A producer that finds no place counts itself among those that wait and then
// tries again; who frees places counts them free and then looks whether somebody
// waits. In the total order of Go's atomics one of the two sees the other. The
// waiter holds mu from its count until it sleeps, so that who saw it and takes mu
// wakes it. For each place that became free one is woken; who wakes and finds the
// place gone, as another producer was faster, sleeps again, and will be woken for
// that one's place or another. The end of the context and Close concern all.
type places struct {
	capacity int64
	_        [128]byte

	used atomic.Int64
	_    [128]byte

	waiting atomic.Int64

	mu     sync.Mutex
	freed  sync.Cond
	closed bool
}

func (p *places) init(capacity int) {
	p.capacity = int64(capacity)
	p.freed.L = &p.mu
}

// take takes a place, waiting for one. It returns the error of ctx if that ends
// meanwhile, or [cache.ErrFIFOClosed].
func (p *places) take(ctx context.Context) error {
	if p.capacity == 0 || p.try() {
		return nil
	}
	return p.wait(ctx)
}

// try takes a place if there is one.
func (p *places) try() bool {
	for {
		n := p.used.Load()
		if n >= p.capacity {
			return false
		}
		if p.used.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (p *places) wait(ctx context.Context) error {
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.freed.Broadcast()
		})()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting.Add(1)
	defer p.waiting.Add(-1)
	for !p.try() {
		if p.closed {
			return cache.ErrFIFOClosed
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		p.freed.Wait()
	}
	return nil
}

// release frees places that were taken.
func (p *places) release(n int) {
	if p.capacity == 0 || n == 0 {
		return
	}
	p.used.Add(int64(-n))
	if p.waiting.Load() == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for range n {
		p.freed.Signal()
	}
}

// close ends all waits.
func (p *places) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.freed.Broadcast()
}
