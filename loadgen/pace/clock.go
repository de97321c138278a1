package pace

import (
	"context"
	"time"
)

// Clock is the clock of one pacer.
type Clock interface {
	// Now returns the time, with a monotonic reading if available.
	Now() time.Time
	// Sleep returns after d, when ctx ends, or earlier. The pacer checks the time and sleeps
	// again.
	Sleep(ctx context.Context, d time.Duration)
	// Close frees the resources of the clock.
	Close() error
}

// Timers returns a clock that sleeps on a Go timer. On an idle machine it wakes up to 1 ms
// late, 0.5 ms on average: on Linux the Go runtime waits in its network poller with
// millisecond resolution. Use it in a testing/synctest bubble.
func Timers() Clock { return &timers{} }

type timers struct {
	// timer is created by the first Sleep and reused.
	timer *time.Timer
}

func (c *timers) Now() time.Time { return time.Now() }

func (c *timers) Sleep(ctx context.Context, d time.Duration) {
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

func (c *timers) Close() error { return nil }
