package deltafifo

import (
	"math"
	"sync/atomic"

	"watchlab/impls/internal/ring"
)

// throttle makes producers wait while process runs, where at least limit deltas were queued when it
// began. So does client-go's RealFIFO, which then keeps its lock (v0.37.2, the_real_fifo.go,
// whileProcessing_locked): a call waits for the return of one process, and then for no other. The
// consumer's own calls in process would wait for themselves, as upstream.
//
// Unlike upstream, the calls of others than producers (Len, HasSynced, Close) do not wait, and Close
// ends the wait.
type throttle struct {
	limit    int             // 0: producers never wait
	held     atomic.Bool     // process runs and producers wait for it
	closed   atomic.Bool     // producers wait no more
	calls    atomic.Uint64   // counts the calls of process that have returned
	returned ring.EventCount // where producers sleep
}

// init sets the limit. Shards have a part of it each.
func (t *throttle) init(o Options, shards int) {
	if o.Throttle {
		t.limit = max(1, 2*o.BatchSize/shards)
	}
}

// begin is called before process, with the number of queued deltas.
func (t *throttle) begin(queued int) {
	if t.limit > 0 && queued >= t.limit {
		t.held.Store(true)
	}
}

// end is called when process has returned.
func (t *throttle) end() {
	if t.held.Load() {
		t.held.Store(false)
		t.calls.Add(1)
		t.returned.Notify(math.MaxInt)
	}
}

func (t *throttle) close() {
	t.closed.Store(true)
	t.returned.Notify(math.MaxInt)
}

// wait returns when a producer may go on.
func (t *throttle) wait() {
	if t.held.Load() {
		t.sleep()
	}
}

func (t *throttle) sleep() {
	call := t.calls.Load()
	t.returned.Wait(func() bool { return !t.held.Load() || t.calls.Load() != call || t.closed.Load() })
}
