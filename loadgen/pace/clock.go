package pace

import (
	"context"
	"math"
	"sync"
	"time"
)

type clock interface {
	now() time.Time // with a monotonic reading if available
	// sleep returns after d, when ctx ends, or earlier; the pacer then sleeps again.
	sleep(ctx context.Context, d time.Duration)
	close() error
}

// timers is a clock that sleeps on a Go timer. On an idle machine it wakes up to 1 ms late, 0.5 ms
// on average: on Linux the Go runtime waits in its network poller with millisecond resolution.
type timers struct {
	timer *time.Timer // created by the first sleep and reused
}

func (c *timers) now() time.Time { return time.Now() }

func (c *timers) sleep(ctx context.Context, d time.Duration) {
	if c.timer == nil {
		c.timer = time.NewTimer(d)
	} else {
		c.timer.Reset(d)
	}
	select {
	case <-c.timer.C:
	case <-ctx.Done():
		// Since Go 1.23, a stopped timer leaves no value in its channel.
		c.timer.Stop()
	}
}

func (c *timers) close() error { return nil }

// origin is the zero of the machine's clock. The best of several readings excludes a preemption.
var origin = sync.OnceValue(func() (zero time.Time) {
	best := time.Duration(math.MaxInt64)
	for range 16 {
		before := time.Now()
		at := machineClock()
		if took := time.Since(before); took < best {
			best, zero = took, before.Add(took/2-at)
		}
	}
	return zero
})

// Machine returns t as nanoseconds of a clock that all processes of the machine share.
// [FromMachine] is its inverse. t must have a monotonic reading.
func Machine(t time.Time) int64 { return int64(t.Sub(origin())) }

// FromMachine returns the time at a reading of [Machine], also of another process.
func FromMachine(ns int64) time.Time { return origin().Add(time.Duration(ns)) }
