package lab_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// dealt plays a run to its end, each process as a call of Run, and returns the processes of a cell's
// rounds, as in "1 1 2". Process kill, from 1, is interrupted at its second play after two warm-ups.
func dealt(t *testing.T, opts lab.Options, kill int, takes time.Duration) (string, *lab.Outcome) {
	t.Helper()
	for process := 1; process < 50; process++ {
		ctx, cancel := context.WithCancel(context.Background())
		plays := 0
		player := func(int) *fake {
			return &fake{events: 10, takes: takes, late: -1, run: func(context.Context) error {
				if plays++; process == kill && plays == 4 {
					cancel()
				}
				return nil
			}}
		}
		a, _ := newCell("a", "", player)
		b, _ := newCell("b", "", player)
		o, err := ignoringHost(ctx, comparison(a, b), opts)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		opts.Resume = true
		if o.Interrupted != (process == kill) || o.Interrupted && o.Paused || (o.Ended == nil) != o.Paused {
			t.Fatalf("process %d: interrupted %v, paused %v, ended %v", process, o.Interrupted, o.Paused, o.Ended)
		}
		if o.Paused || o.Interrupted {
			continue
		}
		loaded := must(lab.Load(opts.Dir))(t)
		if n := len(loaded.Env.Resumed); loaded.Env.Processes != process || n != min(kill, 1) {
			t.Errorf("env: %d processes, %d resumptions after %d processes", loaded.Env.Processes, n, process)
		}
		var processes []string
		for i, r := range loaded.Comparisons[0].Cells[0].Rounds {
			if r.Round != i+1 {
				t.Errorf("round %d in place %d", r.Round, i)
			}
			processes = append(processes, fmt.Sprint(r.Process))
		}
		return strings.Join(processes, " "), loaded
	}
	t.Fatal("no end")
	return "", nil
}

// TestDealing: process k plays rounds up to ceil(Rounds×k/Processes), or until its share of the budget
// is spent. The last one plays as long as there is time.
func TestDealing(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine plays all of it")
	}
	t.Parallel()
	for _, tc := range []struct {
		rounds, processes int
		budget            time.Duration
		kill              int
		want              string
	}{
		{rounds: 5, processes: 1, want: "1 1 1 1 1"},
		{rounds: 5, processes: 5, want: "1 2 3 4 5"},
		{rounds: 5, processes: 9, want: "1 2 3 4 5"},
		{rounds: 5, processes: 2, want: "1 1 1 2 2"},
		{rounds: 10, processes: 4, want: "1 1 1 2 2 3 3 3 4 4"},
		// Interrupted in the first round: another process finishes the share.
		{rounds: 4, processes: 2, kill: 1, want: "2 2 3 3"},
		{rounds: 4, processes: 4, kill: 2, want: "1 2 4 5"},
		// A round of three cells takes 3 s, a warm-up of one 1 s.
		{processes: 5, budget: 60 * time.Second, want: "1 1 1 2 2 2 3 3 3 3 4 4 4 4 5 5 5 5"},
		{processes: 5, budget: 30 * time.Second, want: "1 2 3 3 4 4 5 5"},
		{processes: 5, budget: 17 * time.Second, want: "1 2 3 3"},
		{processes: 5, budget: time.Second, want: "1"},
		{rounds: 4, processes: 2, budget: time.Hour, want: "1 1 2 2"},
		{rounds: 20, processes: 2, budget: 26 * time.Second, want: "1 1 1 1 2 2 2 2"},
	} {
		t.Run(fmt.Sprintf("%d rounds, %d processes, budget %v, killed %d", tc.rounds, tc.processes, tc.budget, tc.kill), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "results")
			synctest.Test(t, func(t *testing.T) {
				got, o := dealt(t, lab.Options{Rounds: tc.rounds, Processes: tc.processes, Budget: tc.budget, Dir: dir, Seed: 3}, tc.kill, time.Second)
				if got != tc.want {
					t.Errorf("rounds of processes %s, want %s", got, tc.want)
				}
				values := len(slices.Compact(strings.Fields(got)))
				if tc.processes < 2 {
					values = len(strings.Fields(got))
				}
				name := o.Comparisons[0].Cells[0].BenchName()
				if n := benchFile(t, dir)[name]; n != values || o.Comparisons[0].Cells[0].Medians[stats.UnitNsPerOp].N != values {
					t.Errorf("%d lines in bench.txt, want %d", n, values)
				}
				if tc.budget > 20*time.Second && tc.rounds == 0 && o.Spent > tc.budget {
					t.Errorf("%v spent of %v", o.Spent, tc.budget)
				}
			})
		})
	}
}

