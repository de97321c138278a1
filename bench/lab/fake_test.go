package lab_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a workload with a given duration and injected errors. A nil step does nothing.
type fake struct {
	events   uint64
	takes    time.Duration
	late     float64 // share of 1000 releases that are 5 ms late; negative: no release is reported
	budget   time.Duration
	setup    func(context.Context) error
	run      func(context.Context) error
	check    func() error
	teardown func() error
	log      *[]string
}

func (f *fake) step(name string) {
	if f.log != nil {
		*f.log = append(*f.log, name)
	}
}

func (f *fake) Setup(ctx context.Context) error {
	f.step("setup")
	if f.setup != nil {
		return f.setup(ctx)
	}
	return nil
}

func (f *fake) Run(ctx context.Context, rec *cell.Recorder) error {
	f.step("run")
	rec.Begin()
	if f.run != nil {
		if err := f.run(ctx); err != nil {
			return err
		}
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(f.takes):
	}
	rec.End()
	rec.Count(f.events, f.events)
	// Histograms of short latencies take less time to encode, above all with the race detector.
	rec.Latency("intended→handled", f.takes/7000)
	if f.late >= 0 {
		if f.budget > 0 {
			rec.Schedule(f.budget, 0)
		}
		for i := range 1000 {
			lag := time.Microsecond
			if float64(i) < f.late*1000 {
				lag = 5 * time.Millisecond
			}
			rec.Lag(lag, 0)
		}
	}
	return nil
}

func (f *fake) Check() error {
	f.step("check")
	if f.check != nil {
		return f.check()
	}
	return nil
}

func (f *fake) Teardown() error {
	f.step("teardown")
	if f.teardown != nil {
		return f.teardown()
	}
	return nil
}

// player returns the workload of the n-th play of a cell; play 0 is the warm-up.
type player func(n int) *fake

// newCell returns a cell that counts its plays.
func newCell(impl, rate string, p player) (lab.Cell, *int) {
	plays := new(int)
	c := lab.Cell{
		Name:       "Queue",
		Labels:     []lab.Label{{Key: "impl", Value: impl}, {Key: "keys", Value: "10"}},
		Guarantees: "order total",
		New: func() (lab.Workload, error) {
			*plays++
			return p(*plays - 1), nil
		},
	}
	if rate != "" {
		c.Labels = append(c.Labels, lab.Label{Key: "rate", Value: rate})
	}
	return c, plays
}

// steady returns a workload with a constant duration.
func steady(events uint64, takes time.Duration) player {
	return func(int) *fake { return &fake{events: events, takes: takes, late: -1} }
}

func comparison(cells ...lab.Cell) []lab.Comparison {
	return []lab.Comparison{{Family: "queue", Title: "fakes", Cells: cells}}
}

// readAll returns the files of a directory by relative path.
func readAll(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		files[filepath.ToSlash(rel)] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// holding returns the names of the files that hold s.
func holding(files map[string]string, s string) []string {
	var names []string
	for name, text := range files {
		if strings.Contains(text, s) {
			names = append(names, name)
		}
	}
	return names
}

func benchLines(text, name string) int {
	return strings.Count(text, "\nBenchmark"+name+"-") + strings.Count(text, "\nBenchmark"+name+" ")
}

func verdicts(o *lab.Outcome) map[string]string {
	out := map[string]string{}
	for _, c := range o.Comparisons {
		for _, cl := range c.Cells {
			out[cl.Label("impl")] = cl.Verdict.String()
		}
	}
	return out
}

// ignoringHost runs comparisons. What the machine of the test takes from it changes no verdict.
func ignoringHost(ctx context.Context, comparisons []lab.Comparison, opts lab.Options) (*lab.Outcome, error) {
	opts.IgnoreHost = true
	return lab.Run(ctx, comparisons, opts)
}

// benchFile returns the number of lines of each cell in bench.txt.
func benchFile(t *testing.T, dir string) map[string]int {
	t.Helper()
	file := must(os.Open(filepath.Join(dir, lab.BenchFile)))(t)
	bench, err := stats.Read(file, lab.BenchFile)
	noError(t, errors.Join(err, file.Close()))
	lines := map[string]int{}
	for name, samples := range bench.Samples {
		lines[name] = len(samples[stats.UnitEventsPerSec])
	}
	return lines
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
