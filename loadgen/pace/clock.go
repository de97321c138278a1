package pace

import (
	"context"
	"time"
)

// Clock is the clock of one pacer.
type Clock interface {
	// Now returns the time, with a monotonic reading where there is one.
	Now() time.Time
	Sleep(ctx context.Context, d time.Duration)
	Close() error
}

// Timers returns a clock that sleeps on a Go timer. On a quiet machine it wakes up
// to a millisecond late, half of that on average: on Linux the Go runtime waits for
// its network poller in whole milliseconds. Use it in a testing/synctest bubble.
func Timers() Clock { return &timers{} }

type timers struct {
	// timer is made by the first Sleep and reused.
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
		// Since Go 1.23 a stopped timer leaves nothing in its channel.
		c.timer.Stop()
	}
}

func (c *timers) Close() error { return nil }
