package lab_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"watchlab/bench/lab"
)

// TestAAPair: each comparison plays one of its cells twice.
func TestAAPair(t *testing.T) {
	t.Parallel()
	base := func(impl, rate string) lab.Cell {
		c, _ := newCell(impl, rate, steady(10, time.Second))
		c.Baseline, c.Class = true, "total"
		return c
	}
	plain := func(impl, rate string) lab.Cell {
		c := base(impl, rate)
		c.Baseline = false
		return c
	}
	nameless, _ := newCell("", "", steady(10, time.Second))
	nameless.Labels = []lab.Label{{Key: "keys", Value: "10"}}
	for name, tc := range map[string]struct {
		cells    []lab.Cell
		of, like string
	}{
		"no baseline": {
			[]lab.Cell{plain("a", "100"), plain("b", "")},
			"Queue/impl=a/keys=10/rate=100", "Queue/impl=a-again/keys=10/rate=100",
		},
		"an unpaced baseline": {
			[]lab.Cell{plain("a", "max"), base("b", "100"), base("b", "max"), base("c", "max")},
			"Queue/impl=b/keys=10/rate=max", "Queue/impl=b-again/keys=10/rate=max",
		},
		"no variant": {
			[]lab.Cell{nameless},
			"Queue/keys=10", "Queue/keys=10/impl=Queue-again",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := comparison(tc.cells...)
				if len(tc.cells) > 1 && tc.cells[0].Labels[0].Value == tc.cells[1].Labels[0].Value {
					t.Fatal("two cells of one name")
				}
				for i := range c[0].Cells {
					// The two baselines have different knobs.
					if i > 2 {
						c[0].Cells[i].Name = "Other"
					}
				}
				o := must(ignoringHost(context.Background(), c, lab.Options{Rounds: 3}))(t)
				cells := o.Comparisons[0].Cells
				if len(cells) != len(tc.cells)+1 {
					t.Fatalf("%d cells, want one more than %d", len(cells), len(tc.cells))
				}
				for _, cl := range cells[:len(tc.cells)] {
					if cl.Repeats != "" {
						t.Errorf("%s is not planned to repeat %s", cl.BenchName(), cl.Repeats)
					}
				}
				again := cells[len(tc.cells)]
				if again.Repeats != tc.of || again.BenchName() != tc.like || again.Baseline {
					t.Errorf("%s repeats %s (baseline %v), want %s repeating %s", again.BenchName(), again.Repeats, again.Baseline, tc.like, tc.of)
				}
				for _, cl := range cells {
					if cl.BenchName() == tc.of && (cl.Class != again.Class || len(again.Rounds) != len(cl.Rounds)) {
						t.Errorf("the pair is %+v and %+v", cl, again)
					}
				}
			})
		})
	}
}
