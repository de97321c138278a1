package cell_test

import (
	"math"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"watchlab/bench/cell"
)

func files(m map[string]string) fstest.MapFS {
	out := fstest.MapFS{}
	for name, data := range m {
		out[name] = &fstest.MapFile{Data: []byte(data)}
	}
	return out
}

func TestMachine(t *testing.T) {
	root := files(map[string]string{
		"proc/cpuinfo":     "processor\t: 0\nmodel name\t: Some  CPU @ 2 GHz\nprocessor\t: 1\nmodel name\t: other\n",
		"proc/loadavg":     "0.50 0.25 1.00 1/100 42\n",
		"proc/stat":        "cpu  100 0 50 800 10 0 5 35 7 0\ncpu0 1 2 3\n",
		"proc/self/status": "Name:\tx\nVmPeak:\t  999 kB\nVmHWM:\t   12345 kB\nVmRSS:\t   100 kB\n",
	})
	if got := cell.CPUModel(root); got != "Some CPU @ 2 GHz" {
		t.Errorf("model %q", got)
	}
	if got := cell.LoadAverage(root); !slices.Equal(got, []float64{0.5, 0.25, 1}) {
		t.Errorf("load %v", got)
	}
	before := cell.ReadCPUTimes(root)
	if before == nil || *before != (cell.CPUTimes{Steal: 35, Total: 1000}) {
		t.Errorf("times %+v", before)
	}
	if share, ok := cell.StealShare(before, &cell.CPUTimes{Steal: 65, Total: 1100}); !ok || share != 0.3 {
		t.Errorf("share %v, %v; want 30 of 100 ticks", share, ok)
	}
	for _, after := range []*cell.CPUTimes{nil, before, {Steal: 30, Total: 1100}, {Steal: 36, Total: 1019}} {
		if share, ok := cell.StealShare(before, after); ok {
			t.Errorf("share %v until %+v, want unknown", share, after)
		}
	}
	if got, ok := cell.PeakRSS(root); !ok || got != 12345<<10 {
		t.Errorf("peak %d, %v", got, ok)
	}
}

func TestUnknownIsOmitted(t *testing.T) {
	for name, root := range map[string]fstest.MapFS{
		"no files": {},
		"junk": files(map[string]string{
			"proc/cpuinfo": "nothing", "proc/loadavg": "x y z", "proc/stat": "cpu a b c d e f g h i\n",
			"proc/self/cgroup": "junk\n", "sys/fs/cgroup/cgroup.controllers": "", "sys/fs/cgroup/cpu.max": "x",
			"proc/self/status": "VmHWM: much\n", "sys/fs/cgroup/cpu.stat": "throttled_usec -5\nthrottled_usec\n",
		}),
		"too large": files(map[string]string{
			"proc/self/status": "VmHWM: 18446744073709551615 kB\n", "proc/self/cgroup": "0::/\n",
			"sys/fs/cgroup/cgroup.controllers": "", "sys/fs/cgroup/cpu.stat": "throttled_usec 9223372036854775807\n",
		}),
	} {
		t.Run(name, func(t *testing.T) {
			rss, ok := cell.PeakRSS(root)
			l := cell.ReadLimits(root)
			if cell.CPUModel(root) != "" || cell.LoadAverage(root) != nil || cell.ReadCPUTimes(root) != nil || ok || rss != 0 ||
				cell.Throttled(root) != 0 || l.MemoryBytes != nil || l.CPUs != nil {
				t.Errorf("rss %d, throttled %v, limits %+v, want all unknown", rss, cell.Throttled(root), l)
			}
		})
	}
}

// TestLimits: the limits and the throttled time of a control group of version 2.
func TestLimits(t *testing.T) {
	const none = -1
	for name, tc := range map[string]struct {
		files     map[string]string
		version   int
		memory    int64
		cpus      float64
		throttled time.Duration
	}{
		"version 2, own group": {map[string]string{
			"proc/self/cgroup": "0::/pod/x\n", "sys/fs/cgroup/cgroup.controllers": "cpu memory",
			"sys/fs/cgroup/pod/x/memory.max": "1048576\n", "sys/fs/cgroup/pod/x/cpu.max": "150000 100000\n",
			"sys/fs/cgroup/pod/x/cpu.stat": "usage_usec 9\nnr_throttled 2\nthrottled_usec 1500\n",
			"sys/fs/cgroup/pod/cpu.stat":   "throttled_usec 500\n",
			"sys/fs/cgroup/cpu.stat":       "usage_usec 9\n",
		}, 2, 1 << 20, 1.5, 2 * time.Millisecond},
		"version 2, group hidden": {map[string]string{
			"proc/self/cgroup": "0::/pod/x\n", "sys/fs/cgroup/cgroup.controllers": "cpu memory",
			"sys/fs/cgroup/memory.max": "2097152\n", "sys/fs/cgroup/cpu.max": "max 100000\n", "sys/fs/cgroup/cpu.stat": "throttled_usec 700\n",
		}, 2, 2 << 20, none, 700 * time.Microsecond},
		"version 1": {map[string]string{
			"proc/self/cgroup": "4:memory:/\n1:cpu:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "4096\n",
		}, 0, none, none, 0},
		"none": {map[string]string{}, 0, none, none, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := cell.ReadLimits(files(tc.files))
			memory, cpus := int64(none), float64(none)
			if got.MemoryBytes != nil {
				memory = *got.MemoryBytes
			}
			if got.CPUs != nil {
				cpus = *got.CPUs
			}
			throttled := cell.Throttled(files(tc.files))
			if got.CgroupVersion != tc.version || memory != tc.memory || math.Abs(cpus-tc.cpus) > 1e-9 || throttled != tc.throttled {
				t.Errorf("version %d, memory %d, cpus %v, throttled %v; want %+v", got.CgroupVersion, memory, cpus, throttled, tc)
			}
		})
	}
}
