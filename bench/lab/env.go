package lab

import (
	"cmp"
	"math"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"watchlab/bench/cell"
)

// Build identifies the measuring program.
type Build struct {
	Commit string `json:"commit,omitempty"` // revision of the source; empty if unknown
	Dirty  bool   `json:"dirty"`            // the source differed from Commit
}

// Revision returns the commit, with the suffix "-dirty" if the source differed from it.
func (b Build) Revision() string {
	revision := cmp.Or(b.Commit, "unknown")
	if b.Dirty {
		revision += "-dirty"
	}
	return revision
}

// ThisBuild identifies this program: by the revision that it was linked with, which ends in -dirty if the tree
// differed, else by the Go command's build information.
func ThisBuild(linked string) Build {
	if linked != "" {
		revision, dirty := strings.CutSuffix(linked, "-dirty")
		return Build{Commit: revision, Dirty: dirty}
	}
	var b Build
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Commit = s.Value[:min(len(s.Value), 12)]
			case "vcs.modified":
				b.Dirty = s.Value == "true"
			}
		}
	}
	return b
}

// Env is the environment of a run; its JSON form is env.json. Fields that the system
// does not report are empty.
type Env struct {
	Started time.Time   `json:"started"`           // start of the run
	Resumed []time.Time `json:"resumed,omitempty"` // start of each resumption after an interruption
	Args    []string    `json:"args"`              // of the program, without its path
	Build
	GoVersion   string         `json:"goVersion"`                // version of Go that built the program
	GOOS        string         `json:"goos"`                     // operating system of the program
	GOARCH      string         `json:"goarch"`                   // architecture of the program
	CPU         string         `json:"cpu,omitempty"`            // model of the first processor
	Processes   int            `json:"processes,omitempty"`      // that played the rounds one after the other; 0 in old files
	Cores       int            `json:"cores"`                    // visible to the process
	GOMAXPROCS  int            `json:"gomaxprocs"`               // used by the process
	GOGC        string         `json:"gogc"`                     // in force, in percent; "off" for none
	GCNsPerByte float64        `json:"gcNsPerByte,omitempty"`    // price of an allocated byte in the last process; 0 if unknown
	GCPriceOf   string         `json:"gcPriceOf,omitempty"`      // how it was measured
	GOMEMLIMIT  *int64         `json:"gomemlimit,omitempty"`     // in bytes; nil for none
	Kernel      string         `json:"kernel,omitempty"`         // release, such as "6.8.0"
	Governor    string         `json:"governor,omitempty"`       // of the first core's frequency, such as "performance"
	LoadAverage []float64      `json:"loadAverage,omitempty"`    // over 1, 5 and 15 minutes at the start
	Limits      cell.Limits    `json:"limits"`                   // of the control group
	Before      *cell.CPUTimes `json:"cpuTimesBefore,omitempty"` // CPU times of the machine at the start, or at the last such resumption
	After       *cell.CPUTimes `json:"cpuTimesAfter,omitempty"`  // CPU times at the end; nil until then
	StealShare  *float64       `json:"stealShare,omitempty"`     // share of it that the host took; nil until the end
	IgnoreHost  bool           `json:"ignoreHost,omitempty"`     // the verdicts omit steal and throttling
}

// CaptureEnv reads the environment of a run that starts now. It leaves out what it cannot read, as no figure depends
// on it.
func CaptureEnv(now time.Time, build Build, args []string) Env {
	root := cell.Root()
	env := Env{
		Started:     now,
		Args:        RedactAll(args),
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
	// A negative argument reads the limit without a change.
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		env.GOMEMLIMIT = &limit
	}
	price := cell.MeasureGCPrice()
	env.GCNsPerByte, env.GCPriceOf = price.NsPerByte, price.Measured
	return env
}

func (e *Env) finish() {
	e.After = cell.ReadCPUTimes(cell.Root())
	if share, ok := cell.StealShare(e.Before, e.After); ok {
		e.StealShare = &share
	}
}

// gogc returns the percentage in force, set by the environment or the program.
func gogc() string {
	percent := cell.RuntimeMetric("/gc/gogc:percent")
	if percent == math.MaxUint64 {
		return "off"
	}
	return strconv.FormatUint(percent, 10)
}
