package lab

import (
	"io/fs"
	"math"
	"os"
	"path"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"
)

// Build says which program measured.
type Build struct {
	// Commit is the revision it was built from, empty where unknown.
	Commit string `json:"commit,omitempty"`
	// Dirty is true where the source differed from that revision.
	Dirty bool `json:"dirty"`
}

// Env is where a run took place; its JSON form is env.json. What the system
// does not tell is left out.
type Env struct {
	// Started is when the run began.
	Started time.Time `json:"started"`
	// Args are the program's arguments, without its path.
	Args []string `json:"args"`
	Build
	// GoVersion, GOOS and GOARCH of the program.
	GoVersion string `json:"goVersion"`
	GOOS      string `json:"goos"`
	GOARCH    string `json:"goarch"`
	// CPU is the processor's model, Cores how many are visible to the process,
	// GOMAXPROCS how many it uses.
	CPU        string `json:"cpu,omitempty"`
	Cores      int    `json:"cores"`
	GOMAXPROCS int    `json:"gomaxprocs"`
	// GOGC is the garbage collector's percentage as in force ("off" for none),
	// GOMEMLIMIT its memory limit in bytes, nil for none.
	GOGC       string `json:"gogc"`
	GOMEMLIMIT *int64 `json:"gomemlimit,omitempty"`
	// Kernel release, such as "6.8.0".
	Kernel string `json:"kernel,omitempty"`
	// Governor of the first core's frequency, such as "performance".
	Governor string `json:"governor,omitempty"`
	// LoadAverage over 1, 5 and 15 minutes when the run began: other load on
	// the machine.
	LoadAverage []float64 `json:"loadAverage,omitempty"`
	// Limits of the container.
	Limits Limits `json:"limits"`
	// Before and After are the machine's CPU times around the run; After is nil
	// until it ends.
	Before *CPUTimes `json:"cpuTimesBefore,omitempty"`
	After  *CPUTimes `json:"cpuTimesAfter,omitempty"`
	// StealShare is which part of the machine's CPU time the host took away
	// during the run; nil until it ends.
	StealShare *float64 `json:"stealShare,omitempty"`
}

// Limits are what a container's control group allows; nil means no limit is
// set, or none is visible.
type Limits struct {
	// CgroupVersion is 1 or 2, 0 where there is none.
	CgroupVersion int `json:"cgroupVersion,omitempty"`
	// MemoryBytes that may be used.
	MemoryBytes *int64 `json:"memoryBytes,omitempty"`
	// CPUs that may be used, as quota over period.
	CPUs *float64 `json:"cpus,omitempty"`
}

// CPUTimes are the first line of /proc/stat, in ticks (usually 10 ms) since the
// machine booted, summed over its cores.
type CPUTimes struct {
	Steal uint64 `json:"steal"`
	Total uint64 `json:"total"`
}

// captureEnv reads the environment. root is the file system's root; what
// cannot be read is left out, as no figure depends on it.
func captureEnv(root fs.FS, now time.Time, build Build, args []string) Env {
	env := Env{
		Started:     now,
		Args:        args,
		Build:       build,
		GoVersion:   runtime.Version(),
		GOOS:        runtime.GOOS,
		GOARCH:      runtime.GOARCH,
		CPU:         cpuModel(root),
		Cores:       runtime.NumCPU(),
		GOMAXPROCS:  runtime.GOMAXPROCS(0),
		GOGC:        gogc(),
		Kernel:      readLine(root, "proc/sys/kernel/osrelease"),
		Governor:    readLine(root, "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
		LoadAverage: loadAverage(root),
		Limits:      limits(root),
		Before:      cpuTimes(root),
	}
	// A negative limit only asks for the one in force.
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		env.GOMEMLIMIT = &limit
	}
	if env.Args == nil {
		env.Args = []string{}
	}
	return env
}

// finish reads what is known at the end only.
func (e *Env) finish(root fs.FS) {
	e.After = cpuTimes(root)
	if e.Before == nil || e.After == nil || e.After.Total <= e.Before.Total || e.After.Steal < e.Before.Steal {
		return
	}
	share := float64(e.After.Steal-e.Before.Steal) / float64(e.After.Total-e.Before.Total)
	e.StealShare = &share
}

func hostRoot() fs.FS { return os.DirFS("/") }

func readLine(root fs.FS, name string) string {
	data, err := fs.ReadFile(root, name)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimSpace(line)
}

func cpuModel(root fs.FS) string {
	data, err := fs.ReadFile(root, "proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		key, value, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(key) == "model name" {
			return strings.Join(strings.Fields(value), " ")
		}
	}
	return ""
}

// gogc returns the percentage in force, whether set by the environment or by
// the program.
func gogc() string {
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return ""
	}
	percent := sample[0].Value.Uint64()
	if percent == math.MaxUint64 {
		return "off"
	}
	return strconv.FormatUint(percent, 10)
}

func loadAverage(root fs.FS) []float64 {
	fields := strings.Fields(readLine(root, "proc/loadavg"))
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

// cpuTimes reads "cpu user nice system idle iowait irq softirq steal …"; see
// proc_stat(5). Guest times after steal are part of user and nice already.
func cpuTimes(root fs.FS) *CPUTimes {
	const steal = 8
	fields := strings.Fields(readLine(root, "proc/stat"))
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

// limits reads the limits of the process's own control group and, where that
// is hidden as it is inside most containers, of the one mounted as root.
func limits(root fs.FS) Limits {
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return Limits{}
	}
	// Each line is hierarchy:controllers:path; version 2 has 0 and no
	// controllers. See cgroups(7).
	paths := map[string]string{}
	for line := range strings.Lines(string(groups)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for controller := range strings.SplitSeq(parts[1], ",") {
			paths[controller] = parts[2]
		}
	}
	read := func(mount, group, file string) string {
		for _, dir := range []string{path.Join(mount, group), mount} {
			if line := readLine(root, path.Join(dir, file)); line != "" {
				return line
			}
		}
		return ""
	}
	const mount = "sys/fs/cgroup"
	if _, err := fs.Stat(root, mount+"/cgroup.controllers"); err == nil {
		l := Limits{CgroupVersion: 2, MemoryBytes: memoryLimit(read(mount, paths[""], "memory.max"))}
		if quota, period, ok := strings.Cut(read(mount, paths[""], "cpu.max"), " "); ok {
			l.CPUs = cpuLimit(quota, period)
		}
		return l
	}
	l := Limits{MemoryBytes: memoryLimit(read(mount+"/memory", paths["memory"], "memory.limit_in_bytes"))}
	l.CPUs = cpuLimit(read(mount+"/cpu", paths["cpu"], "cpu.cfs_quota_us"), read(mount+"/cpu", paths["cpu"], "cpu.cfs_period_us"))
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
