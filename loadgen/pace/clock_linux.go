package pace

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// coarse is the longest gap that Precise sleeps on the timerfd. For a longer one it
// first sleeps on a Go timer, which wakes up early enough. It is also about the time
// until a wait notices that ctx has ended.
const coarse = 3 * time.Millisecond

// Precise returns the most precise clock that does not spin. On Linux it sleeps on a
// timerfd in the runtime's network poller: the kernel ends the poll on time, about
// 30 µs late on a quiet machine; a Go timer is half a millisecond late. On other
// systems, and without a timerfd, it is [Timers].
//
// Rejected: nanosleep, which is late by the thread's timer slack (50 µs) and blocks
// its P for other goroutines until the runtime's monitor retakes it, up to 10 ms
// later; and spinning at the end, which takes a core from the system under test.
func Precise() Clock { return &precise{} }

type precise struct {
	timers
	fd     int
	file   *os.File
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

// sleep sleeps on the timerfd; it returns false where that fails.
func (c *precise) sleep(d time.Duration) bool {
	if c.file == nil {
		fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
		if err != nil {
			return false
		}
		c.fd, c.file = fd, os.NewFile(uintptr(fd), "timerfd")
	}
	// Zero would disarm the timer.
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
