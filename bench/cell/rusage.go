package cell

import (
	"syscall"
	"time"
)

// rusage holds the system's counters for all threads of the process.
type rusage struct {
	cpu              time.Duration // user and system time
	switches, faults int64         // context switches; page faults
}

func readRusage() rusage {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // It fails for other arguments only.
	return rusage{
		cpu:      time.Duration(u.Utime.Nano() + u.Stime.Nano()),
		switches: int64(u.Nvcsw) + int64(u.Nivcsw),  //nolint:unconvert // int32 on some.
		faults:   int64(u.Minflt) + int64(u.Majflt), //nolint:unconvert // int32 on some.
	}
}
