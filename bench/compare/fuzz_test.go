package compare_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"watchlab/bench/compare"
	"watchlab/bench/stats"
	"watchlab/loadgen/manifest"
)

// FuzzOpenRun: a benchmark file is a run that compare and gate take, or an error of its kind.
func FuzzOpenRun(f *testing.F) {
	old := must(os.ReadFile(files[0]))(f)
	f.Add(string(old))
	f.Add("guarantees: a\nBenchmarkX/impl=a-2 1 2 ns/op\nguarantees: b\nBenchmarkX/impl=b-2 1 3 ns/op\n")
	f.Add("Unit x assume=exact\nBenchmarkX 1 0 x\nBenchmarkX 1 1 x\n")
	f.Add("BenchmarkX 1 -1 x\n")
	for _, s := range []string{
		"goos: linux\nBenchmarkX/a=b-2 1 2 ns/op 3 B/op\n", "BenchmarkX 1 NaN x\n", "BenchmarkX 1 +Inf x\n", "BenchmarkX 9999999999999999999 1 x\n",
		"Unit x better=lower assume=exact\nBenchmarkX 1 0x1p-1074 x 1e999 y\n", "Benchmark 1 1\n", "pkg:\nBenchmark/ 1 1 a\nBenchmark/-2 1 1 a\n", "\x00:\xff\n",
	} {
		f.Add(s)
	}
	dir := f.TempDir()
	rules, _, err := compare.ReadRules("")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		defer time.AfterFunc(time.Minute, func() { panic("an input took more than a minute") }).Stop()
		path := filepath.Join(dir, "bench.txt")
		noError(t, os.WriteFile(path, []byte(text), 0o600))
		run, err := compare.OpenRun(path)
		if err != nil {
			if !errors.Is(err, compare.ErrInput) && !errors.Is(err, stats.ErrFormat) {
				t.Fatal(err)
			}
			return
		}
		noError(t, compare.Compare([]*compare.Run{run, run}).Text(io.Discard))
		if _, err := compare.Gate(run, run, "rules", rules, false); err != nil && errors.Is(err, stats.ErrFormat) {
			t.Fatal(err)
		}
	})
}

// FuzzParseRules: a file has rules, or an error that names it.
func FuzzParseRules(f *testing.F) {
	f.Add(compare.DefaultRules)
	f.Add(compare.ControllerRules)
	for _, s := range []string{"rules: [{metric: a, change: 10%, because: b, better: lower}]", "rules:\n- metric: a\n  cells: '/a:('\n", "rules: &a [*a]", "rules: [{change: 0x1p-2%}]", "\xff"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		defer time.AfterFunc(time.Minute, func() { panic("an input took more than a minute") }).Stop()
		rules, err := compare.ParseRules("f", data)
		var at *manifest.Error
		if err == nil == (len(rules) == 0) || err != nil && !errors.As(err, &at) {
			t.Fatalf("%d rules, %q", len(rules), err)
		}
	})
}
