package pace

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// coarse is the gap from which Precise sleeps on a Go timer first, leaving
// enough that the timer's lateness is within it. It is also about how late a
// wait notices that ctx ended.
const coarse = 3 * time.Millisecond

// Precise returns the most precise clock that does not spin. On Linux it
// sleeps on a timerfd in the runtime's network poller: the kernel ends the
// poll when the time has come, some 30 µs late on a quiet machine, where a Go
// timer is late by half a millisecond. Elsewhere, or where the kernel gives no
// timerfd, it is [Timers].
//
// Turned down: nanosleep, which is late by the thread's timer slack (50 µs)
// and, worse, keeps its P from other goroutines until the runtime's monitor
// takes it away, up to 10 ms later; and spinning through the last stretch,
// which takes a core from the system under test.
func Precise() Clock { return &precise{} }

type precise struct {
	timers

	fd   int
	file *os.File

	failed bool
	ticks  [8]byte
}

func (c *precise) Sleep(ctx context.Context, d time.Duration) {
	if d > coarse {
		c.timers.Sleep(ctx, d-coarse/2)
		return
	}
	if c.failed || !c.sleep(d) {
		c.failed = true
		c.timers.Sleep(ctx, d)
	}
}

// sleep sleeps on the timerfd; it returns false where that is not possible.
func (c *precise) sleep(d time.Duration) bool {
	if c.file == nil {
		fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
		if err != nil {
			return false
		}
		c.fd, c.file = fd, os.NewFile(uintptr(fd), "timerfd")
	}
	// A value of zero would disarm the timer; gaps are positive.
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(d, 1)))}
	if err := unix.TimerfdSettime(c.fd, 0, &at, nil); err != nil {
		return false
	}
	_, err := c.file.Read(c.ticks[:])
	return err == nil
}

func (c *precise) Close() error {
	c.failed = true
	if c.file == nil {
		return nil
	}
	f := c.file
	c.file = nil
	return f.Close()
}
