package lab_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// TestKilledRunKeepsRounds kills a run with SIGKILL after different numbers of cells and reads its
// results. It resumes the run in another killed process, and finally in this one.
func TestKilledRunKeepsRounds(t *testing.T) {
	t.Parallel()
	for _, kills := range [][]int{{1, 1, 2}, {9}} {
		dir := filepath.Join(t.TempDir(), "results")
		kept := map[string]time.Time{}
		reported := map[string]int{}
		for _, cells := range kills {
			for name, n := range killed(t, dir, cells) {
				reported[name] += n
			}
			o, err := lab.Load(dir)
			if err != nil {
				t.Fatalf("killed after %v cells: %v", kills, err)
			}
			if o.Ended != nil {
				t.Error("a killed run has an end time")
			}
			lines := benchFile(t, dir)
			for _, c := range o.Comparisons[0].Cells {
				name := c.BenchName()
				// Withheld figures are in none of these files.
				if withheld := c.Verdict.Cause == lab.CauseGenerator; !withheld && len(c.Rounds) < reported[name] {
					t.Errorf("%s: run.json has %d rounds, %d were finished", name, len(c.Rounds), reported[name])
				} else if !withheld && lines[name] < reported[name] {
					t.Errorf("%s: bench.txt has %d lines, %d rounds were finished", name, lines[name], reported[name])
				}
				for _, r := range c.Rounds {
					key := fmt.Sprintf("%s#%d", name, r.Round)
					if was, ok := kept[key]; ok && !was.Equal(r.Started) {
						t.Errorf("%s was finished but played again", key)
					}
					kept[key] = r.Started
				}
			}
		}

		played := map[string]int{}
		o, err := childLab(dir, func(p lab.Progress) {
			if p.Finished && p.Round > 0 {
				played[p.Cell]++
			}
		})
		if err != nil {
			t.Fatalf("killed after %v cells: %v", kills, err)
		}
		if o.Interrupted || o.Ended == nil || len(o.Env.Resumed) != len(kills) {
			t.Errorf("interrupted %v, ended %v, resumed %v", o.Interrupted, o.Ended, o.Env.Resumed)
		}
		lines := benchFile(t, dir)
		for _, c := range o.Comparisons[0].Cells {
			name := c.BenchName()
			if c.Verdict.Cause == lab.CauseGenerator {
				continue // The kills left most of its rounds late: its figures are dropped.
			}
			if len(c.Rounds) != childRounds || lines[name] != childRounds || reported[name]+played[name] > childRounds {
				t.Errorf("%s: %d rounds, %d lines, %d reported by the killed process, %d played since; want %d",
					name, len(c.Rounds), lines[name], reported[name], played[name], childRounds)
			}
			var count uint64
			for i, r := range c.Rounds {
				if was, ok := kept[fmt.Sprintf("%s#%d", name, r.Round)]; r.Round != i+1 || ok && !was.Equal(r.Started) {
					t.Errorf("%s: round %d at index %d, started %v, the one before %v", name, r.Round, i, r.Started, was)
				}
				count += r.Result.Latency[0].Count
			}
			if c.Latency[0].Count != count {
				t.Errorf("%s: %d latencies in all, %d in its rounds", name, c.Latency[0].Count, count)
			}
		}
	}
}

// killed runs the child until it has finished this number of cells and kills it. It
// returns the number of reports per cell.
func killed(t *testing.T, dir string, cells int) map[string]int {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childDir+"="+dir)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	reported := map[string]int{}
	lines := bufio.NewScanner(out)
	for n := 0; n < cells && lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if len(fields) != 3 || fields[0] != "finished" {
			t.Fatalf("the child says %q", lines.Text())
		}
		reported[fields[1]]++
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := child.Wait(); err == nil {
		t.Fatal("the child was not killed")
	}
	return reported
}

// benchFile returns the number of lines of each cell in bench.txt.
func benchFile(t *testing.T, dir string) map[string]int {
	t.Helper()
	file, err := os.Open(filepath.Join(dir, lab.BenchFile))
	if err != nil {
		t.Fatal(err)
	}
	bench, err := stats.Read(file, lab.BenchFile)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	lines := map[string]int{}
	for name, samples := range bench.Samples {
		lines[name] = len(samples[stats.UnitEventsPerSec])
	}
	return lines
}

// TestKilledProcesses kills a run within a process and between two, and resumes it each time.
func TestKilledProcesses(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), sharedDir)
	started := map[string]time.Time{}
	for _, cells := range []int{1, 6, 6, 7, 3} { // a process plays two rounds of three cells
		killed(t, dir, cells)
		o, err := lab.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range o.Comparisons[0].Cells {
			for _, r := range c.Rounds {
				key := fmt.Sprintf("%s#%d", c.BenchName(), r.Round)
				if was, ok := started[key]; ok && !was.Equal(r.Started) {
					t.Errorf("%s was finished but played again", key)
				}
				started[key] = r.Started
			}
		}
	}
	o, err := childLab(dir, nil)
	if err != nil || o.Ended == nil || o.Interrupted || len(o.Env.Resumed) > 5 {
		t.Fatalf("%v, %+v", err, o)
	}
	lines := benchFile(t, dir)
	for _, c := range o.Comparisons[0].Cells {
		processes := map[int]int{}
		for i, r := range c.Rounds {
			if processes[r.Process]++; r.Round != i+1 || processes[r.Process] > 2 || r.Process > o.Env.Processes {
				t.Errorf("%s: round %d of process %d at %d", c.BenchName(), r.Round, r.Process, i)
			}
		}
		if len(c.Rounds) != childRounds || len(processes) < childRounds/2 || lines[c.BenchName()] != len(processes) {
			t.Errorf("%s: %d rounds in %d processes, %d lines in bench.txt", c.BenchName(), len(c.Rounds), len(processes), lines[c.BenchName()])
		}
	}
}
