package cell

import (
	"cmp"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"
	"time"
)

// Limits are the limits of a container's control group. A nil field means no visible
// limit.
type Limits struct {
	CgroupVersion int      `json:"cgroupVersion,omitempty"` // 1 or 2; 0 if unknown
	MemoryBytes   *int64   `json:"memoryBytes,omitempty"`   // memory limit
	CPUs          *float64 `json:"cpus,omitempty"`          // CPU quota over period
}

const mount = "sys/fs/cgroup" // mount point of the control groups

// groups are the paths of the process's control groups, by controller. The key is ""
// for version 2.
type groups map[string]string

// readGroups reads /proc/self/cgroup; nil if there is none. Each line is
// hierarchy:controllers:path. Version 2 has hierarchy 0 and no controllers. See
// cgroups(7).
func readGroups(root fs.FS) groups {
	data, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return nil
	}
	g := groups{}
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

// cpuLimit returns quota over period. For no limit, version 2 writes "max" and version
// 1 writes -1.
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
