package lab_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/google/go-cmp/cmp"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

func TestRunKeepsEveryRound(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "deep", "er", "results")
	var pooled []cell.Latency
	synctest.Test(t, func(t *testing.T) {
		a, plays := newCell("a", "", steady(1000, time.Second))
		b, _ := newCell("b", "", func(n int) *fake {
			return &fake{events: 1000, takes: time.Duration(200+n) * time.Millisecond, late: -1}
		})
		o, err := ignoringHost(context.Background(), comparison(a, b), lab.Options{
			NoAA: true,
			Name: "test", Rounds: 5, Seed: 7, Dir: dir, Args: []string{"run", "--rounds", "5"},
			Build: lab.Build{Commit: "abc", Dirty: true},
		})
		if err != nil {
			t.Fatal(err)
		}
		if *plays != 6 {
			t.Errorf("played %d times, want a warm-up and 5 rounds", *plays)
		}
		if o.Interrupted || o.Ended == nil || len(o.Failed()) > 0 {
			t.Errorf("outcome %+v", o)
		}
		ca, cb := o.Comparisons[0].Cells[0], o.Comparisons[0].Cells[1]
		if ca.Verdict.Status != lab.Valid || ca.Medians["events/s"].Median != 1000 {
			t.Errorf("%s: %s, median %+v", ca.BenchName(), ca.Verdict, ca.Medians["events/s"])
		}
		// Rounds 1 to 5 took 201 to 205 ms; the warm-up's 200 ms do not count.
		if got := cb.Medians["ns/op"].Median; got != 203000 {
			t.Errorf("median %v ns/op, want 203000", got)
		}
		// A round has its events' latencies; the pool has those of all.
		one, all := ca.Rounds[0].Result.Latency, ca.Latency
		if len(one) == 0 || len(all) != len(one) || all[0].Boundary != one[0].Boundary || all[0].Count != 5*one[0].Count || all[0].P50.Round(time.Millisecond) != one[0].P50.Round(time.Millisecond) {
			t.Errorf("pooled %+v, rounds %+v", all, one)
		}
		if finished, all := o.Finished(); finished != 2 || all != 2 {
			t.Errorf("finished %d of %d", finished, all)
		}
		pooled = cb.Latency
	})

	o := must(lab.Load(dir))(t)
	if o.Ended == nil || len(o.Comparisons[0].Cells[1].Rounds) != 5 || o.Env.Commit != "abc" || !o.Env.Dirty || o.Env.GOMAXPROCS < 1 {
		t.Errorf("loaded %+v", o)
	}
	if diff := cmp.Diff(pooled, o.Comparisons[0].Cells[1].Latency); diff != "" {
		t.Errorf("pooled latencies (-run +loaded):\n%s", diff)
	}
	f := must(os.Open(filepath.Join(dir, lab.BenchFile)))(t)
	defer func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	bench := must(stats.Read(f, lab.BenchFile))(t)
	if got := stats.Median(bench.Samples["Queue/impl=b/keys=10"]["ns/op"]); got != 203000 {
		t.Errorf("bench.txt's median is %v ns/op", got)
	}
	files := readAll(t, dir)
	for i, r := range o.Comparisons[0].Cells[1].Rounds {
		h := must(hdrhistogram.Decode([]byte(r.Result.Latency[0].Histogram)))(t)
		want := int64(201+i) * 1e6 / 7000
		if h.TotalCount() != 1 || !h.ValuesAreEquivalent(h.Max(), want) {
			t.Errorf("round %d: %d values up to %d", r.Round, h.TotalCount(), h.Max())
		}
	}
	for name := range files {
		if strings.Contains(name, "tmp") {
			t.Errorf("%s was left", name)
		}
	}
}

