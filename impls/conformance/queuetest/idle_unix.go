//go:build unix

package queuetest

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

func init() {
	checks = append(checks, check{name: "no time of the processor when idle", applies: func(b bed) bool { return ours(b) && b.Capacity <= 1 }, run: idleCost})
}

// idleCost measures what a queue costs while its consumer, and where it is
// bounded its producers, sleep. The bound tells spinning from sleeping, nothing
// finer.
func idleCost(t *testing.T, b bed) {
	const idle, most = 200 * time.Millisecond, 20 * time.Millisecond
	empty, full := b.new(t), b.new(t)
	returned := make(chan struct{}, 3)
	go func() { _ = empty.take(); returned <- struct{}{} }()
	producers := 0
	if bounded(b) {
		producers = 2
		for i := range b.Capacity {
			full.do(full.queue.Add(pod(fmt.Sprintf("k%d", i), i)))
		}
		for range producers {
			go func() { _ = full.queue.Add(pod("late", 1)); returned <- struct{}{} }()
		}
	}
	// Whoever is about to sleep is given the time to.
	<-time.After(idle / 10)
	before := processorTime(t)
	<-time.After(idle)
	if used := processorTime(t) - before; used > most {
		t.Errorf("sleeping for %v took %v of the processor", idle, used)
	}
	empty.queue.Close()
	full.queue.Close()
	for range 1 + producers {
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