// TestDealingNextCells: the cells that NextCells returns are shared among processes, too, and warm up in each of
// them. Progress goes on over all processes.
func TestDealingNextCells(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "results")
	synctest.Test(t, func(t *testing.T) {
		opts := lab.Options{Rounds: 3, Processes: 3, Dir: dir, NoAA: true}
		last, spent, warmUps := 0, time.Duration(0), map[string]int{}
		opts.Progress = func(p lab.Progress) {
			if p.Done < last || p.Finished && p.Round > 0 && p.Done != last+1 || p.Spent < spent {
				t.Errorf("%s, round %d: %d done after %d, %v spent after %v", p.Cell, p.Round, p.Done, last, p.Spent, spent)
			}
			spent = p.Spent
			if last = p.Done; p.Round == 0 && p.Finished {
				warmUps[p.Cell]++
			}
		}
		for process := 1; ; process++ {
			a, _ := newCell("a", "", steady(10, time.Second))
			cs := comparison(a)
			cs[0].NextCells = func(played []lab.CellResult) ([]lab.Cell, error) {
				half, _ := newCell("a", "5", func(int) *fake { return &fake{events: 10, takes: time.Second} })
				half.Labels[1].Value = "half"
				return []lab.Cell{half}[:min(2-len(played), 1)], nil
			}
			o := must(ignoringHost(context.Background(), cs, opts))(t)
			if opts.Resume = true; o.Paused {
				continue
			}
			for i, want := range []string{"[1 2 3]", "[3 4 5]"} {
				var got []int
				for _, r := range o.Comparisons[0].Cells[i].Rounds {
					got = append(got, r.Process)
				}
				if fmt.Sprint(got) != want {
					t.Errorf("cell %d: processes %v, want %s", i, got, want)
				}
			}
			break
		}
		if want := map[string]int{"Queue/impl=a/keys=10": 3, "Queue/impl=a/keys=half/rate=5": 2}; !maps.Equal(warmUps, want) {
			t.Errorf("warm-ups %v, want %v", warmUps, want)
		}
	})
}

// TestWarmUps: a warm-up plays one cell for each variant and each benchmark with its knobs, unpaced if possible.
func TestWarmUps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var cells []lab.Cell
		for _, c := range []struct{ name, impl, rate string }{
			{"Queue", "a", "5"}, {"Queue", "a", "max"}, {"Queue", "b", "5"}, {"Queue", "b", "6"}, {"Informer", "a", "5"}, {"Queue", "b", "max"},
		} {
			cl, _ := newCell(c.impl, c.rate, steady(1000, time.Second))
			cl.Name = c.name
			cells = append(cells, cl)
		}
		got := map[string]bool{}
		_, err := ignoringHost(context.Background(), comparison(cells...), lab.Options{Rounds: 1, Progress: func(p lab.Progress) {
			if p.Round == 0 {
				got[p.Cell] = true
			}
		}})
		want := "Informer/impl=a/keys=10/rate=5 Queue/impl=a/keys=10/rate=max Queue/impl=b/keys=10/rate=max"
		if all := strings.Join(slices.Sorted(maps.Keys(got)), " "); err != nil || all != want {
			t.Errorf("%v: warm-ups of %s, want %s", err, all, want)
		}
	})
}

// TestFalseAlarmsOfProcesses: with 3 % between processes and 1 % between rounds, two runs of one program
// differ significantly in at most 6 % of pairs if the processes are the replicates, and far more often
// if the rounds are.
func TestFalseAlarmsOfProcesses(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	const runs, processes, rounds = 500, 5, 4
	share := func(processes, rounds int, byProcess bool) float64 {
		draw := func() []float64 {
			c := lab.CellResult{ByProcess: byProcess}
			for p := range processes {
				level := 1e6 * math.Exp(0.03*rng.NormFloat64())
				for range rounds {
					speed := level * math.Exp(0.01*rng.NormFloat64())
					c.Rounds = append(c.Rounds, lab.Round{Process: p + 1, Result: cell.Result{EventsIn: 1000, Elapsed: time.Second, EventsPerSecond: speed}})
				}
			}
			return c.Samples()[stats.UnitEventsPerSec]
		}
		alarms := 0
		for range runs {
			if stats.Compare(draw(), draw()).Significant {
				alarms++
			}
		}
		return float64(alarms) / runs
	}
	for _, tc := range []struct {
		name              string
		processes, rounds int
		byProcess         bool
		least, most       float64
	}{
		{"a process is a replicate", processes, rounds, true, 0.01, 0.06},
		{"a round in each process", processes, 1, true, 0.01, 0.06},
		{"rounds of several processes as replicates", processes, rounds, false, 0.2, 1},
		{"one process", 1, processes, false, 0.5, 1},
	} {
		got := share(tc.processes, tc.rounds, tc.byProcess)
		t.Logf("%s: %.1f %% false alarms", tc.name, got*100)
		if got < tc.least || got > tc.most {
			t.Errorf("%s: %.1f %% false alarms, want %.0f to %.0f %%", tc.name, got*100, tc.least*100, tc.most*100)
		}
	}
}
