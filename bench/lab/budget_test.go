package lab_test

import (
	"context"
	"maps"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"watchlab/bench/lab"
)

// TestTimeBudget: a run plays as many rounds of all comparisons as fit and at least one.
func TestTimeBudget(t *testing.T) {
	t.Parallel()
	one := func(impl string, takes time.Duration) lab.Comparison {
		c, _ := newCell(impl, "", steady(10, takes))
		return comparison(c)[0]
	}
	for name, tc := range map[string]struct {
		budget      time.Duration
		cap         int
		comparisons []lab.Comparison
		rounds      []int
		took        time.Duration
	}{
		"it all fits once": {10 * time.Second, 0, []lab.Comparison{one("a", time.Second)}, []int{9}, 10 * time.Second},
		"none fits":        {time.Nanosecond, 0, []lab.Comparison{one("a", time.Second), one("b", 2*time.Second)}, []int{1, 1}, 6 * time.Second},
		"two comparisons":  {20 * time.Second, 0, []lab.Comparison{one("a", time.Second), one("b", 5*time.Second)}, []int{2, 2}, 18 * time.Second},
		"with a cap":       {time.Minute, 3, []lab.Comparison{one("a", time.Second)}, []int{3}, 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				o, err := ignoringHost(context.Background(), tc.comparisons, lab.Options{
					Budget: tc.budget, Rounds: tc.cap, NoAA: true,
					Progress: func(p lab.Progress) {
						if want := max(tc.budget-time.Since(start), 0); p.Left != want || p.Total != 0 {
							t.Errorf("%v left of %d plays after %v, want %v", p.Left, p.Total, time.Since(start), want)
						}
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				most := 0
				for i, c := range o.Comparisons {
					if len(c.Cells[0].Rounds) != tc.rounds[i] || c.Rounds != tc.rounds[i] {
						t.Errorf("comparison %d: %d rounds, outcome has %d; want %d", i, len(c.Cells[0].Rounds), c.Rounds, tc.rounds[i])
					}
					most = max(most, tc.rounds[i])
				}
				if took := time.Since(start); took != tc.took || o.Spent != took || o.Rounds != most || o.Budget != tc.budget {
					t.Errorf("took %v, outcome has %v and %d rounds; want %v and %d", took, o.Spent, o.Rounds, tc.took, most)
				}
				if finished, all := o.Finished(); finished != all || o.Interrupted {
					t.Errorf("%d of %d cells are finished", finished, all)
				}
			})
		})
	}
}

// TestBudgetRetries: every comparison gets all its rounds before the cells of NextCells
// get any. These share the time that is left, and get all their rounds if it allows.
func TestBudgetRetries(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		budget time.Duration
		rounds string
	}{
		// A round of the first phase takes 7 s, one of the second 3 s.
		"enough for a test": {55 * time.Second, "dear:4 cheap:4 dear-slower:4 cheap-slower:4"},
		"enough for some":   {42 * time.Second, "dear:4 cheap:4 dear-slower:2 cheap-slower:2"},
		"nothing is left":   {35 * time.Second, "dear:4 cheap:4"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var comparisons []lab.Comparison
				for impl, takes := range map[string][2]time.Duration{"dear": {6 * time.Second, 2 * time.Second}, "cheap": {time.Second, time.Second}} {
					c, _ := newCell(impl, "", steady(10, takes[0]))
					with := comparison(c)[0]
					with.NextCells = func(played []lab.CellResult) ([]lab.Cell, error) {
						if len(played) > 1 {
							return nil, nil
						}
						slower, _ := newCell(impl+"-slower", "", steady(10, takes[1]))
						slower.Labels[0].Value = impl
						slower.Name = "Slower"
						return []lab.Cell{slower}, nil
					}
					comparisons = append(comparisons, with)
				}
				start := time.Now()
				o, err := ignoringHost(context.Background(), comparisons, lab.Options{Budget: tc.budget, Rounds: 4, NoAA: true})
				if err != nil {
					t.Fatal(err)
				}
				got := map[string]int{}
				for _, c := range o.Comparisons {
					for _, cl := range c.Cells {
						name := cl.Label("impl")
						if cl.Name == "Slower" {
							name += "-slower"
						}
						got[name] = len(cl.Rounds)
					}
				}
				want := map[string]int{}
				for f := range strings.FieldsSeq(tc.rounds) {
					name, n, _ := strings.Cut(f, ":")
					want[name], _ = strconv.Atoi(n)
				}
				if !maps.Equal(got, want) || time.Since(start) > tc.budget {
					t.Errorf("rounds %v after %v, want %v", got, time.Since(start), want)
				}
			})
		})
	}
}

// TestBudgetBrokenCells: skipped cells take no time and do not extend the run.
func TestBudgetBrokenCells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad, _ := newCell("bad", "", func(int) *fake {
			return &fake{events: 1, takes: time.Second, late: -1, check: func() error { return lab.ErrLost }}
		})
		o, err := ignoringHost(context.Background(), comparison(bad), lab.Options{Budget: time.Hour, NoAA: true})
		if err != nil || !o.Comparisons[0].Cells[0].Verdict.Failed() {
			t.Errorf("%v: %+v", err, o)
		}
	})
}

// TestBudgetResumed: the time before the resumption counts.
func TestBudgetResumed(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "results")
	synctest.Test(t, func(t *testing.T) {
		opts := lab.Options{Budget: 20 * time.Second, Dir: dir}
		run := func(limit time.Duration) *lab.Outcome {
			a, _ := newCell("a", "", steady(10, time.Second))
			b, _ := newCell("b", "", steady(10, time.Second))
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			o := must(ignoringHost(ctx, comparison(a, b), opts))(t)
			return o
		}
		// The end interrupts the run after the warm-up, two rounds of three cells,
		// and half a cell.
		if o := run(8500 * time.Millisecond); !o.Interrupted || o.Rounds != 3 || len(o.Comparisons[0].Cells[0].Rounds) != 2 {
			t.Fatalf("%+v", o)
		}
		opts.Resume = true
		// 10 s of 20 are left for a warm-up, the third round and two more.
		o := run(time.Hour)
		if c := o.Comparisons[0]; o.Interrupted || c.Rounds != 5 || o.Spent > 20*time.Second {
			t.Errorf("%d rounds in %v", c.Rounds, o.Spent)
		}
		for _, c := range o.Comparisons[0].Cells {
			if len(c.Rounds) != 5 {
				t.Errorf("%s has %d rounds", c.BenchName(), len(c.Rounds))
			}
		}
	})
}
