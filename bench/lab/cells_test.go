package lab_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// at returns the cell of a variant at a number of keys.
func at(impl string, keys int, p player) lab.Cell {
	c, _ := newCell(impl, "", p)
	c.Labels = []lab.Label{{Key: "impl", Value: impl}, {Key: "keys", Value: fmt.Sprint(keys)}}
	return c
}

// TestNextCells: each batch is played over all rounds and interleaved by itself. NextCells gets
// all earlier results.
func TestNextCells(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "results")
	synctest.Test(t, func(t *testing.T) {
		c := comparison(at("a", 1, steady(10, time.Second)), at("b", 1, steady(20, time.Second)))
		var asked []string
		c[0].NextCells = func(played []lab.CellResult) ([]lab.Cell, error) {
			var sum []string
			for _, cl := range played {
				sum = append(sum, fmt.Sprintf("%s%s:%d@%v", cl.Label("impl"), cl.Label("keys"), len(cl.Rounds), cl.Medians["events/s"].Median))
			}
			asked = append(asked, strings.Join(sum, " "))
			switch len(asked) {
			case 1:
				return []lab.Cell{at("a", 2, steady(10, time.Second)), at("c", 2, steady(40, time.Second))}, nil
			case 2:
				return []lab.Cell{at("c", 3, steady(40, time.Second))}, nil
			}
			return nil, nil
		}
		var order []string
		o, err := ignoringHost(context.Background(), c, lab.Options{Rounds: 2, Dir: dir, NoAA: true, Progress: func(p lab.Progress) {
			if !p.Finished {
				order = append(order, fmt.Sprintf("%d%s", p.Round, strings.NewReplacer("Queue/impl=", "", "/keys=", "").Replace(p.Cell)))
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		want := []string{
			"a1:2@10 b1:2@20",
			"a1:2@10 b1:2@20 a2:2@10 c2:2@40",
			"a1:2@10 b1:2@20 a2:2@10 c2:2@40 c3:2@40",
		}
		if !slices.Equal(asked, want) {
			t.Errorf("NextCells got %q, want %q", asked, want)
		}
		var rounds []string
		for _, part := range [][2]int{{0, 2}, {2, 4}, {4, 6}, {6, 7}, {7, 9}, {9, 11}, {11, 12}, {12, 13}} {
			r := slices.Clone(order[part[0]:part[1]])
			slices.Sort(r)
			rounds = append(rounds, strings.Join(r, " "))
		}
		// The warm-up of the second batch plays only c; the third batch has none.
		if want := []string{"0a1 0b1", "1a1 1b1", "2a1 2b1", "0c2", "1a2 1c2", "2a2 2c2", "1c3", "2c3"}; !slices.Equal(rounds, want) {
			t.Errorf("played %q, want %q", rounds, want)
		}
		if finished, all := o.Finished(); finished != 5 || all != 5 {
			t.Errorf("%d of %d cells are finished", finished, all)
		}

		o.Knees = []stats.Knee{{Cell: "Queue", Held: 20}}
		noError(t, o.Save(dir))
		loaded, err := lab.Load(dir)
		if err != nil || len(loaded.Comparisons[0].Cells) != 5 || len(loaded.Knees) != 1 {
			t.Errorf("loaded %+v, %v", loaded, err)
		}
	})
}

func TestBadNextCells(t *testing.T) {
	for name, tc := range map[string]struct {
		more func([]lab.CellResult) ([]lab.Cell, error)
		want string
	}{
		"twice": {func([]lab.CellResult) ([]lab.Cell, error) { return []lab.Cell{at("a", 1, steady(1, 1))}, nil }, "appears twice"},
		"panic": {func([]lab.CellResult) ([]lab.Cell, error) { panic("ouch") }, "panic in more: ouch"},
		"error": {func([]lab.CellResult) ([]lab.Cell, error) { return nil, errors.New("no") }, "more: no"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := comparison(at("a", 1, steady(10, time.Second)))
				c[0].NextCells = tc.more
				o, err := ignoringHost(context.Background(), c, lab.Options{Rounds: 1})
				if err == nil || !strings.Contains(err.Error(), tc.want) || o == nil || len(o.Comparisons[0].Cells[0].Rounds) != 1 {
					t.Errorf("outcome %+v, error %v; want %q and the played rounds", o, err, tc.want)
				}
				if name == "twice" && !errors.Is(err, lab.ErrOptions) {
					t.Errorf("%v is not ErrOptions", err)
				}
			})
		})
	}
}
