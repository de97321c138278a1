package pace

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// coarse is the longest gap that the precise clock sleeps on the timerfd. A longer gap starts
// with a sleep on a Go timer, which wakes up early enough. coarse is also about the delay until a
// wait notices the end of ctx.
const coarse = 3 * time.Millisecond

// precise is the most precise clock that does not spin: it sleeps on a timerfd in the runtime's
// network poller. The kernel ends the poll about 30 µs late on an idle machine; a Go timer is
// 0.5 ms late. Without a timerfd it equals timers.
//
// Rejected: nanosleep and spinning. nanosleep is late by the thread's timer slack (50 µs). It
// also blocks its P for other goroutines until the runtime's monitor retakes it, up to 10 ms
// later. Spinning at the end takes a core from the system under test.
type precise struct {
	timers
	fd     int // file's descriptor; it is stored because file.Fd makes it blocking
	file   *os.File
	failed bool // no timerfd is available
	ticks  [8]byte
}

func newPreciseClock() clock { return &precise{} }

// machineClock reads the clock of Go's monotonic readings.
func machineClock() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // It exists.
	return time.Duration(ts.Nano())
}

func (c *precise) sleep(ctx context.Context, d time.Duration) {
	if d > coarse {
		c.timers.sleep(ctx, d-coarse/2)
		return
	}
	if c.failed || !c.wait(d) {
		c.failed = true
		c.timers.sleep(ctx, d)
	}
}

// wait sleeps on the timerfd. It returns false on failure.
func (c *precise) wait(d time.Duration) bool {
	if c.file == nil {
		fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
		if err != nil {
			return false
		}
		c.fd, c.file = fd, os.NewFile(uintptr(fd), "timerfd")
	}
	// A value of zero disarms the timer.
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(d, 1)))}
	if err := unix.TimerfdSettime(c.fd, 0, &at, nil); err != nil {
		return false
	}
	_, err := c.file.Read(c.ticks[:])
	return err == nil
}

func (c *precise) close() error {
	c.failed = true
	if c.file == nil {
		return nil
	}
	f := c.file
	c.file = nil
	return f.Close()
}
