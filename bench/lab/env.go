package lab

import (
	"io/fs"
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"time"

	"watchlab/bench/cell"
)

// Build says which program measured.
type Build struct {
	// Commit is the revision it was built from, empty where unknown.
	Commit string `json:"commit,omitempty"`
	Dirty  bool   `json:"dirty"`
}

// Revision returns the commit, with -dirty where the source differed from it.
func (b Build) Revision() string {
	revision := b.Commit
	if revision == "" {
		revision = "unknown"
	}
	if b.Dirty {
		revision += "-dirty"
	}
	return revision
}

// Env is where a run took place; its JSON form is env.json. What the system
// does not tell is left out.
type Env struct {
	Started time.Time   `json:"started"`
	Resumed []time.Time `json:"resumed,omitempty"` // when the run was resumed
	Args    []string    `json:"args"`
	Build
	GoVersion   string         `json:"goVersion"`
	GOOS        string         `json:"goos"`
	GOARCH      string         `json:"goarch"`
	CPU         string         `json:"cpu,omitempty"`
	Cores       int            `json:"cores"`
	GOMAXPROCS  int            `json:"gomaxprocs"`
	GOGC        string         `json:"gogc"` // in force
	GOMEMLIMIT  *int64         `json:"gomemlimit,omitempty"`
	Kernel      string         `json:"kernel,omitempty"`
	Governor    string         `json:"governor,omitempty"`
	LoadAverage []float64      `json:"loadAverage,omitempty"` // over 1, 5 and 15 minutes
	Limits      cell.Limits    `json:"limits"`                // of the control group
	Before      *cell.CPUTimes `json:"cpuTimesBefore,omitempty"`
	After       *cell.CPUTimes `json:"cpuTimesAfter,omitempty"`
	StealShare  *float64       `json:"stealShare,omitempty"` // of the CPU time during the run
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
		CPU:         cell.CPUModel(root),
		Cores:       runtime.NumCPU(),
		GOMAXPROCS:  runtime.GOMAXPROCS(0),
		GOGC:        gogc(),
		Kernel:      cell.FirstLine(root, "proc/sys/kernel/osrelease"),
		Governor:    cell.FirstLine(root, "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
		LoadAverage: cell.LoadAverage(root),
		Limits:      cell.ReadLimits(root),
		Before:      cell.ReadCPUTimes(root),
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
	e.After = cell.ReadCPUTimes(root)
	if share, ok := cell.StealShare(e.Before, e.After); ok {
		e.StealShare = &share
	}
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
