package ring

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Yielder lets a producer that wakes the consumer yield its processor (P) to it.
//
// Go makes a woken goroutine the next one of the waker's P, and wakes a thread that may steal it. A
// producer that does not block keeps its P, so the consumer waits for that thread: tens of
// microseconds on an idle machine, a tick of the kernel's scheduler where other processes have the
// cores. With the yield the consumer runs at once, and the producer goes on when process has returned
// or the thread is there.
//
// Two kinds of producers do not yield:
//
//   - A producer of more than 1/slowDelta deltas a second. A yield hands over one delta, so the queue
//     would lose its batches. The consumer decides before it sleeps.
//   - A producer whose last yield took longer than longYield, as where all Ps are busy, for rest times
//     as long. So yields cost it at most 1/rest of its time, and longYield for each sleep.
//
// A yield that is missed or in vain costs time only: it does not decide who wakes whom.
type Yielder struct {
	_     [128]byte // The padding keeps state off the cache lines that others write.
	state atomic.Uint32
	next  atomic.Int64 // time from which producers yield again
	_     [128]byte

	epoch time.Time // the zero of all times; constant

	// The consumer owns the fields below.
	due   time.Duration // time at which a producer of 1/slowDelta would have sent the deltas so far
	taken int           // deltas since due was computed
	// unread counts the sleeps that read no clock: a reading costs as much as a push.
	unread int
}

// The states of the consumer.
const (
	running  uint32 = iota // or asleep, and producers do not yield
	sleeping               // the next producer yields
	called                 // a producer yields; the consumer has not run yet
)

const (
	slowDelta = 5 * time.Microsecond
	burst     = 100 * time.Microsecond // time without deltas that due can make up for
	longYield = 100 * time.Microsecond
	rest      = 10
	farAhead  = 10 * time.Millisecond // of due, as after 2,000 deltas of a fast producer
	clockless = 8                     // sleeps that read no clock
)

// Init must be called before all else.
func (y *Yielder) Init() { y.epoch = time.Now() }

// Took counts n deltas that the consumer has taken. Only the consumer calls it.
func (y *Yielder) Took(n int) { y.taken += n }

// Asleep is called before the consumer sleeps, by it or by a goroutine that it waits for.
func (y *Yielder) Asleep() {
	if y.unread > 0 {
		y.unread--
		return
	}
	now := time.Since(y.epoch)
	y.due = max(y.due, now-burst) + slowDelta*time.Duration(y.taken)
	y.taken = 0
	switch {
	case y.due <= now:
		y.state.Store(sleeping)
	case y.due > now+farAhead:
		y.unread = clockless
	}
}

// Awake is called after Asleep, when the consumer no longer sleeps.
func (y *Yielder) Awake() {
	if y.state.Load() != running {
		y.state.Store(running)
	}
}

// Yield is called by a producer that has pushed a delta.
func (y *Yielder) Yield() {
	if y.state.Load() == sleeping {
		y.call()
	}
}

func (y *Yielder) call() {
	began := time.Since(y.epoch)
	if int64(began) < y.next.Load() || !y.state.CompareAndSwap(sleeping, called) {
		return
	}
	// One call of the scheduler in 61 prefers the producer, and a consumer may wait for the owner of its
	// queue to run first.
	for n := 0; n < 3 && y.state.Load() == called; n++ {
		runtime.Gosched()
	}
	// The consumer has not run if it had taken the delta before and sleeps again.
	y.state.CompareAndSwap(called, sleeping)
	if took := time.Since(y.epoch) - began; took > longYield {
		y.next.Store(int64(began + (rest+1)*took))
	}
}
