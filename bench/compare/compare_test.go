package compare_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"watchlab/bench/cell"
	"watchlab/bench/compare"
	"watchlab/bench/internal/golden"
	"watchlab/bench/lab"
)

// files are two runs. They contain a benchmark of only one run, a benchmark with one
// round, zeros, and a second package.
var files = []string{filepath.Join("testdata", "old.txt"), filepath.Join("testdata", "new.txt")}

// table compares runs.
func table(t *testing.T, args ...string) (*compare.Table, string) {
	t.Helper()
	var runs []*compare.Run
	for _, arg := range args {
		run := must(compare.OpenRun(arg))(t)
		runs = append(runs, run)
	}
	out := compare.Compare(runs)
	var b bytes.Buffer
	noError(t, out.Text(&b))
	return out, b.String()
}

// benchstat runs the pinned version.
func benchstat(t *testing.T, args ...string) string {
	t.Helper()
	path := must(pinned())(t)
	cmd := exec.Command(path, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("benchstat: %v\n%s", err, stderr.String())
	}
	return string(out)
}

// pinned builds the pinned benchstat and returns its path.
var pinned = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "tool", "-n", "benchstat").Output()
	return strings.TrimSpace(string(out)), err
})

// TestMatchesBenchstat: the medians, intervals, changes and p of each row are those of the pinned benchstat.
func TestMatchesBenchstat(t *testing.T) {
	theirs := benchstat(t, append([]string{"-ignore", "commit,pkg"}, files...)...)
	_, ours := table(t, files...)
	rows := map[[2]string][]string{}
	within := regexp.MustCompile(` [-+][0-9.]+% to [-+][0-9.]+%`)
	for line := range strings.Lines(ours) {
		if f := strings.Fields(within.ReplaceAllString(line, "")); len(f) > 2 {
			rows[[2]string{f[0], f[1]}] = f[2:]
		}
	}
	unit, compared := "", 0
	for line := range strings.Lines(theirs) {
		f := strings.Fields(strings.NewReplacer("│", " ", "¹", " ", "²", " ").Replace(line))
		switch name, _, _ := strings.Cut(strings.Join(f, " "), "-2 "); {
		case len(f) > 0 && strings.Contains(line, "│"):
			unit = f[0]
		case strings.Contains(line, "-2 ") && len(f) > 1:
			if compared++; !slices.Equal(rows[[2]string{unit, name}], f[1:]) {
				t.Errorf("%s, %s: %q, benchstat has %q", unit, name, rows[[2]string{unit, name}], f[1:])
			}
		}
	}
	if compared != len(rows)-3 { // the header and two notes
		t.Errorf("%d rows, benchstat has %d:\n%s\n%s", len(rows), compared, ours, theirs)
	}
}

func TestGolden(t *testing.T) {
	_, got := table(t, files...)
	golden.Check(t, "table.txt", got)
}

// TestZeroHasItsUnit: rounds without a pause are in the same row as rounds with one.
func TestZeroHasItsUnit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "zero.txt")
	noError(t, os.WriteFile(path, []byte("BenchmarkX 1 0 gc-pause-ns/run\nBenchmarkX 1 4000 gc-pause-ns/run\n"), 0o644))
	if got, text := table(t, path); len(got.Rows) != 1 || len(got.Rows[0].Cells[0].Values) != 2 || !strings.Contains(text, "gc-pause-sec/run") {
		t.Errorf("%s", text)
	}
}

