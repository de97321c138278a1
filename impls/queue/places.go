package queue

import (
	"context"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"
)

// places are what keys take while they wait, of which there are as many as the
// capacity. It is for variants whose producers fold: they learn under their lock
// whether a key needs a place, and must let go of the lock to wait for one.
//
// # Why no wake-up is missed
//
// A producer that found no place enlists, which counts up enlisted, and looks
// again; who gives places back counts down taken and then looks at enlisted. In
// the total order of Go's atomics one of the two sees the other. Between the
// second look and its sleep a producer holds mu, which who wakes it takes.
//
// One producer is woken for each place. One that needs none after all, as its
// key has begun to wait meanwhile, or its context has ended, wakes the next.
type places struct {
	capacity int64

	taken atomic.Int64

	enlisted atomic.Int64

	mu sync.Mutex

	room sync.Cond

	closed bool
}

func (p *places) init(capacity int) {
	p.capacity = int64(capacity)
	p.room.L = &p.mu
}

// take takes a place, or reports that there is none.
func (p *places) take() bool {
	if p.capacity == 0 {
		return true
	}
	for {
		n := p.taken.Load()
		if n >= p.capacity {
			return false
		}
		if p.taken.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// give gives n places back.
func (p *places) give(n int) {
	if p.capacity == 0 || n == 0 {
		return
	}
	p.taken.Add(int64(-n))
	p.wake(n)
}

// wake wakes the producers that n places are for.
func (p *places) wake(n int) {
	if p.enlisted.Load() == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if n > 1 {
		p.room.Broadcast()
	} else {
		p.room.Signal()
	}
}

// wait returns nil when there was a place: the caller tries to take it, and
// comes back if another was faster, or calls wake if it does not need it any
// more. Otherwise it returns the error of ctx, or [cache.ErrFIFOClosed].
func (p *places) wait(ctx context.Context) error {
	p.enlisted.Add(1)
	defer p.enlisted.Add(-1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.room.Broadcast()
		})
		defer stop()
	}
	for p.taken.Load() >= p.capacity {
		if p.closed {
			return cache.ErrFIFOClosed
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		p.room.Wait()
	}
	return nil
}

// close ends all waits.
func (p *places) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.room.Broadcast()
}
