package lab_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
)

// playLog records the current round of a run and the number of plays per cell and round.
type playLog struct {
	round int
	plays map[string]int
	n, at int
	stop  func()
}

func (s *playLog) progress(p lab.Progress) {
	if p.Finished {
		return
	}
	s.round = p.Round
	s.plays[fmt.Sprintf("%s#%d", p.Cell, p.Round)]++
}

// cell returns a cell whose lag, verdict and duration depend on the current round.
func (s *playLog) cell(impl, rate string, late func(round int) float64, check func(round int) error) lab.Cell {
	c, _ := newCell(impl, rate, func(int) *fake {
		round := s.round
		f := &fake{events: 1000, takes: time.Duration(100+round) * time.Millisecond, late: -1}
		if late != nil {
			f.late = late(round)
		}
		f.run = func(context.Context) error {
			if s.n++; s.n == s.at {
				s.stop()
			}
			return nil
		}
		if check != nil {
			f.check = func() error { return check(round) }
		}
		return f
	})
	return c
}

// varied returns comparisons with every case that resuming must handle: a cell with
// figures withheld for a while, a cell that is late to the end, a cell that loses an
// event, and requested cells.
func (s *playLog) varied() []lab.Comparison {
	first := comparison(
		s.cell("good", "", nil, nil),
		s.cell("plays", "2000", func(round int) float64 {
			if round == 1 {
				return 0.5
			}
			return 0
		}, nil),
		s.cell("late", "2000", func(int) float64 { return 0.5 }, nil),
		s.cell("loses", "", nil, func(round int) error {
			if round == 2 {
				return lab.ErrLost
			}
			return nil
		}),
	)
	first[0].Input = "digest"
	first[0].NextCells = func(played []lab.CellResult) ([]lab.Cell, error) {
		if len(played) > 5 {
			return nil, nil
		}
		// The requested cells depend on the earlier results.
		name := "more"
		for _, c := range played {
			name += fmt.Sprintf("-%d%s", len(c.Rounds), strings.ReplaceAll(c.Verdict.Short(), ": ", "-"))
		}
		return []lab.Cell{s.cell(name, "", nil, nil)}, nil
	}
	return append(first, comparison(s.cell("second", "", nil, nil))...)
}

// sum returns the results of a finished run without its times.
func sum(o *lab.Outcome) string {
	var b strings.Builder
	for _, c := range o.Comparisons {
		for _, cl := range c.Cells {
			fmt.Fprintf(&b, "%s again=%q %s", cl.BenchName(), cl.Repeats, cl.Verdict)
			for _, r := range cl.Rounds {
				fmt.Fprintf(&b, " %d@%d:%v", r.Round, r.Place, r.Result.Elapsed)
			}
			for _, l := range cl.Latency {
				fmt.Fprintf(&b, " %s %d %d..%d", l.Boundary, l.Count, l.Min, l.Max)
			}
			fmt.Fprintf(&b, " %v\n", cl.Medians["events/s"].Median)
		}
	}
	return b.String()
}

