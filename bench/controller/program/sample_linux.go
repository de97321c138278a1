package program

import (
	"fmt"
	"os"
	"time"

	"github.com/prometheus/procfs"

	"watchlab/bench/controller/record"
)

// Sample returns the sum over all processes of the program's group. CPU includes that of children that
// have ended. It is false after the end of the program.
func (p *Program) Sample() (record.Sample, bool) {
	select {
	case <-p.exited: // The group's id may be another group's.
		return record.Sample{}, false
	default:
	}
	processes, err := procfs.AllProcs()
	if err != nil {
		return record.Sample{}, false
	}
	s, found := record.Sample{Client: p.client}, false
	for _, process := range processes {
		stat, err := process.Stat()
		if err != nil || stat.PGRP != p.Pid() {
			continue // It may have ended since.
		}
		found = true
		ticks := int(stat.UTime+stat.STime) + stat.CUTime + stat.CSTime
		s.CPU += time.Duration(ticks) * (time.Second / ticksPerSecond)
		s.RSS += int64(stat.RSS) * int64(os.Getpagesize())
		if status, err := process.NewStatus(); err == nil {
			s.Memory += int64(status.VmRSS) - int64(status.RssFile)
			s.Peak += int64(status.VmHWM) - int64(status.RssFile)
		}
		if files, err := process.FileDescriptorsLen(); err == nil {
			s.Files += files
		}
	}
	return s, found
}

// ResetPeak makes the present memory the peak of the process (proc_pid_clear_refs(5)).
func (p *Program) ResetPeak() error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.Pid()), []byte("5"), 0)
}

const ticksPerSecond = 100 // USER_HZ of all platforms of Go
