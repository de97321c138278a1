package cell

import (
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"
	"time"
)

// Limits are what a container's control group allows; nil means no limit is
// set, or none is visible.
type Limits struct {
	CgroupVersion int      `json:"cgroupVersion,omitempty"`
	MemoryBytes   *int64   `json:"memoryBytes,omitempty"`
	CPUs          *float64 `json:"cpus,omitempty"`
}

// mount is where control groups stand.
const mount = "sys/fs/cgroup"

// groups are the paths of the process's control groups, by controller; "" is
// version 2's only one.
type groups map[string]string

// readGroups reads /proc/self/cgroup, in which each line is
// hierarchy:controllers:path; version 2 has 0 and no controllers. See cgroups(7).
// It returns nil where there is no such file.
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

// unified: version 2 is mounted.
func unified(root fs.FS) bool {
	_, err := fs.Stat(root, mount+"/cgroup.controllers")
	return err == nil
}

// ReadLimits reads the limits of the process's own control group and, where that
// is hidden as it is inside most containers, of the one mounted as root.
func ReadLimits(root fs.FS) Limits {
	g := readGroups(root)
	if g == nil {
		return Limits{}
	}
	read := func(mount, group, file string) string {
		for _, dir := range []string{path.Join(mount, group), mount} {
			if line := FirstLine(root, path.Join(dir, file)); line != "" {
				return line
			}
		}
		return ""
	}
	if unified(root) {
		l := Limits{CgroupVersion: 2, MemoryBytes: memoryLimit(read(mount, g[""], "memory.max"))}
		if quota, period, ok := strings.Cut(read(mount, g[""], "cpu.max"), " "); ok {
			l.CPUs = cpuLimit(quota, period)
		}
		return l
	}
	l := Limits{MemoryBytes: memoryLimit(read(mount+"/memory", g["memory"], "memory.limit_in_bytes"))}
	l.CPUs = cpuLimit(read(mount+"/cpu", g["cpu"], "cpu.cfs_quota_us"), read(mount+"/cpu", g["cpu"], "cpu.cfs_period_us"))
	if _, err := fs.Stat(root, mount+"/memory"); err == nil {
		l.CgroupVersion = 1
	}
	return l
}

// memoryLimit reads a limit; version 2 writes "max" for none, version 1 the
// largest multiple of a page.
func memoryLimit(s string) *int64 {
	const none = math.MaxInt64 - 1<<20
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil || v >= none {
		return nil
	}
	return &v
}

// cpuLimit is quota over period; version 2 writes "max" for none, version 1 -1.
func cpuLimit(quota, period string) *float64 {
	q, err1 := strconv.ParseFloat(quota, 64)
	p, err2 := strconv.ParseFloat(period, 64)
	if err1 != nil || err2 != nil || q <= 0 || p <= 0 {
		return nil
	}
	cpus := q / p
	return &cpus
}

// Throttled returns for how long the process's control group has been held back
// for its CPU quota (cpu.stat), and those around it, whose quota holds it back just
// as well: the sum over all that are visible. 0 where nothing is told.
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
