package cell

// The functions of this file read the state of a Linux machine, of the process and of
// its control group. They take the root of a file system, so that tests can provide
// one. They skip unreadable values: no figure depends on them.

import (
	"cmp"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
	"time"
)

// Root returns the root of the machine's file system.
func Root() fs.FS { return os.DirFS("/") }

// FirstLine returns the first line of a file, trimmed; "" if the file cannot be read.
func FirstLine(root fs.FS, name string) string {
	data, _ := fs.ReadFile(root, name)
	line, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimSpace(line)
}

// field returns the value of a key in a file of lines "key separator value"; "" if there is none.
func field(root fs.FS, name, key, separator string) string {
	data, _ := fs.ReadFile(root, name)
	for line := range strings.Lines(string(data)) {
		k, value, ok := strings.Cut(line, separator)
		if ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// CPUModel returns the name of the first processor; "" if unknown.
func CPUModel(root fs.FS) string {
	return strings.Join(strings.Fields(field(root, "proc/cpuinfo", "model name", ":")), " ")
}

// LoadAverage returns the load over 1, 5 and 15 minutes; nil if unknown.
func LoadAverage(root fs.FS) []float64 {
	loads := make([]float64, 3)
	if _, err := fmt.Sscan(FirstLine(root, "proc/loadavg"), &loads[0], &loads[1], &loads[2]); err != nil {
		return nil
	}
	return loads
}

// CPUTimes are totals from the first line of /proc/stat, summed over all cores. They
// are in ticks (usually 10 ms) since boot.
type CPUTimes struct {
	Steal uint64 `json:"steal"` // taken by the hypervisor
	Total uint64 `json:"total"` // all times, idle included
}

// ReadCPUTimes reads "cpu user nice system idle iowait irq softirq steal …"; see
// proc_stat(5). It ignores the guest times after steal, because user and nice contain
// them. It returns nil if the values are unknown.
func ReadCPUTimes(root fs.FS) *CPUTimes {
	const steal = 8
	fields := strings.Fields(FirstLine(root, "proc/stat"))
	if len(fields) <= steal || fields[0] != "cpu" {
		return nil
	}
	var t CPUTimes
	for _, f := range fields[1 : steal+1] {
		v, err := strconv.ParseUint(f, 10, 64)
		if err != nil {
			return nil
		}
		t.Total, t.Steal = t.Total+v, v // steal is the last
	}
	return &t
}

// fewestTicks is the smallest difference of two readings for a share. With fewer ticks,
// a single tick of steal exceeds any useful limit.
const fewestTicks = 20

// StealShare returns the share of CPU time between two readings that the hypervisor took. ok is
// false if a reading is missing or they are less than 20 ticks apart: 0.1 s on two cores.
func StealShare(before, after *CPUTimes) (share float64, ok bool) {
	if before == nil || after == nil || after.Total < before.Total+fewestTicks || after.Steal < before.Steal {
		return 0, false
	}
	return float64(after.Steal-before.Steal) / float64(after.Total-before.Total), true
}

// PeakRSS returns the peak resident set of the process in bytes since its start or
// [ResetPeakRSS]. It reads VmHWM; see proc_pid_status(5).
func PeakRSS(root fs.FS) (bytes uint64, ok bool) {
	number, unit, _ := strings.Cut(field(root, "proc/self/status", "VmHWM", ":"), " ")
	v, err := strconv.ParseUint(number, 10, 54)
	if err != nil || unit != "kB" {
		return 0, false
	}
	return v << 10, true
}

// ResetPeakRSS sets the peak to the current resident set. It needs Linux 4.0, and some
// containers deny it.
func ResetPeakRSS() error { return os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) }

// Limits are the limits of a container's control group, version 2. A nil field means no visible limit.
type Limits struct {
	CgroupVersion int      `json:"cgroupVersion,omitempty"` // 2; 0 if unknown, or 1
	MemoryBytes   *int64   `json:"memoryBytes,omitempty"`   // memory limit
	CPUs          *float64 `json:"cpus,omitempty"`          // CPU quota over period
}

const mount = "sys/fs/cgroup" // mount point of the control groups

// group returns the path of the process's control group of version 2; false without one. It is in the line
// "0::path" of /proc/self/cgroup; see cgroups(7).
func group(root fs.FS) (string, bool) {
	if _, err := fs.Stat(root, mount+"/cgroup.controllers"); err != nil {
		return "", false
	}
	path := field(root, "proc/self/cgroup", "0", "::")
	return path, path != ""
}

// ReadLimits reads the limits of the process's control group. Most containers hide it;
// then ReadLimits reads the group mounted as root.
func ReadLimits(root fs.FS) Limits {
	own, ok := group(root)
	if !ok {
		return Limits{}
	}
	read := func(file string) string {
		return cmp.Or(FirstLine(root, path.Join(mount, own, file)), FirstLine(root, path.Join(mount, file)))
	}
	quota, period, _ := strings.Cut(read("cpu.max"), " ")
	return Limits{CgroupVersion: 2, MemoryBytes: memoryLimit(read("memory.max")), CPUs: cpuLimit(quota, period)}
}

// memoryLimit parses a limit in bytes, or "max" for none.
func memoryLimit(s string) *int64 {
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return nil
	}
	return &v
}

// cpuLimit returns quota over period. The quota is "max" for no limit.
func cpuLimit(quota, period string) *float64 {
	q, err1 := strconv.ParseFloat(quota, 64)
	p, err2 := strconv.ParseFloat(period, 64)
	if err1 != nil || err2 != nil || q <= 0 || p <= 0 {
		return nil
	}
	return new(q / p)
}

// Throttled returns the total time that the CPU quota throttled the process (cpu.stat).
// It adds up the process's control group and all visible parents, whose quotas throttle
// it, too. It returns 0 if unknown.
func Throttled(root fs.FS) time.Duration {
	own, _ := group(root)
	var sum time.Duration
	for dir := path.Join("/", own); ; dir = path.Dir(dir) {
		v, err := strconv.ParseInt(field(root, path.Join(mount, dir, "cpu.stat"), "throttled_usec", " "), 10, 64)
		if err == nil && v > 0 && v < math.MaxInt64/int64(time.Microsecond) {
			sum += time.Duration(v) * time.Microsecond
		}
		if dir == "/" {
			return sum
		}
	}
}