func TestRoundsInterleaved(t *testing.T) {
	t.Parallel()
	play := func(seed int64) []string {
		var order []string
		synctest.Test(t, func(t *testing.T) {
			var cells []lab.Cell
			for _, impl := range []string{"a", "b", "c", "d", "e"} {
				c, _ := newCell(impl, "", steady(1, time.Second))
				cells = append(cells, c)
			}
			_, err := ignoringHost(context.Background(), comparison(cells...), lab.Options{
				NoAA:   true,
				Rounds: 4, Seed: seed,
				Progress: func(p lab.Progress) {
					if !p.Finished {
						order = append(order, fmt.Sprintf("%d%s", p.Round, p.Cell[len("Queue/impl="):len("Queue/impl=")+1]))
					}
				},
			})
			if err != nil {
				t.Error(err)
			}
		})
		return order
	}
	first := play(1)
	if len(first) != 25 {
		t.Fatalf("played %d cells, want 25: %v", len(first), first)
	}
	rounds := map[string]bool{}
	for round := range 5 {
		part := slices.Clone(first[round*5 : round*5+5])
		var names []string
		for _, p := range part {
			if p[0] != byte('0'+round) {
				t.Fatalf("%s is played in round %d: %v", p, round, first)
			}
			names = append(names, p[1:])
		}
		rounds[strings.Join(names, "")] = true
		slices.Sort(names)
		if strings.Join(names, "") != "abcde" {
			t.Errorf("round %d plays %v", round, names)
		}
	}
	if len(rounds) < 3 {
		t.Errorf("the orders do not differ: %v", first)
	}
	if again := play(1); !slices.Equal(first, again) {
		t.Errorf("seed 1 gives %v, then %v", first, again)
	}
	if other := play(2); slices.Equal(first, other) {
		t.Error("seeds 1 and 2 give the same order")
	}
}

func TestLostEventSuppressesFigures(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "results")
	synctest.Test(t, func(t *testing.T) {
		good, _ := newCell("good", "", steady(1000, time.Second))
		bad, plays := newCell("bad", "", func(n int) *fake {
			f := &fake{events: 7654321, takes: time.Second, late: -1}
			if n == 3 {
				f.check = func() error { return fmt.Errorf("%w: 1 event (key ns/pod-3)", lab.ErrLost) }
			}
			return f
		})
		var beforehand []string
		o, err := ignoringHost(context.Background(), comparison(good, bad), lab.Options{
			NoAA:   true,
			Rounds: 5, Dir: dir,
			Progress: func(p lab.Progress) {
				// Record that the figure exists at first; otherwise the test could not fail.
				if p.Round == 3 && beforehand == nil {
					beforehand = holding(readAll(t, dir), "7654321")
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if *plays != 4 {
			t.Errorf("played %d times, want none after the loss", *plays)
		}
		if want := "invalid: lost: 1 event (key ns/pod-3)"; verdicts(o)["bad"] != want {
			t.Errorf("verdict %q, want %q", verdicts(o)["bad"], want)
		}
		if failed := o.Failed(); len(failed) != 1 || !strings.Contains(failed[0], "impl=bad") {
			t.Errorf("failed: %q", failed)
		}
		if len(beforehand) < 2 {
			t.Errorf("before the loss, only %q had the figure", beforehand)
		}
	})
	files := readAll(t, dir)
	if names := holding(files, "7654321"); len(names) > 0 {
		t.Errorf("%q still have the figure", names)
	}
	for name := range files {
		if strings.Contains(name, "bad") {
			t.Errorf("%s is still there", name)
		}
	}
	if n := benchLines(files["bench.txt"], "Queue/impl=good/keys=10"); n != 5 {
		t.Errorf("%d lines of the good cell, want 5:\n%s", n, files["bench.txt"])
	}
	if strings.Contains(files["bench.txt"], "impl=bad") {
		t.Error("bench.txt names the bad cell")
	}
}

func TestInvalidVerdicts(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, tc := range map[string]struct {
		make  func(*fake)
		want  string
		steps string
	}{
		"setup":          {func(f *fake) { f.setup = func(context.Context) error { return boom } }, "invalid: error: setup: boom", "setup teardown"},
		"run":            {func(f *fake) { f.run = func(context.Context) error { return boom } }, "invalid: error: run: boom", "setup run teardown"},
		"check":          {func(f *fake) { f.check = func() error { return boom } }, "invalid: error: boom", "setup run check teardown"},
		"teardown":       {func(f *fake) { f.teardown = func() error { return boom } }, "invalid: error: teardown: boom", "setup run check teardown"},
		"lost":           {func(f *fake) { f.check = func() error { return lab.ErrLost } }, "invalid: lost", "setup run check teardown"},
		"two invariants": {func(f *fake) { f.check = func() error { return errors.Join(lab.ErrDuplicated, lab.ErrReordered) } }, "invalid: reordered+duplicated: duplicated; reordered", "setup run check teardown"},
		"panic in setup": {func(f *fake) { f.setup = func(context.Context) error { panic("ouch") } }, "invalid: error: panic in setup: ouch (lab_test.", "setup teardown"},
		"panic in run":   {func(f *fake) { f.run = func(context.Context) error { panic(boom) } }, "invalid: error: panic in run: boom (lab_test.", "setup run teardown"},
		"misuse":         {func(f *fake) { f.events = 0 }, "invalid: error: recorder misused: Count reported no events", "setup run check teardown"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log []string
				c, plays := newCell("x", "", func(int) *fake {
					f := &fake{events: 10, takes: time.Second, late: -1, log: &log}
					tc.make(f)
					return f
				})
				other, _ := newCell("other", "", steady(10, time.Second))
				o, err := ignoringHost(context.Background(), comparison(c, other), lab.Options{NoAA: true, Rounds: 2})
				if err != nil {
					t.Fatal(err)
				}
				if got := verdicts(o); !strings.HasPrefix(got["x"], tc.want) || got["other"] != "valid" {
					t.Errorf("verdicts %q, want %q and valid", got, tc.want)
				}
				if strings.Join(log, " ") != tc.steps || *plays != 1 {
					t.Errorf("steps %q in %d plays, want %q in one", log, *plays, tc.steps)
				}
				if cl := o.Comparisons[0].Cells[0]; len(cl.Rounds) > 0 || len(cl.Medians) > 0 {
					t.Errorf("figures were kept: %+v", cl)
				}
			})
		})
	}
}

