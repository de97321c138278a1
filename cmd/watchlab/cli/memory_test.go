package cli

import (
	"path/filepath"
	"strings"
	"testing"

	"watchlab/bench/experiment"
	"watchlab/bench/lab"
	"watchlab/bench/pipeline"
)

// TestMemory: each play has its own process and reports its memory. Errors of the
// process have a cause.
func TestMemory(t *testing.T) {
	t.Setenv(asCommand, "1")
	dir := filepath.Join(t.TempDir(), "out")
	code, _, errs := call(t, with(small, "--impl", "cond,"+lossy, "--memory", "--out", dir)...)
	if code != exitInvalid || !strings.Contains(errs, lossy+"/") || !strings.Contains(errs, "invalid: lost") {
		t.Fatalf("exit code %d, stderr %q", code, errs)
	}
	o := must(lab.Load(dir))(t)
	if !o.Fresh {
		t.Error("the outcome doesn't say that each play had a process of its own")
	}
	for _, c := range o.Comparisons[0].Cells {
		if c.Label("impl") == lossy {
			continue
		}
		if c.Verdict.Status == lab.Invalid || len(c.Rounds) != 1 {
			t.Errorf("%s: %s", c.BenchName(), c.Verdict)
			continue
		}
		m := c.Rounds[0].Result.Memory
		if m == nil || m.HeapBytes == 0 || m.PeakHeapBytes < m.HeapBytes {
			t.Errorf("%s: memory %+v", c.BenchName(), m)
		}
		if len(c.Latency) == 0 || c.Latency[0].Count == 0 {
			t.Errorf("%s: no latencies came over", c.BenchName())
		}
	}
}

// TestMemoryOfAProcessThatFails: the verdict has the process's output.
func TestMemoryOfAProcessThatFails(t *testing.T) {
	t.Setenv(asCommand, "1")
	_, err := experiment.Spec{Config: pipeline.Config{Family: "nobody"}}.PlayInProcess(t.Context(), "Queue/impl=x")
	if err == nil || !strings.Contains(err.Error(), "returned no result") || !strings.Contains(err.Error(), `"nobody" is not one of`) {
		t.Errorf("error %v", err)
	}
	_, err = experiment.Spec{Config: pipeline.Config{Family: "queue", Events: 3000}, Storm: experiment.Storm{Name: tiny}}.PlayInProcess(t.Context(), "Queue/impl=x")
	if err == nil || !strings.Contains(err.Error(), "there is no cell Queue/impl=x") {
		t.Errorf("error %v", err)
	}
}
