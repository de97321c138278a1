package lab

import (
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
	if e.Before == nil || *e.Before != (cell.CPUTimes{Steal: 35, Total: 1000}) {
		t.Errorf("before %+v", e.Before)
	}
	root["proc/stat"].Data = []byte("cpu  150 0 50 820 10 0 5 65 7 0\n")
	e.finish(root)
	if e.StealShare == nil || *e.StealShare != 0.3 {
		t.Errorf("steal share %v, want 30 of 100 ticks", e.StealShare)
	}
}
