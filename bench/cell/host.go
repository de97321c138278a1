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

// Limits are the limits of a container's control group. A nil field means no visible limit.
type Limits struct {
	CgroupVersion int      `json:"cgroupVersion,omitempty"` // 1 or 2; 0 if unknown
	MemoryBytes   *int64   `json:"memoryBytes,omitempty"`   // memory limit
	CPUs          *float64 `json:"cpus,omitempty"`          // CPU quota over period
}

const mount = "sys/fs/cgroup" // mount point of the control groups

// readGroups reads the paths of the process's control groups by controller, "" for version 2; nil
// if there are none. Each line of /proc/self/cgroup is hierarchy:controllers:path; see cgroups(7).
func readGroups(root fs.FS) map[string]string {
	data, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return nil
	}
	g := map[string]string{}
	for line := range strings.Lines(string(data)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for controller := range strings.SplitSeq(parts[1], ",") {
			g[controller] = parts[2]
		}
	}
	return g
}

// unified reports whether version 2 is mounted.
func unified(root fs.FS) bool {
	_, err := fs.Stat(root, mount+"/cgroup.controllers")
	return err == nil
}

// ReadLimits reads the limits of the process's control group. Most containers hide it;
// then ReadLimits reads the group mounted as root.
func ReadLimits(root fs.FS) Limits {
	g := readGroups(root)
	if g == nil {
		return Limits{}
	}
	read := func(mount, group, file string) string {
		return cmp.Or(FirstLine(root, path.Join(mount, group, file)), FirstLine(root, path.Join(mount, file)))
	}
	if unified(root) {
		quota, period, _ := strings.Cut(read(mount, g[""], "cpu.max"), " ")
		return Limits{CgroupVersion: 2, MemoryBytes: memoryLimit(read(mount, g[""], "memory.max")), CPUs: cpuLimit(quota, period)}
	}
	l := Limits{
		MemoryBytes: memoryLimit(read(mount+"/memory", g["memory"], "memory.limit_in_bytes")),
		CPUs:        cpuLimit(read(mount+"/cpu", g["cpu"], "cpu.cfs_quota_us"), read(mount+"/cpu", g["cpu"], "cpu.cfs_period_us")),
	}
	if _, err := fs.Stat(root, mount+"/memory"); err == nil {
		l.CgroupVersion = 1
	}
	return l
}

// memoryLimit parses a limit in bytes. Version 2 writes "max" for no limit, version 1
// the largest multiple of a page.
func memoryLimit(s string) *int64 {
	const none = math.MaxInt64 - 1<<20
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil || v >= none {
		return nil
	}
	return &v
}

// cpuLimit returns quota over period. For no limit, version 2 writes "max" and version 1 writes -1.
func cpuLimit(quota, period string) *float64 {
	q, err1 := strconv.ParseFloat(quota, 64)
	p, err2 := strconv.ParseFloat(period, 64)
	if err1 != nil || err2 != nil || q <= 0 || p <= 0 {
		return nil
	}
	cpus := q / p
	return &cpus
}

// Throttled returns the total time that the CPU quota throttled the process (cpu.stat).
// It adds up the process's control group and all visible parents, whose quotas throttle
// it, too. It returns 0 if unknown.
func Throttled(root fs.FS) time.Duration {
	g := readGroups(root)
	hierarchy, group, key, unit := mount, g[""], "throttled_usec", time.Microsecond
	if !unified(root) {
		hierarchy, group, key, unit = mount+"/cpu", g["cpu"], "throttled_time", time.Nanosecond
	}
	var sum time.Duration
	for dir := path.Join("/", group); ; dir = path.Dir(dir) {
		v, err := strconv.ParseInt(field(root, path.Join(hierarchy, dir, "cpu.stat"), key, " "), 10, 64)
		if err == nil && v > 0 && v < math.MaxInt64/int64(unit) {
			sum += time.Duration(v) * unit
		}
		if dir == "/" {
			return sum
		}
	}
}