func TestNewError(t *testing.T) {
	for name, build := range map[string]func() (lab.Workload, error){
		"error": func() (lab.Workload, error) { return nil, errors.New("no such variant") },
		"panic": func() (lab.Workload, error) { panic("no such variant") },
		"nil":   func() (lab.Workload, error) { return nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := newCell("x", "", nil)
			c.New = build
			o := must(ignoringHost(context.Background(), comparison(c), lab.Options{NoAA: true, Rounds: 1}))(t)
			if v := o.Comparisons[0].Cells[0].Verdict; v.Status != lab.Invalid || v.Cause != lab.CauseError {
				t.Errorf("verdict %s", v)
			}
		})
	}
}

func TestInterruption(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "results")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 4500*time.Millisecond)
		defer cancel()
		a, _ := newCell("a", "", steady(10, time.Second))
		var log []string
		b, _ := newCell("b", "", func(int) *fake { return &fake{events: 10, takes: time.Second, late: -1, log: &log} })
		last, plays := newCell("last", "", steady(10, time.Second))
		comparisons := append(comparison(a, b), comparison(last)...)
		o := must(ignoringHost(ctx, comparisons, lab.Options{NoAA: true, Rounds: 5, Dir: dir}))(t)
		// 3 s of warm-up, one cell of round 1, and half of the second.
		rounds := len(o.Comparisons[0].Cells[0].Rounds) + len(o.Comparisons[0].Cells[1].Rounds)
		if !o.Interrupted || rounds != 1 || *plays != 1 {
			t.Errorf("interrupted %v, %d rounds kept, the last cell played %d times; want true, 1, 1", o.Interrupted, rounds, *plays)
		}
		if v := o.Comparisons[1].Cells[0].Verdict; v.Status != lab.Unplayed {
			t.Errorf("verdict %s", v)
		}
		if len(o.Failed()) > 0 {
			t.Errorf("the cell in progress counts as failed: %q", o.Failed())
		}
		if n := len(log); n == 0 || log[n-1] != "teardown" {
			t.Errorf("not torn down: %q", log)
		}
	})
	o, err := lab.Load(dir)
	if err != nil || !o.Interrupted || o.Ended == nil {
		t.Errorf("run.json: %v, %+v", err, o)
	}
	if files := readAll(t, dir); strings.Count(files["bench.txt"], "\nBenchmark") != 1 {
		t.Errorf("bench.txt:\n%s", files["bench.txt"])
	}
}

