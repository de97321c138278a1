package lab_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		childRun(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

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

const childDir = "LAB_TEST_CHILD_DIR"

// childRun is a run in a process that the parent kills. It resumes an existing run. It
// prints each finished cell.
func childRun(dir string) {
	_, err := childLab(dir, func(p lab.Progress) {
		if p.Finished && p.Round > 0 {
			fmt.Printf("finished %s %d\n", p.Cell, p.Round)
		}
	})
	fmt.Println("not killed:", err)
	os.Exit(1)
}

// childRounds exceeds the number of rounds that a child plays before it is killed.
const childRounds = 10

func childLab(dir string, progress func(lab.Progress)) (*lab.Outcome, error) {
	a, _ := newCell("a", "", steady(1000, time.Millisecond))
	b, _ := newCell("b", "", steady(1000, 2*time.Millisecond))
	// Half of its releases are late in one round of three, so that its rounds are
	// withheld at times.
	plays, _ := newCell("plays", "2000", func(n int) *fake {
		f := &fake{events: 1000, takes: time.Millisecond}
		if n%3 == 1 {
			f.late = 0.5
		}
		return f
	})
	_, err := os.Stat(dir)
	opts := lab.Options{Name: "child", Rounds: childRounds, Seed: 1, Dir: dir, Resume: err == nil, Progress: progress}
	if filepath.Base(dir) != sharedDir {
		return ignoringHost(context.Background(), comparison(a, b, plays), opts)
	}
	for opts.Processes = childRounds / 2; ; opts.Resume = true {
		o, err := ignoringHost(context.Background(), comparison(a, b), opts)
		if err != nil || !o.Paused {
			return o, err
		}
	}
}

const sharedDir = "shared" // a folder of a child whose rounds several processes share