// folder writes a results folder with a baseline and a variant of the given class, and
// a verdict for the variant.
func folder(t *testing.T, class string, verdict lab.Verdict, speed float64) string {
	t.Helper()
	o := &lab.Outcome{Format: lab.Format, Name: "test", Rounds: 5, Env: lab.Env{GOMAXPROCS: 2, Args: []string{}}}
	c := lab.ComparisonResult{Family: "deltafifo", Title: "test"}
	for _, impl := range []string{"clientgo", "cond"} {
		cl := lab.CellResult{
			Name: "DeltaFIFO", Labels: []lab.Label{{Key: "impl", Value: impl}}, Class: "order total", Baseline: impl == "clientgo",
			Verdict: lab.Verdict{Status: lab.Valid},
		}
		if impl == "cond" {
			cl.Class, cl.Verdict = class, verdict
		}
		if cl.Verdict.Status != lab.Invalid {
			for i, f := range []float64{1, 1.01, 0.99, 1.02, 0.98} {
				cl.Rounds = append(cl.Rounds, lab.Round{Round: i + 1, Result: cell.Result{EventsIn: 1000, Elapsed: 1e6, EventsPerSecond: speed * f}})
			}
		}
		c.Cells = append(c.Cells, cl)
	}
	o.Comparisons = []lab.ComparisonResult{c}
	dir := t.TempDir()
	for name, write := range map[string]func(*os.File) error{
		lab.RunFile:   func(f *os.File) error { return lab.EncodeJSON(f, o) },
		lab.BenchFile: func(f *os.File) error { return o.WriteBench(f) },
		lab.EnvFile:   func(f *os.File) error { return json.NewEncoder(f).Encode(o.Env) },
	} {
		f, err := os.Create(filepath.Join(dir, name))
		if err == nil {
			err = errors.Join(write(f), f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestUnequalGuarantees: neither a folder nor its benchmark file is compared with one of other guarantees.
func TestUnequalGuarantees(t *testing.T) {
	valid := lab.Verdict{Status: lab.Valid}
	total, perKey := folder(t, "order total", valid, 1e6), folder(t, "order per-key", valid, 2e6)
	for name, tc := range map[string]struct {
		args    []string
		refused bool
	}{
		"equal":           {[]string{"old=" + total, "new=" + folder(t, "order total", valid, 2e6)}, false},
		"folders":         {[]string{"old=" + total, "new=" + perKey}, true},
		"without labels":  {[]string{total, perKey}, true},
		"file and folder": {[]string{"old=" + filepath.Join(total, lab.BenchFile), "new=" + perKey}, true},
		"files":           {[]string{filepath.Join(total, lab.BenchFile), filepath.Join(perKey, lab.BenchFile)}, true},
	} {
		got, text := table(t, tc.args...)
		for _, row := range got.Rows {
			if c := row.Cells[1]; strings.Contains(row.Name, "cond") && ((c.Unequal != "") != tc.refused || (c.VsBase == nil) != tc.refused) {
				t.Errorf("%s: %s %s: %+v", name, row.Unit, row.Name, c)
			}
		}
		if strings.Contains(text, "unequal guarantees: order total / order per-key") != tc.refused {
			t.Errorf("%s:\n%s", name, text)
		}
	}
}

// TestBenchstatSeparates: benchstat compares no unequal guarantees of two benchmark files.
func TestBenchstatSeparates(t *testing.T) {
	valid := lab.Verdict{Status: lab.Valid}
	total, perKey := folder(t, "order total", valid, 1e6), folder(t, "order per-key", valid, 2e6)
	out := benchstat(t, "-filter", ".unit:events/s /impl:cond", filepath.Join(total, lab.BenchFile), filepath.Join(perKey, lab.BenchFile))
	if !strings.Contains(out, "guarantees: order per-key") || !strings.Contains(out, "guarantees: order total") || strings.Contains(out, "vs base") {
		t.Errorf("%s", out)
	}
}

func TestInvalidCells(t *testing.T) {
	bad := folder(t, "order total", lab.Verdict{Status: lab.Invalid, Cause: lab.CauseLost, Detail: "1 event"}, 1e6)
	got, text := table(t, "old="+folder(t, "order total", lab.Verdict{Status: lab.Valid}, 1e6), "new="+bad)
	if want := []string{"new: DeltaFIFO/impl=cond: invalid: lost: 1 event"}; !slices.Equal(got.Refused, want) || !strings.Contains(text, want[0]) {
		t.Errorf("refused %q\n%s", got.Refused, text)
	}
}

// must returns the value of a call, or ends the test with its error.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// noError ends the test with the error of a call.
func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
