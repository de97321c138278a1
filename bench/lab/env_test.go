package lab

import (
	"math"
	"testing"
	"testing/fstest"
	"time"
)

func files(m map[string]string) fstest.MapFS {
	out := fstest.MapFS{}
	for name, data := range m {
		out[name] = &fstest.MapFile{Data: []byte(data)}
	}
	return out
}

func TestCaptureEnv(t *testing.T) {
	root := files(map[string]string{
		"proc/cpuinfo":              "processor\t: 0\nmodel name\t: Some  CPU @ 2 GHz\nprocessor\t: 1\nmodel name\t: other\n",
		"proc/sys/kernel/osrelease": "6.8.0-test\n",
		"proc/loadavg":              "0.50 0.25 1.00 1/100 42\n",
		"proc/stat":                 "cpu  100 0 50 800 10 0 5 35 7 0\ncpu0 1 2 3\n",
		"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
	})
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	e := captureEnv(root, now, Build{Commit: "abc"}, nil)
	if e.CPU != "Some CPU @ 2 GHz" || e.Kernel != "6.8.0-test" || e.Governor != "performance" || e.Commit != "abc" {
		t.Errorf("%+v", e)
	}
	if e.Args == nil || len(e.LoadAverage) != 3 || e.LoadAverage[0] != 0.5 || e.Started != now || e.GOGC == "" {
		t.Errorf("%+v", e)
	}
	if e.Before == nil || *e.Before != (CPUTimes{Steal: 35, Total: 1000}) {
		t.Errorf("before %+v", e.Before)
	}
	root["proc/stat"].Data = []byte("cpu  150 0 50 820 10 0 5 65 7 0\n")
	e.finish(root)
	if e.StealShare == nil || *e.StealShare != 0.3 {
		t.Errorf("steal share %v, want 30 of 100 ticks", e.StealShare)
	}
}

func TestNothingToldIsLeftOut(t *testing.T) {
	for name, root := range map[string]fstest.MapFS{
		"no files": {},
		"junk": files(map[string]string{
			"proc/cpuinfo": "nothing", "proc/loadavg": "x y z", "proc/stat": "cpu a b c d e f g h i\n",
			"proc/self/cgroup": "junk\n", "sys/fs/cgroup/cgroup.controllers": "", "sys/fs/cgroup/cpu.max": "x",
		}),
	} {
		t.Run(name, func(t *testing.T) {
			e := captureEnv(root, time.Time{}, Build{}, nil)
			e.finish(root)
			if e.CPU != "" || e.LoadAverage != nil || e.Before != nil || e.StealShare != nil || e.Limits.MemoryBytes != nil || e.Limits.CPUs != nil {
				t.Errorf("%+v", e)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	const none = -1
	for name, tc := range map[string]struct {
		files   map[string]string
		version int
		memory  int64
		cpus    float64
	}{
		"version 2, own group": {map[string]string{
			"proc/self/cgroup": "0::/pod/x\n", "sys/fs/cgroup/cgroup.controllers": "cpu memory",
			"sys/fs/cgroup/pod/x/memory.max": "1048576\n", "sys/fs/cgroup/pod/x/cpu.max": "150000 100000\n",
		}, 2, 1 << 20, 1.5},
		"version 2, group hidden": {map[string]string{
			"proc/self/cgroup": "0::/pod/x\n", "sys/fs/cgroup/cgroup.controllers": "cpu memory",
			"sys/fs/cgroup/memory.max": "2097152\n", "sys/fs/cgroup/cpu.max": "max 100000\n",
		}, 2, 2 << 20, none},
		"version 1": {map[string]string{
			"proc/self/cgroup": "4:memory:/docker/y\n1:cpu,cpuacct:/\n",
			"sys/fs/cgroup/memory/docker/y/memory.limit_in_bytes": "4096\n",
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us":                  "50000\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
		}, 1, 4096, 0.5},
		"version 1, unlimited": {map[string]string{
			"proc/self/cgroup":                           "4:memory:/\n1:cpu:/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us":         "-1\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
		}, 1, none, none},
		"none": {map[string]string{}, 0, none, none},
	} {
		t.Run(name, func(t *testing.T) {
			got := limits(files(tc.files))
			memory, cpus := int64(none), float64(none)
			if got.MemoryBytes != nil {
				memory = *got.MemoryBytes
			}
			if got.CPUs != nil {
				cpus = *got.CPUs
			}
			if got.CgroupVersion != tc.version || memory != tc.memory || math.Abs(cpus-tc.cpus) > 1e-9 {
				t.Errorf("version %d, memory %d, cpus %v; want %d, %d, %v", got.CgroupVersion, memory, cpus, tc.version, tc.memory, tc.cpus)
			}
		})
	}
}