// TestResumeGivesSameResult interrupts a run at one play in ten, and again
// soon after. It resumes the run and compares it with an uninterrupted one.
func TestResumeGivesSameResult(t *testing.T) {
	t.Parallel()
	const rounds = 3
	var whole string
	plays := 0
	synctest.Test(t, func(t *testing.T) {
		s := &playLog{plays: map[string]int{}}
		o, err := ignoringHost(context.Background(), s.varied(), lab.Options{Rounds: rounds, Seed: 5, Progress: s.progress})
		if err != nil {
			t.Fatal(err)
		}
		whole, plays = sum(o), s.n
	})
	if plays < 28 || strings.Count(whole, "\n") != 8 || !strings.Contains(whole, "more-3valid-3valid-0invalid-generator-0invalid-lost-3valid") {
		t.Fatalf("%d plays:\n%s", plays, whole)
	}
	for at := 1; at <= plays; at += 10 {
		dir := filepath.Join(t.TempDir(), "results")
		synctest.Test(t, func(t *testing.T) {
			kept, failed := map[string]int{}, map[string]bool{}
			opts := lab.Options{Rounds: rounds, Seed: 5, Dir: dir}
			var o *lab.Outcome
			sessions := 0
			for at := at; o == nil || o.Interrupted; at = 3 {
				// The second session is interrupted early, too.
				ctx, cancel := context.WithCancel(context.Background())
				s := &playLog{plays: map[string]int{}, at: at, stop: cancel}
				if sessions > 1 {
					s.at = 0
				}
				opts.Progress, opts.Resume = s.progress, sessions > 0
				var err error
				o, err = ignoringHost(ctx, s.varied(), opts)
				cancel()
				if err != nil {
					t.Fatalf("interrupted at play %d: session %d: %v", at, sessions, err)
				}
				for _, c := range o.Comparisons {
					for _, cl := range c.Cells {
						if n := s.plays[cl.BenchName()+"#1"]; failed[cl.BenchName()] && n > 0 {
							t.Errorf("interrupted at play %d: failed cell %s was played again", at, cl.BenchName())
						}
						failed[cl.BenchName()] = cl.Verdict.Failed()
						for _, r := range cl.Rounds {
							key := fmt.Sprintf("%s#%d", cl.BenchName(), r.Round)
							if have, ok := kept[key]; ok && s.plays[key] > 0 {
								t.Errorf("interrupted at play %d: %s was finished in session %d but played again in %d", at, key, have, sessions)
							} else if !ok {
								kept[key] = sessions
							}
						}
					}
				}
				sessions++
			}
			if got := sum(o); got != whole {
				t.Errorf("interrupted at play %d: got\n%s\nwant\n%s", at, got, whole)
			}
			if want := sessions - 1; len(o.Env.Resumed) != want {
				t.Errorf("resumed %d times, env.json has %d", want, len(o.Env.Resumed))
			}
			loaded, err := lab.Load(dir)
			if err != nil || sum(loaded) != whole {
				t.Errorf("loaded, %v:\n%s", err, sum(loaded))
			}
			files := readAll(t, dir)
			for _, c := range o.Comparisons {
				for _, cl := range c.Cells {
					if n := benchLines(files[lab.BenchFile], cl.BenchName()); n != len(cl.Rounds) {
						t.Errorf("%d lines of %s in bench.txt, for %d rounds", n, cl.BenchName(), len(cl.Rounds))
					}
				}
			}
			for name := range files {
				if strings.HasPrefix(filepath.Base(name), ".") {
					t.Errorf("%s was left", name)
				}
			}
		})
		if t.Failed() {
			return
		}
	}
}

// TestResumeRefuses: resuming rejects a different run.
func TestResumeRefuses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "results")
	run := func(change func([]lab.Comparison, *lab.Options)) (*lab.Outcome, error) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		s := &playLog{plays: map[string]int{}, at: 9, stop: cancel}
		c := s.varied()
		opts := lab.Options{Rounds: 4, Seed: 5, Dir: dir, Build: lab.Build{Commit: "abc"}, Progress: s.progress}
		if change != nil {
			opts.Resume = true
			change(c, &opts)
		}
		return ignoringHost(ctx, c, opts)
	}
	synctest.Test(t, func(t *testing.T) {
		if _, err := run(nil); err != nil {
			t.Fatal(err)
		}
	})
	before := readAll(t, dir)
	for name, tc := range map[string]struct {
		change func([]lab.Comparison, *lab.Options)
		want   string
	}{
		"commit": {func(_ []lab.Comparison, o *lab.Options) { o.Build.Commit = "def" }, "the program's commit was abc, and is def"},
		"rounds": {func(_ []lab.Comparison, o *lab.Options) { o.Rounds = 5 }, "Rounds was 4, and is 5"},
		"seed":   {func(_ []lab.Comparison, o *lab.Options) { o.Seed = 6 }, "Seed was 5, and is 6"},
		"fresh": {func(_ []lab.Comparison, o *lab.Options) {
			o.PlayInFreshProcess = func(context.Context, string) (cell.Result, error) { return cell.Result{}, nil }
		}, "a process for each play was false, and is true"},
		"budget":      {func(_ []lab.Comparison, o *lab.Options) { o.Budget = time.Minute }, "Budget was 0s, and is 1m0s"},
		"no A/A pair": {func(_ []lab.Comparison, o *lab.Options) { o.NoAA = true }, "Queue/impl=good-again/keys=10 was played but is not in the experiment now"},
		"input":       {func(c []lab.Comparison, _ *lab.Options) { c[0].Input = "other" }, "the input of comparison queue was digest, and is other"},
		"a label": {func(c []lab.Comparison, _ *lab.Options) { c[0].Cells[0].Labels[1].Value = "11" },
			"a cell was Queue/impl=good/keys=10, and is Queue/impl=good/keys=11"},
		"no folder": {func(_ []lab.Comparison, o *lab.Options) { o.Dir += "-nowhere" }, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, err := run(tc.change)
				if o != nil || err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("outcome %v, error %v; want %q", o, err, tc.want)
				}
				if strings.Contains(tc.want, "was") && !errors.Is(err, lab.ErrResume) {
					t.Errorf("%v is not ErrResume", err)
				}
			})
		})
	}
	if after := readAll(t, dir); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Error("the folder was changed")
	}
	noError(t, os.WriteFile(filepath.Join(dir, lab.RunFile), []byte("{"), 0o644))
	if o, err := run(func([]lab.Comparison, *lab.Options) {}); o != nil || err == nil || !strings.Contains(err.Error(), "not a run's file") {
		t.Errorf("outcome %v, error %v", o, err)
	}
}

