package deltafifo

import (
	"context"
	"sync"
	"sync/atomic"
)

// throttle makes producers wait while process runs, where at least limit deltas were queued when it
// began. So does client-go's RealFIFO, which then keeps its lock (v0.37.2, the_real_fifo.go,
// whileProcessing_locked): a call waits for the return of one process, and then for no other. The
// consumer's own calls in process would wait for themselves, as upstream.
//
// Unlike upstream, the calls of others than producers (Len, HasSynced, Close) do not wait, and Close
// and the context end the wait.
//
// # Why no wake-up is missed
//
// A producer counts itself in waiting and then loads held; end stores held and then loads waiting.
// In the total order of Go's atomics one of them sees the other.
type throttle struct {
	limit   int         // 0: producers never wait
	held    atomic.Bool // process runs and producers wait for it
	waiting atomic.Int32

	mu       sync.Mutex // guards the fields below
	returned sync.Cond  // where producers sleep
	calls    uint64     // counts the calls of process that had producers waiting
	closed   bool
}

// init returns the sink that producers call. Shards have a part of the limit each.
func (t *throttle) init(o Options, shards int, s sink) sink {
	t.returned.L = &t.mu
	if !o.Throttle {
		return s
	}
	t.limit = max(1, 2*o.BatchSize/shards)
	return throttled{s, t, o.Context}
}

// begin is called before process, with the number of queued deltas.
func (t *throttle) begin(queued int) {
	if t.limit > 0 && queued >= t.limit {
		t.held.Store(true)
	}
}

// end is called when process has returned.
func (t *throttle) end() {
	if t.limit == 0 {
		return
	}
	t.held.Store(false)
	if t.waiting.Load() > 0 {
		t.wake(func() { t.calls++ })
	}
}

func (t *throttle) close() { t.wake(func() { t.closed = true }) }

func (t *throttle) wake(change func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change()
	t.returned.Broadcast()
}

// wait returns nil when a producer may go on, or the error of its context.
func (t *throttle) wait(ctx context.Context) error {
	if !t.held.Load() {
		return nil
	}
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, func() { t.wake(func() {}) })()
	}
	t.waiting.Add(1)
	defer t.waiting.Add(-1)
	t.mu.Lock()
	defer t.mu.Unlock()
	for call := t.calls; t.held.Load() && call == t.calls && !t.closed; t.returned.Wait() {
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// throttled is a sink whose producers wait for process.
type throttled struct {
	sink
	*throttle
	ctx context.Context
}

func (s throttled) push(i item) error {
	if err := s.wait(s.ctx); err != nil {
		return err
	}
	return s.sink.push(i)
}