func TestExistingFolderUntouched(t *testing.T) {
	parent := t.TempDir()
	full := filepath.Join(parent, "full")
	noError(t, os.MkdirAll(full, 0o755))
	noError(t, os.WriteFile(filepath.Join(full, lab.RunFile), []byte("precious"), 0o644))
	file := filepath.Join(parent, "file")
	noError(t, os.WriteFile(file, []byte("precious"), 0o644))
	before := readAll(t, parent)
	for _, dir := range []string{full, file, parent, full + "/"} {
		c, plays := newCell("x", "", steady(1, time.Millisecond))
		o, err := ignoringHost(context.Background(), comparison(c), lab.Options{NoAA: true, Rounds: 1, Dir: dir})
		if !errors.Is(err, lab.ErrExists) || !strings.Contains(err.Error(), dir) || o != nil {
			t.Errorf("%s: outcome %v, error %v; want ErrExists with the name", dir, o, err)
		}
		if *plays > 0 {
			t.Errorf("%s: something was played", dir)
		}
	}
	if after := readAll(t, parent); len(after) != len(before) || after["full/run.json"] != "precious" || after["file"] != "precious" {
		t.Errorf("changed from %v to %v", before, after)
	}
}

func TestBadComparisons(t *testing.T) {
	ok := func() lab.Cell {
		c, _ := newCell("x", "", steady(1, time.Millisecond))
		return c
	}
	with := func(change func(*lab.Cell)) []lab.Comparison {
		c := ok()
		change(&c)
		return comparison(c)
	}
	two := ok()
	two.Labels = []lab.Label{{Key: "impl", Value: "y"}, {Key: "keys", Value: "10"}}
	two.Baseline = true
	one := ok()
	one.Baseline = true
	asking := comparison(ok())
	asking[0].NextCells = func([]lab.CellResult) ([]lab.Cell, error) { return nil, nil }
	hook := func(context.Context, lab.Play) error { return nil }
	for name, tc := range map[string]struct {
		comparisons []lab.Comparison
		opts        lab.Options
		want        string
	}{
		"no rounds":        {comparison(ok()), lab.Options{}, "Rounds 0"},
		"budget":           {comparison(ok()), lab.Options{Budget: -1}, "Budget -1ns"},
		"nothing":          {nil, lab.Options{Rounds: 1}, "nothing to compare"},
		"slash":            {with(func(c *lab.Cell) { c.Labels[0].Value = "a/b" }), lab.Options{Rounds: 1}, `a/b`},
		"cell twice":       {comparison(ok(), ok()), lab.Options{Rounds: 1}, "twice"},
		"two baselines":    {comparison(one, two), lab.Options{Rounds: 1}, "both the baseline"},
		"search in budget": {asking, lab.Options{Budget: time.Second}, "it needs Rounds beside the Budget"},
		"hooked search":    {asking, lab.Options{Rounds: 1, BeforeRun: hook}, "number of plays for BeforeRun is unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "results")
			tc.opts.NoAA, tc.opts.Dir = true, dir
			o, err := ignoringHost(context.Background(), tc.comparisons, tc.opts)
			if !errors.Is(err, lab.ErrOptions) || !strings.Contains(err.Error(), tc.want) || o != nil {
				t.Errorf("outcome %v, error %v; want ErrOptions with %q", o, err, tc.want)
			}
			if _, err := os.Stat(dir); err == nil {
				t.Error("the results folder was created")
			}
		})
	}
}

// TestForeignLinks: a results folder from elsewhere with links makes no file outside of it, and is not read for ever.
func TestForeignLinks(t *testing.T) {
	dir, kept := t.TempDir(), filepath.Join(t.TempDir(), "kept")
	noError(t, os.WriteFile(kept, []byte("kept"), 0o600))
	for name, target := range map[string]string{lab.RunFile: os.DevNull, ".report.md.tmp": kept, "report.md": kept} {
		noError(t, os.Symlink(target, filepath.Join(dir, name)))
	}
	if _, err := lab.Load(dir); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("a device for %s: %v", lab.RunFile, err)
	}
	err := lab.ReplaceFile(filepath.Join(dir, "report.md"), func(w io.Writer) error {
		_, err := io.WriteString(w, "new")
		return err
	})
	if text, readErr := os.ReadFile(kept); err != nil || readErr != nil || string(text) != "kept" {
		t.Errorf("a linked file holds %q: %v, %v", text, err, readErr)
	}
}