// TestConcurrentResume: two runs cannot write to the same folder.
func TestConcurrentResume(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "results")
	synctest.Test(t, func(t *testing.T) {
		opts := lab.Options{Rounds: 1, Dir: dir}
		var second error
		c, _ := newCell("x", "", func(n int) *fake {
			if n == 1 {
				again, _ := newCell("x", "", steady(1, time.Second))
				opts.Resume = true
				_, second = ignoringHost(context.Background(), comparison(again), opts)
			}
			return steady(1, time.Second)(n)
		})
		if _, err := ignoringHost(context.Background(), comparison(c), opts); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(second, lab.ErrResume) || !strings.Contains(second.Error(), "a run is writing to it") {
			t.Errorf("the second: %v", second)
		}
	})
}

// TestResumeEndedRun: resuming a finished run plays nothing and returns its results.
func TestResumeEndedRun(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "results")
	synctest.Test(t, func(t *testing.T) {
		s := &playLog{plays: map[string]int{}}
		opts := lab.Options{Rounds: 2, Dir: dir, Progress: s.progress}
		o := must(ignoringHost(context.Background(), s.varied(), opts))(t)
		before, played := readAll(t, dir), s.n
		opts.Resume = true
		again, err := ignoringHost(context.Background(), s.varied(), opts)
		if err != nil || s.n != played || sum(again) != sum(o) {
			t.Errorf("%v, %d plays more, got\n%s\nwant\n%s", err, s.n-played, sum(again), sum(o))
		}
		if after := readAll(t, dir); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Error("the folder was changed")
		}
	})
}

// TestResumeAfterAnError: a run that ended with an error of NextCells can be resumed.
func TestResumeAfterAnError(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "results")
	synctest.Test(t, func(t *testing.T) {
		opts := lab.Options{Rounds: 3, Dir: dir}
		for session := range 2 {
			c, _ := newCell("x", "", steady(10, time.Second))
			cs := comparison(c)
			cs[0].NextCells = func([]lab.CellResult) ([]lab.Cell, error) {
				if session == 0 {
					return nil, errors.New("no answer")
				}
				return nil, nil
			}
			opts.Resume = session > 0
			o, err := ignoringHost(context.Background(), cs, opts)
			if o == nil || (err == nil) != (session > 0) || o.Interrupted != (session == 0) {
				t.Fatalf("session %d: %v, %+v", session, err, o)
			}
			if n := len(o.Comparisons[0].Cells[0].Rounds); n != 3 {
				t.Errorf("session %d: %d rounds, want 3", session, n)
			}
		}
	})
}

// TestPriceOfEachProcess: each process measures the price of garbage. One price for all would shift all
// figures of a run, which no interval of its processes contains.
func TestPriceOfEachProcess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "results")
	synctest.Test(t, func(t *testing.T) {
		price := cell.MeasureGCPrice().NsPerByte
		for session := range 2 {
			ctx, cancel := context.WithCancel(context.Background())
			s := &playLog{plays: map[string]int{}, stop: cancel}
			if session == 0 {
				s.at = 3
			}
			opts := lab.Options{Rounds: 2, Seed: 5, Dir: dir, Progress: s.progress, Resume: session > 0}
			o, err := ignoringHost(ctx, s.varied(), opts)
			cancel()
			if err != nil {
				t.Fatal(err)
			}
			if session == 0 {
				o.Env.GCNsPerByte = price + 7
				noError(t, o.Save(dir))
			}
			for _, cl := range o.Cells() {
				for _, r := range cl.Rounds {
					if got := r.Result.GCNsPerByte; session > 0 && got != price && r.Round > 1 {
						t.Errorf("session %d, %s round %d: price %v, want %v", session, cl.BenchName(), r.Round, got, price)
					}
				}
			}
			if session > 0 && o.Env.GCNsPerByte != price {
				t.Errorf("env.json has the price %v, want that of this process, %v", o.Env.GCNsPerByte, price)
			}
		}
	})
}
