package report_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"

	"watchlab/bench/cell"
	"watchlab/bench/internal/golden"
	"watchlab/bench/lab"
	"watchlab/bench/report"
	"watchlab/bench/stats"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	batch  = "order total, coalesces none, unbounded, one consumer, handler unlocked, cache.QueueWithBatch"
	perKey = "order per-key, coalesces deltas, unbounded, one consumer, handler holds the lock, cache.Queue"
)

// spec is a cell of the run in the golden files.
type spec struct {
	impl, delivery, rate, guarantees string
	baseline                         bool
	perSecond                        float64
	allocs                           float64
	p99                              time.Duration
	verdict                          lab.Verdict
	rounds                           int
}

var jitter = []float64{1, 0.98, 1.01, 1.03, 0.99, 1.005, 0.995}

func (s spec) cell() lab.CellResult {
	c := lab.CellResult{
		Name: "DeltaFIFO", Guarantees: s.guarantees, Baseline: s.baseline, Verdict: s.verdict,
		Labels: []lab.Label{{Key: "impl", Value: s.impl}, {Key: "delivery", Value: s.delivery}, {Key: "keys", Value: "10000"}, {Key: "rate", Value: s.rate}},
	}
	if c.Verdict.Status == "" {
		c.Verdict.Status = lab.Valid
	}
	for i := range s.rounds {
		f := jitter[i]
		r := cell.Result{
			EventsIn: 1e6, DeltasOut: 1e6, Elapsed: time.Duration(1e15 / (s.perSecond * f)),
			EventsPerSecond: s.perSecond * f, DeltasPerEvent: 1, AllocsPerEvent: s.allocs, BytesPerEvent: s.allocs * 77.7,
			CPUSecondsPerEvent: 1 / (s.perSecond * f), GCNsPerByte: 0.5, GCs: 4, GCPause: 100 * time.Microsecond,
			GCPauseMax: 40 * time.Microsecond,
			Latency: []cell.Latency{
				{Boundary: "intended→popped", Quantiles: cell.Quantiles{Count: 1e6, P50: 1, P99: 2, P999: 3, Max: 4}},
				{Boundary: "intended→handled", Quantiles: cell.Quantiles{Count: 1e6, P50: s.p99 / 10, P90: s.p99 / 2, P99: time.Duration(float64(s.p99) / f), P999: 3 * s.p99, Max: 10 * s.p99}},
			},
		}
		if s.rate != "max" {
			r.Lag = &cell.Lag{Quantiles: cell.Quantiles{Count: 1e6, P99: 20 * time.Microsecond}}
		}
		c.Rounds = append(c.Rounds, lab.Round{Round: i + 1, Place: 1, Started: start, Result: r})
	}
	if s.rounds > 0 {
		c.Latency = c.Rounds[0].Result.Latency
		c.Medians = c.Samples("").Summaries()
	}
	return c
}

