//go:build unix

package deltafifotest

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"
)

func init() {
	checks = append(checks, check{name: "no time of the processor when idle", applies: all(ours, idleBed), places: 1, run: idleCost})
}

// idleBed leaves out what makes no difference to one that sleeps.
func idleBed(b bed) bool {
	return b.path == byPop && !b.Known && !b.lent() && !b.latest() && b.Capacity <= 7
}

// idleCost measures what a queue costs while its consumer, and where it is
// bounded its producers, sleep. The bound tells spinning from sleeping, nothing
// finer.
func idleCost(t *testing.T, b bed) {
	const idle, most, tries = 200 * time.Millisecond, 5 * time.Millisecond, 3
	empty, full := b.new(t), b.new(t)
	returned := make(chan struct{}, 3)
	go func() { _ = empty.take(); returned <- struct{}{} }()
	if bounded(b) {
		for i := range b.Capacity {
			full.do(full.queue.Add(pod(fmt.Sprintf("k%d", i), i)))
		}
		for range 2 {
			go func() { _ = full.queue.Add(pod("late", 1)); returned <- struct{}{} }()
		}
	}
	// Whoever is about to sleep is given the time to.
	runtime.GC()
	<-time.After(idle / 10)
	used := most + 1
	for try := 0; try < tries && used > most; try++ {
		before := processorTime(t)
		<-time.After(idle)
		used = processorTime(t) - before
		t.Logf("sleeping for %v took %v of the processor", idle, used)
	}
	if used > most {
		t.Errorf("sleeping for %v took more than %v of the processor, %d times", idle, most, tries)
	}
	empty.queue.Close()
	full.queue.Close()
	<-returned
	if bounded(b) {
		<-returned
		<-returned
	}
}

func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
