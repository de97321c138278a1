package lab_test

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// TestAKilledRunKeepsItsRounds kills a run with a signal that cannot be caught,
// after different numbers of cells, and reads what it left.
func TestAKilledRunKeepsItsRounds(t *testing.T) {
	for _, cells := range []int{1, 2, 3, 5, 8, 20} {
		dir := filepath.Join(t.TempDir(), "results")
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), childDir+"="+dir)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		told := map[string]int{}
		lines := bufio.NewScanner(out)
		for n := 0; n < cells && lines.Scan(); n++ {
			fields := strings.Fields(lines.Text())
			if len(fields) != 3 || fields[0] != "finished" {
				t.Fatalf("the child says %q", lines.Text())
			}
			told[fields[1]]++
		}
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := child.Wait(); err == nil {
			t.Fatal("the child was not killed")
		}

		o, err := lab.Load(dir)
		if err != nil {
			t.Fatalf("after %d cells: %v", cells, err)
		}
		if o.Ended != nil {
			t.Error("a killed run has an end")
		}
		file, err := os.Open(filepath.Join(dir, lab.BenchFile))
		if err != nil {
			t.Fatal(err)
		}
		bench, err := stats.Read(file, lab.BenchFile)
		if err := errors.Join(err, file.Close()); err != nil {
			t.Fatalf("after %d cells: %v", cells, err)
		}
		for _, c := range o.Comparisons[0].Cells {
			name := c.BenchName()
			if len(c.Rounds) < told[name] {
				t.Errorf("%s: run.json has %d rounds, %d were finished", name, len(c.Rounds), told[name])
			}
			if n := len(bench.Iters[name]); n < told[name] {
				t.Errorf("%s: bench.txt has %d lines, %d rounds were finished", name, n, told[name])
			}
		}
	}
}