var start = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func outcome() *lab.Outcome {
	steal, memory, cpus := 0.0125, int64(4<<30), 2.0
	lost := lab.Verdict{Status: lab.Invalid, Cause: lab.CauseLost, Detail: "1 event (key ns/pod-3)"}
	late := lab.Verdict{Status: lab.Invalid, Cause: lab.CauseGenerator, Detail: "at rate 50000, 2.0 % of the releases were more than 1ms late in the median round (allowed: 1 %)"}
	noisy := lab.Verdict{Status: lab.Noisy, Detail: "events/s of the rounds lie 21 % apart (allowed: 10 %)"}
	comparison := func(name, title string, specs ...spec) lab.ComparisonResult {
		c := lab.ComparisonResult{Family: "deltafifo", Title: title}
		for _, s := range specs {
			c.Cells = append(c.Cells, s.cell())
			c.Cells[len(c.Cells)-1].Name = name
		}
		return c
	}
	const us, ms = time.Microsecond, time.Millisecond
	return &lab.Outcome{
		Format: lab.Format, Name: "quick", Started: start, Seed: 7, Rounds: 5, Interrupted: true,
		Comparisons: []lab.ComparisonResult{
			comparison("DeltaFIFO", "queue pipeline on pods-recorded",
				spec{"clientgo-deltafifo", "per-key", "max", perKey, true, 2.71e6, 5, 40 * ms, lab.Verdict{}, 5},
				spec{"clientgo-deltafifo", "per-key", "50000", perKey, true, 5e4, 5, 120 * us, lab.Verdict{}, 5},
				spec{"cond", "per-key", "max", perKey, false, 3.9e6, 2, 30 * ms, lab.Verdict{}, 5},
				spec{"cond", "per-key", "50000", perKey, false, 5e4, 2, 180 * us, lab.Verdict{}, 5},
				spec{"clientgo-realfifo-batch", "in-order", "max", batch, true, 3.4e6, 3, 999700, noisy, 5},
				spec{"clientgo-realfifo-batch", "in-order", "50000", batch, true, 5e4, 3, 90 * us, lab.Verdict{}, 5},
				spec{"cond", "in-order", "max", batch, false, 1.2e7, 0.04, 2 * ms, lab.Verdict{}, 5},
				spec{"cond", "in-order", "50000", batch, false, 5e4, 0.04, 0, late, 0},
				spec{"slow", "in-order", "max", batch, false, 1.7e6, 3, 2 * ms, lab.Verdict{}, 5},
				spec{"same", "in-order", "max", batch, false, 3.41e6, 3, 2 * ms, lab.Verdict{}, 5},
				spec{"leaky", "in-order", "max", batch, false, 7654321, 0.07654321, 7654321, lab.Verdict{}, 5},
				spec{"leaky", "in-order", "50000", batch, false, 5e4, 1, ms, lost, 0},
			),
			comparison("Informer", "informer pipeline, cut short",
				spec{"clientgo-realfifo-batch", "in-order", "max", batch, true, 1e5, 30, 2 * time.Second, lab.Verdict{}, 3},
				spec{"cond", "in-order", "max", batch, false, 8e4, 20, 999, lab.Verdict{}, 3},
				spec{"ring", "in-order", "max", "", false, 1, 1, 1, lab.Verdict{Status: lab.Unplayed, Detail: "the run ended before it finished a round"}, 0},
			),
			enriched(comparison("Queue", "pairs, memory and notes",
				spec{"clientgo-fifo", "per-key", "max", "", true, 3.3e6, 3, 2 * ms, lab.Verdict{}, 7},
				spec{"clientgo-fifo", "per-key", "50000", "", true, 5e4, 3, 90 * us, lab.Verdict{}, 7},
				spec{"ring", "per-key", "max", "", false, 9e6, 0, 1 * ms, lab.Verdict{}, 7},
				spec{"ring", "per-key", "50000", "", false, 5e4, 0, 80 * us, lab.Verdict{}, 7},
				spec{"dropping", "per-key", "max", "", false, 9e7, 0, 1 * ms, lab.Verdict{}, 7},
				spec{"robbed", "per-key", "max", "", false, 9e7, 0, 1 * ms, lab.Verdict{Status: lab.Invalid, Cause: lab.CauseSteal, Detail: "12 % of the CPU time went to others"}, 0},
				spec{"clientgo-fifo-again", "per-key", "max", "", false, 3.32e6, 3, 2 * ms, lab.Verdict{}, 7},
				spec{"ring-again", "per-key", "max", "", false, 8e6, 3, 2 * ms, lab.Verdict{}, 7},
				spec{"robbed-again", "per-key", "max", "", false, 8e6, 3, 2 * ms, lab.Verdict{Status: lab.Unplayed}, 0},
			)),
		},
		Knees: []stats.Knee{
			{Cell: "DeltaFIFO/impl=cond/keys=10000", Impl: "cond", Objective: stats.Objective{Unit: stats.UnitP99, Most: ms}, Held: 4e5, Failed: 4.2e5, Limit: "latency",
				Points: []stats.KneePoint{{Rate: 4e5, Latency: map[string]float64{stats.UnitP99: 9e5}, Rounds: 5, Holds: 5}, {Rate: 4.2e5, Latency: map[string]float64{stats.UnitP99: 5e7}, Rounds: 5}}},
			{Cell: "DeltaFIFO/impl=clientgo-realfifo/keys=10000", Impl: "clientgo-realfifo", Objective: stats.Objective{Unit: stats.UnitP99, Most: ms}, Limit: "generator"},
		},
		Scalings: []stats.Scaling{
			{Cell: "DeltaFIFO/impl=cond/keys=10000", Impl: "cond", Over: "producers",
				Points: []stats.ScalePoint{{N: 1, EventsPerSecond: []float64{1e6, 1.02e6}}, {N: 8, EventsPerSecond: []float64{4e6, 4.1e6}}},
				Fit:    &stats.USL{Lambda: stats.Estimate{Value: 1e6, Lo: 9e5, Hi: 1.1e6}, Sigma: stats.Estimate{Value: 0.05, Lo: 0.01, Hi: 0.1}, Kappa: stats.Estimate{Value: 0.004, Lo: 0, Hi: 0.008}, Peak: 15.4, PeakRate: 5e6, RMSE: 0.012, R2: 0.998}},
			{Cell: "DeltaFIFO/impl=ring/keys=10000", Impl: "ring", Over: "producers", Points: []stats.ScalePoint{{N: 1, EventsPerSecond: []float64{3e6}}}, Why: "1 point is too few for a fit"},
		},
		Env: lab.Env{
			Started: start, Args: []string{"run", "--family", "deltafifo", "--storm", "a b"},
			Build: lab.Build{Commit: "abc1234", Dirty: true}, GoVersion: "go1.26", GOOS: "linux", GOARCH: "amd64",
			CPU: "Some CPU @ 2 GHz", Cores: 2, GOMAXPROCS: 2, GOGC: "100", GCNsPerByte: 0.5, GCPriceOf: "the least of 5 collections", Kernel: "6.8.0", Governor: "performance",
			LoadAverage: []float64{0.5, 0.25, 1}, Limits: cell.Limits{CgroupVersion: 2, MemoryBytes: &memory, CPUs: &cpus},
			StealShare: &steal,
		},
	}
}

