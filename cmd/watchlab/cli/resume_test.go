package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"watchlab/bench/experiment"
	"watchlab/bench/lab"
	"watchlab/bench/pipeline"
	"watchlab/bench/pprof"
	"watchlab/bench/stats"
)

// TestResumeOfAKilledRun kills the command several times with a signal that cannot be
// caught and resumes its run. Each round is there once.
func TestResumeOfAKilledRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	const rounds = 4
	args := with(small, "--impl", "clientgo-realfifo-batch,cond,"+lossy, "--rounds", strconv.Itoa(rounds), "--pace", "max,20000", "--duration", "100ms", "--lag-budget", "1h", "--out", dir)
	kept := map[string]time.Time{}
	for _, lines := range []int{2, 3} {
		killAfter(t, dir, lines, args)
		args = []string{"run", "--resume", dir}
		o, err := lab.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		if o.Ended != nil {
			t.Fatal("the run was over before it was killed")
		}
		for _, c := range o.Comparisons[0].Cells {
			for _, r := range c.Rounds {
				keep(kept, c, r)
			}
		}
	}
	if len(kept) < 4 {
		t.Fatalf("%d rounds were finished before the kills", len(kept))
	}
	t.Setenv(asCommand, "1")
	code, out, errs := call(t, "run", "--resume", dir, "-o", "json")
	if code != exitInvalid || !strings.Contains(errs, lossy) {
		t.Fatalf("exit code %d, stderr %q", code, errs)
	}
	var printed lab.Outcome
	if err := json.Unmarshal([]byte(out), &printed); err != nil {
		t.Fatal(err)
	}
	o, err := lab.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if o.Ended == nil || o.Interrupted || len(o.Env.Resumed) != 2 {
		t.Errorf("ended %v, interrupted %v, %+v", o.Ended, o.Interrupted, o.Env)
	}
	file, err := os.Open(filepath.Join(dir, lab.BenchFile))
	if err != nil {
		t.Fatal(err)
	}
	bench, err := stats.Read(file, lab.BenchFile)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, c := range o.Comparisons[0].Cells {
		if strings.HasPrefix(c.Label("impl"), lossy) {
			if !c.Verdict.Failed() || len(c.Rounds) > 0 {
				t.Errorf("%s: %s with %d rounds", c.BenchName(), c.Verdict, len(c.Rounds))
			}
			continue
		}
		if len(c.Rounds) != rounds {
			t.Errorf("%s has %d rounds, want %d", c.BenchName(), len(c.Rounds), rounds)
		}
		if n := len(bench.Samples[c.BenchName()][stats.UnitEventsPerSec]); n != rounds {
			t.Errorf("bench.txt has %d lines of %s, want %d", n, c.BenchName(), rounds)
		}
		var count uint64
		for i, r := range c.Rounds {
			if r.Round != i+1 {
				t.Errorf("%s: round %d is in place %d", c.BenchName(), r.Round, i)
			}
			if started, ok := kept[roundKey(c, r)]; ok {
				found++
				if !started.Equal(r.Started) {
					t.Errorf("%s: round %d was finished, and played again", c.BenchName(), r.Round)
				}
			}
			if len(r.Result.Latency) > 0 {
				count += r.Result.Latency[0].Count
			}
		}
		if len(c.Latency) > 0 && c.Latency[0].Count != count {
			t.Errorf("%s: %d latencies in all, %d in its rounds", c.BenchName(), c.Latency[0].Count, count)
		}
	}
	if found == 0 {
		t.Error("no round that was finished before a kill was found again")
	}
	if _, err := os.Stat(filepath.Join(dir, lab.ReportFile)); err != nil {
		t.Error(err)
	}
}

func roundKey(c lab.CellResult, r lab.Round) string {
	data, _ := json.Marshal(r.Round) // A number is what it takes.
	return c.BenchName() + "#" + string(data)
}

func keep(kept map[string]time.Time, c lab.CellResult, r lab.Round) {
	if _, ok := kept[roundKey(c, r)]; !ok {
		kept[roundKey(c, r)] = r.Started
	}
}

// killAfter runs the command in a new process and kills it after a number of new lines
// in bench.txt.
func killAfter(t *testing.T, dir string, more int, args []string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	lines := func() int {
		data, _ := os.ReadFile(filepath.Join(dir, lab.BenchFile)) // None at first.
		return bytes.Count(data, []byte("\nBenchmark"))
	}
	want := lines() + more
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := make(chan string)
	go func() {
		defer close(said)
		for in := bufio.NewScanner(stderr); in.Scan(); {
			said <- in.Text()
		}
	}()
	var text []string
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for lines() < want {
		select {
		case line, ok := <-said:
			if !ok {
				t.Fatalf("the command ended: %s", strings.Join(text, "\n"))
			}
			text = append(text, line) // its progress, if it takes more than a minute
		case <-tick.C:
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for range said {
	}
	if err := cmd.Wait(); err == nil {
		t.Fatal("the command was not killed")
	}
}

// TestMemory: each play has its own process and reports its memory. Errors of the
// process have a cause.
func TestMemory(t *testing.T) {
	t.Setenv(asCommand, "1")
	dir := filepath.Join(t.TempDir(), "out")
	code, _, errs := call(t, with(small, "--impl", "cond,"+lossy, "--memory", "--out", dir)...)
	if code != exitInvalid || !strings.Contains(errs, lossy+"/") || !strings.Contains(errs, "invalid: lost") {
		t.Fatalf("exit code %d, stderr %q", code, errs)
	}
	o, err := lab.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
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
	_, err := playFresh(t.Context(), experiment.Spec{Config: pipeline.Config{Family: "nobody"}}, "Queue/impl=x")
	if err == nil || !strings.Contains(err.Error(), "returned no result") || !strings.Contains(err.Error(), `"nobody" is not one of`) {
		t.Errorf("error %v", err)
	}
	_, err = playFresh(t.Context(), experiment.Spec{Config: pipeline.Config{Family: "queue", Events: 3000}, Storm: experiment.Storm{Name: tiny}}, "Queue/impl=x")
	if err == nil || !strings.Contains(err.Error(), "there is no cell Queue/impl=x") {
		t.Errorf("error %v", err)
	}
}

// TestProfileFlag: the cells' profiles are in the results folder, and their round does not count.
func TestProfileFlag(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	code, _, errs := call(t, with(small, "--impl", "cond", "--profile", "allocs", "--out", dir)...)
	if code != exitOK {
		t.Fatalf("exit code %d, stderr %q", code, errs)
	}
	o, err := lab.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range o.Comparisons[0].Cells {
		if len(c.Rounds) != 1 {
			t.Errorf("%s has %d rounds", c.BenchName(), len(c.Rounds))
		}
		if _, err := os.Stat(filepath.Join(dir, pprof.Dir, pprof.Allocs.FileName(c.BenchName()))); err != nil {
			t.Error(err)
		}
	}
}

func TestBudget(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	args := []string{"run", "--family", "deltafifo", "--delivery", "in-order", "--impl", "cond", "--events", "3000", "--storm", tiny, "--budget", "1ms", "--out", dir}
	code, _, errs := call(t, args...)
	if code != exitOK {
		t.Fatalf("exit code %d, stderr %q", code, errs)
	}
	o, err := lab.Load(dir)
	if err != nil || o.Rounds != 1 || o.Budget != time.Millisecond {
		t.Errorf("%v, %d rounds for a budget of %v", err, o.Rounds, o.Budget)
	}
}
