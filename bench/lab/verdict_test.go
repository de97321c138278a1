package lab_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"watchlab/bench/lab"
)

func TestVerdicts(t *testing.T) {
	// Each round's time in ms and its share of late releases; the first is the
	// warm-up. -1: no release is reported.
	for name, tc := range map[string]struct {
		rate  string
		takes []int
		late  []float64
		want  string
	}{
		"steady":                   {"", []int{900, 100, 101, 102, 103, 104}, nil, "valid"},
		"rounds lie apart":         {"", []int{900, 100, 100, 110, 130, 150}, nil, "noisy: events/s of the rounds lie 25 % apart (allowed: 10 %)"},
		"one outlier":              {"", []int{900, 100, 100, 100, 100, 900}, nil, "valid"},
		"a single round":           {"", []int{900, 100}, nil, "valid"},
		"rate max":                 {"max", []int{100, 100, 100, 100}, []float64{1, 1, 1, 1}, "valid"},
		"late in the median round": {"2000", []int{100, 100, 100, 100}, []float64{0, 0, 0.02, 0.5}, "invalid: generator: at rate 2000, 2.0 % of the releases were more than 1ms late in the median round (allowed: 1 %)"},
		"late in one of two":       {"2000", []int{100, 100, 100}, []float64{0, 0, 0.5}, "invalid: generator: at rate 2000, 50.0 % of the releases were more than 1ms late in the median round (allowed: 1 %)"},
		"pace without releases":    {"2000", []int{100, 100}, nil, "invalid: generator: no release was reported, so the pace is unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _ := newCell("x", tc.rate, func(n int) *fake {
					f := &fake{events: 1000, takes: time.Duration(tc.takes[n]) * time.Millisecond, late: -1}
					if tc.late != nil {
						f.late = tc.late[n]
					}
					return f
				})
				o, err := ignoringHost(context.Background(), comparison(c), lab.Options{NoAA: true, Rounds: len(tc.takes) - 1})
				if err != nil {
					t.Fatal(err)
				}
				if got := verdicts(o)["x"]; got != tc.want {
					t.Errorf("verdict %q, want %q", got, tc.want)
				}
				cl := o.Comparisons[0].Cells[0]
				if invalid := strings.HasPrefix(tc.want, "invalid"); invalid != (len(cl.Rounds) == 0) {
					t.Errorf("verdict %q with %d rounds", cl.Verdict, len(cl.Rounds))
				}
				if (cl.Lag == nil) != (tc.late == nil) {
					t.Errorf("lag %+v", cl.Lag)
				}
				if len(o.Failed()) > 0 {
					t.Errorf("failed: %q; a late generator does not fail the variant", o.Failed())
				}
			})
		})
	}
}

// TestBudget: the workload sets the budget of a release. The verdict reports the
// releases that missed the schedule.
func TestBudget(t *testing.T) {
	for budget, want := range map[time.Duration]string{
		10 * time.Millisecond: "valid",
		2 * time.Millisecond: "invalid: generator: at rate 5, 50.0 % of the releases were more than 2ms late in the median round (allowed: 1 %)" +
			"; 500 of 1000 had not been released when the schedule was over",
	} {
		synctest.Test(t, func(t *testing.T) {
			c, _ := newCell("x", "5", func(int) *fake {
				return &fake{events: 1000, takes: time.Second, late: 0.5, budget: budget}
			})
			o := must(ignoringHost(context.Background(), comparison(c), lab.Options{NoAA: true, Rounds: 1}))(t)
			if got := verdicts(o)["x"]; got != want {
				t.Errorf("with a budget of %v: verdict %q, want %q", budget, got, want)
			}
		})
	}
}

// TestVerdictChanges: a paced cell that is late only in its first rounds has no figures
// meanwhile, and all of them in the end.
func TestVerdictChanges(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "results")
	const name = "Queue/impl=x/keys=10/rate=2000"
	var lines []int
	synctest.Test(t, func(t *testing.T) {
		late := []float64{0, 0, 0.5, 0.5, 0, 0}
		c, _ := newCell("x", "2000", func(n int) *fake {
			return &fake{events: 1000, takes: time.Second, late: late[n]}
		})
		_, err := ignoringHost(context.Background(), comparison(c), lab.Options{NoAA: true, Rounds: 5, Dir: dir, Progress: func(p lab.Progress) {
			if p.Finished && p.Round > 0 {
				lines = append(lines, benchLines(readAll(t, dir)["bench.txt"], name))
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
	})
	want := []int{1, 0, 0, 0, 5} // of an even number of rounds the worse middle one counts
	for i, n := range lines {
		if n != want[i] {
			t.Errorf("lines of bench.txt after each round: %v, want %v", lines, want)
			break
		}
	}
	if files := readAll(t, dir); len(holding(files, "HISTFAAAA")) != 1 {
		t.Errorf("no histograms in %v", holding(files, ""))
	}
}