// enriched adds what other comparisons lack: classes, pairs, memory and notes.
func enriched(c lab.ComparisonResult) lab.ComparisonResult {
	c.Family, c.Rounds = "queue", 7
	for i := range c.Cells {
		cl := &c.Cells[i]
		cl.Class = "order per-key, coalesces all"
		impl := cl.Label("impl")
		if impl == "dropping" {
			cl.Class = "order none, coalesces all"
		}
		if first, ok := strings.CutSuffix(impl, "-again"); ok {
			cl.Repeats = strings.Replace(cl.BenchName(), impl, first, 1)
		}
		for j := range cl.Rounds {
			r := &cl.Rounds[j].Result
			_, paced := cl.Rate()
			switch {
			case paced:
				r.Notes = []cell.Note{{Unit: "lock-hold-max-ns", Value: 4500}, {Unit: "staleness-p99-events", Value: 12}, {Unit: "drain-ns/event", Value: 250}}
			case impl != "dropping":
				r.GCPauseMax, r.Memory = 80*time.Microsecond, &cell.Memory{HeapBytes: 100 << 20, PeakHeapBytes: 150 << 20, PeakRSSBytes: 300 << 20}
				r.Counters = []cell.Note{{Unit: "cycles/op", Value: 345.6}}
			}
		}
	}
	return c
}

func TestGolden(t *testing.T) {
	for name, write := range map[string]func(io.Writer, *lab.Outcome) error{
		"table.txt": report.Table, "report.md": report.Markdown,
	} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := write(&got, outcome()); err != nil {
				t.Fatal(err)
			}
			golden.Check(t, name, got.String())
		})
	}
}

