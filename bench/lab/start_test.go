package lab_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"watchlab/bench/lab"
)

// hooked plays comparisons of steady cells and returns the plays that the hook got. One
// cell breaks an invariant from a round on.
func hooked(t *testing.T, broken string, from int) []lab.Play {
	t.Helper()
	var plays []lab.Play
	synctest.Test(t, func(t *testing.T) {
		var comparisons []lab.Comparison
		for _, family := range []string{"One", "Other"} {
			var cells []lab.Cell
			for _, impl := range []string{"a", "b", "c"} {
				c, _ := newCell(impl, "", func(n int) *fake {
					f := &fake{events: 1, takes: time.Second, late: -1}
					if impl == broken && n >= from {
						f.check = func() error { return lab.ErrLost }
					}
					return f
				})
				c.Name = family
				cells = append(cells, c)
			}
			comparisons = append(comparisons, lab.Comparison{Family: family, Title: "fakes", Cells: cells})
		}
		if n := lab.Plays(comparisons, lab.Options{Rounds: 2}); n != 2*3*4 {
			t.Errorf("%d plays are foreseen", n)
		}
		_, err := ignoringHost(context.Background(), comparisons, lab.Options{
			Rounds: 2, Seed: 3,
			BeforeRun: func(_ context.Context, p lab.Play) error {
				plays = append(plays, p)
				return nil
			},
		})
		if err != nil {
			t.Error(err)
		}
	})
	return plays
}

// TestPlayPosition: all processes meet at the same plays, even if different cells broke in them.
func TestPlayPosition(t *testing.T) {
	t.Parallel()
	whole := hooked(t, "", 0)
	if len(whole) != 2*3*4 {
		t.Fatalf("%d plays, want 3 rounds of 2 comparisons with 3 cells and an A/A cell", len(whole))
	}
	for i, p := range whole {
		if p.Position != i {
			t.Errorf("play %d has position %d", i, p.Position)
		}
	}
	if p := whole[4]; p.Comparison != 1 || p.Round != 0 || !strings.HasPrefix(p.Cell, "Other/impl=") {
		t.Errorf("play 4 is %+v", p)
	}
	without := hooked(t, "b", 1)
	if len(without) >= len(whole) {
		t.Fatalf("%d plays with a broken cell, %d without", len(without), len(whole))
	}
	for _, p := range without {
		if whole[p.Position] != p {
			t.Errorf("position %d is %+v, want %+v as without the broken cell", p.Position, p, whole[p.Position])
		}
	}
}

func TestBeforeRunFollowsSetup(t *testing.T) {
	var log []string
	cell, _ := newCell("a", "", func(int) *fake { return &fake{events: 1, takes: 1, late: -1, log: &log} })
	broken := errors.New("barrier timeout")
	rounds := 0
	synctest.Test(t, func(t *testing.T) {
		o, err := ignoringHost(context.Background(), comparison(cell), lab.Options{
			Rounds: 1, NoAA: true,
			BeforeRun: func(context.Context, lab.Play) error {
				log = append(log, "hook")
				if rounds++; rounds == 2 {
					return broken
				}
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if v := o.Comparisons[0].Cells[0].Verdict.String(); v != "invalid: error: start: barrier timeout" {
			t.Errorf("the verdict is %q", v)
		}
	})
	want := strings.Fields("setup hook run check teardown setup hook teardown")
	if !slices.Equal(log, want) {
		t.Errorf("steps %v, want %v", log, want)
	}
}

// TestBeforeRunCancelled: an interrupt ends a waiting round.
func TestBeforeRunCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := newCell("a", "", steady(1, time.Second))
		b, _ := newCell("b", "", steady(1, time.Second))
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		o, err := ignoringHost(ctx, comparison(a, b), lab.Options{Rounds: 1, BeforeRun: func(ctx context.Context, _ lab.Play) error {
			<-ctx.Done()
			return ctx.Err()
		}})
		if err != nil || !o.Interrupted {
			t.Errorf("%v, interrupted %v", err, o.Interrupted)
		}
	})
}
