package cell

// The functions of this file read the state of a Linux machine, of the process and of its
// control group. All take the root of a file system, so that a test can provide one. They
// leave out what they cannot read: no figure depends on it.

import (
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// Root is the root of the machine's own file system.
func Root() fs.FS { return os.DirFS("/") }

// FirstLine returns the first line of a file, without the spaces around it; "" where it
// can't be read.
func FirstLine(root fs.FS, name string) string {
	data, err := fs.ReadFile(root, name)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimSpace(line)
}

// field returns what stands behind a key in a file of lines "key separator value";
// "" where there is none.
func field(root fs.FS, name, key, separator string) string {
	data, err := fs.ReadFile(root, name)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		k, value, ok := strings.Cut(line, separator)
		if ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// CPUModel returns the first processor's name.
func CPUModel(root fs.FS) string {
	return strings.Join(strings.Fields(field(root, "proc/cpuinfo", "model name", ":")), " ")
}

// LoadAverage returns the load over 1, 5 and 15 minutes; nil where it isn't told.
func LoadAverage(root fs.FS) []float64 {
	fields := strings.Fields(FirstLine(root, "proc/loadavg"))
	if len(fields) < 3 {
		return nil
	}
	out := make([]float64, 3)
	for i := range out {
		v, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			return nil
		}
		out[i] = v
	}
	return out
}

// CPUTimes are the first line of /proc/stat, in ticks (usually 10 ms) since the
// machine booted, summed over its cores.
type CPUTimes struct {
	Steal uint64 `json:"steal"`
	Total uint64 `json:"total"`
}

// ReadCPUTimes reads "cpu user nice system idle iowait irq softirq steal …"; see
// proc_stat(5). Guest times after steal are part of user and nice already. It
// returns nil where they aren't told.
func ReadCPUTimes(root fs.FS) *CPUTimes {
	const steal = 8
	fields := strings.Fields(FirstLine(root, "proc/stat"))
	if len(fields) <= steal || fields[0] != "cpu" {
		return nil
	}
	var t CPUTimes
	for i := 1; i <= steal; i++ {
		v, err := strconv.ParseUint(fields[i], 10, 64)
		if err != nil {
			return nil
		}
		t.Total += v
		if i == steal {
			t.Steal = v
		}
	}
	return &t
}

// fewestTicks are needed between two readings for a share: of fewer, a single one
// would be more than any bound that one could set.
const fewestTicks = 20

// StealShare returns which part of the machine's CPU time the hypervisor gave to
// others between two readings; ok is false where that can't be said, such as of
// less than a tenth of a second on two cores.
func StealShare(before, after *CPUTimes) (share float64, ok bool) {
	if before == nil || after == nil || after.Total < before.Total+fewestTicks || after.Steal < before.Steal {
		return 0, false
	}
	return float64(after.Steal-before.Steal) / float64(after.Total-before.Total), true
}

// PeakRSS returns the most that was ever resident of the process, in bytes (VmHWM;
// see proc_pid_status(5)), since it began or since [ResetPeakRSS].
func PeakRSS(root fs.FS) (bytes uint64, ok bool) {
	number, unit, _ := strings.Cut(field(root, "proc/self/status", "VmHWM", ":"), " ")
	v, err := strconv.ParseUint(number, 10, 54)
	if err != nil || unit != "kB" {
		return 0, false
	}
	return v << 10, true
}

// ResetPeakRSS makes what is resident now the process's peak. Linux allows it
// since 4.0, except in some containers.
func ResetPeakRSS() error { return os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) }