func TestTableFitsTerminal(t *testing.T) {
	var b bytes.Buffer
	if err := report.Table(&b, outcome()); err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(b.String()) {
		line = strings.TrimSuffix(line, "\n")
		if strings.Contains(line, "\x1b") || strings.HasSuffix(line, " ") {
			t.Errorf("colour or a trailing space in %q", line)
		}
		// Lines of the legend may wrap; table lines must not.
		if strings.Count(line, "  ") < 4 {
			continue
		}
		rows++
		if n := utf8.RuneCountInString(line); n > 160 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if rows < 10 {
		t.Errorf("only %d rows", rows)
	}
}

// TestBenchHasSameRounds checks that the tables' medians are those of the benchfmt output.
func TestBenchHasSameRounds(t *testing.T) {
	o := outcome()
	var b bytes.Buffer
	if err := o.WriteBench(&b); err != nil {
		t.Fatal(err)
	}
	f, err := stats.Read(&b, "bench")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range o.Comparisons[0].Cells {
		for unit, want := range c.Medians {
			if got := stats.Median(f.Samples[c.BenchName()][unit]); got != want.Median {
				t.Errorf("%s %s: %v, want %v", c.BenchName(), unit, got, want.Median)
			}
		}
	}
	if f.Config["commit"] != "abc1234" {
		t.Errorf("config %v", f.Config)
	}
}

// leak is a workload that loses an event in its third play.
type leak struct {
	plays int
	lose  bool
}

func (l *leak) Setup(context.Context) error { return nil }
func (l *leak) Run(_ context.Context, rec *cell.Recorder) error {
	rec.Begin()
	time.Sleep(time.Second)
	rec.End()
	rec.Count(7654321, 8642097)
	rec.Latency("intended→handled", 71717171)
	rec.Note("odd", 616161)
	return nil
}
func (l *leak) Check() error {
	if l.lose && l.plays == 3 {
		return fmt.Errorf("%w: 1 event", lab.ErrLost)
	}
	return nil
}
func (l *leak) Teardown() error { return nil }

// TestLostEventSuppressesFigures plays a cell that loses an event. Its figures must appear
// in no file and no output. A cell without a loss checks that the search finds figures.
func TestLostEventSuppressesFigures(t *testing.T) {
	figures := []string{"7654321", "7.654321", "7.65M", "7.654M", "8642097", "71717171", "71.7", "616161", "1.129"}
	for _, lose := range []bool{false, true} {
		t.Run(fmt.Sprintf("lose=%v", lose), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "results")
			texts := map[string]string{}
			synctest.Test(t, func(t *testing.T) {
				plays := 0
				c := lab.Cell{Name: "Queue", Labels: []lab.Label{{Key: "impl", Value: "x"}}, New: func() (lab.Workload, error) {
					plays++
					return &leak{plays: plays, lose: lose}, nil
				}}
				o, err := lab.Run(context.Background(), []lab.Comparison{{Family: "queue", Title: "leaks", Cells: []lab.Cell{c}}}, lab.Options{Rounds: 4, Dir: dir, NoAA: true, IgnoreHost: true})
				if err != nil {
					t.Fatal(err)
				}
				if err := report.Write(dir, o); err != nil {
					t.Fatal(err)
				}
				for name, write := range map[string]func(io.Writer, *lab.Outcome) error{
					"table": report.Table, "markdown": report.Markdown, "html": report.HTML,
					"json":  func(w io.Writer, o *lab.Outcome) error { return o.WriteJSON(w) },
					"bench": func(w io.Writer, o *lab.Outcome) error { return o.WriteBench(w) },
				} {
					var b bytes.Buffer
					if err := write(&b, o); err != nil {
						t.Fatal(err)
					}
					texts[name] = b.String()
				}
			})
			err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
				if err == nil && !d.IsDir() {
					data, rerr := os.ReadFile(path)
					texts[d.Name()], err = string(data), rerr
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			found := map[string]bool{}
			for name, text := range texts {
				for _, f := range figures {
					if strings.Contains(text, f) {
						found[name] = true
						if lose {
							t.Errorf("%s holds %s:\n%s", name, f, text)
						}
					}
				}
			}
			if !lose {
				for _, name := range []string{"table", "json", "bench", "markdown", "html", "run.json", "bench.txt", "report.md", "report.html"} {
					if !found[name] {
						t.Errorf("%s lacks the figures of a sound cell:\n%s", name, texts[name])
					}
				}
				return
			}
			for _, name := range []string{"table", "markdown", "html", "report.md", "report.html"} {
				if !strings.Contains(texts[name], "invalid: lost") {
					t.Errorf("%s does not say what was lost:\n%s", name, texts[name])
				}
			}
		})
	}
}

func TestWriteReplacesReport(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		if err := report.Write(dir, outcome()); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 || entries[0].Name() != report.HTMLFile || entries[1].Name() != lab.ReportFile {
		t.Errorf("%v, %v; want the two reports alone", entries, err)
	}
	if err := report.Write(filepath.Join(dir, "missing"), outcome()); err == nil {
		t.Error("no error for a folder that is not there")
	}
}
