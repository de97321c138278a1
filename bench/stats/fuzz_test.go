package stats_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"watchlab/bench/stats"
)

// FuzzRead: a file is read, with finite values, or refused.
func FuzzRead(f *testing.F) {
	whole, err := os.ReadFile("testdata/bench.txt")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(whole))
	for _, s := range []string{
		"goos: linux\nBenchmarkX/a=b-2 1 2 ns/op 3 B/op\n", "BenchmarkX 1 NaN x\n", "BenchmarkX 1 +Inf x\n", "BenchmarkX 9999999999999999999 1 x\n",
		"Unit x better=lower assume=exact\nBenchmarkX 1 0x1p-1074 x 1e999 y\n", "Benchmark 1 1\n", "pkg:\nBenchmark/ 1 1 a\nBenchmark/-2 1 1 a\n", "\x00:\xff\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		defer time.AfterFunc(time.Minute, func() { panic("an input took more than a minute") }).Stop()
		file, err := stats.Read(strings.NewReader(text), "fuzz")
		if err != nil {
			if !errors.Is(err, stats.ErrFormat) && !strings.Contains(err.Error(), "too long") {
				t.Fatal(err)
			}
			return
		}
		for name, samples := range file.Samples {
			for unit, values := range samples {
				stats.Summarize(values)
				stats.Better(unit)
				if len(values) == 0 {
					t.Fatalf("%s: no %s", name, unit)
				}
			}
		}
	})
}
