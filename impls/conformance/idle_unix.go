//go:build unix

package conformance

import (
	"runtime"
	"syscall"
	"testing"
	"time"
)

// Idle fails if the process uses CPU time while all goroutines of the caller sleep. The bound
// detects spinning only. On systems without getrusage it does nothing.
func Idle(t *testing.T) {
	t.Helper()
	const idle, most, tries = 100 * time.Millisecond, 2500 * time.Microsecond, 5
	runtime.GC()
	<-time.After(idle / 10) // Goroutines that are about to sleep do so.
	used := most + 1
	for try := 0; try < tries && used > most; try++ {
		before := CPUTime()
		<-time.After(idle)
		used = CPUTime() - before
		t.Logf("idling for %v used %v of CPU time", idle, used)
	}
	if used > most {
		t.Errorf("idling for %v used more than %v of CPU time, %d times", idle, most, tries)
	}
}

// CPUTime returns the CPU time that the process has used, and 0 on systems without getrusage.
func CPUTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
