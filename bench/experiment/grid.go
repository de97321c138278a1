package experiment

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"watchlab/bench/lab"
)

// Axis is a label that is varied, with its values in order.
type Axis struct {
	Label  string
	Values []string
}

// unset is the value of a knob that is left alone, whose label cells need not
// have.
const unset = "0"

// Grid makes comparisons whose cells are those of all combinations of the axes'
// values, so that all of them are played side by side. build returns the
// comparisons at one point, as many at each: all the first make one, all the
// second another.
//
// A cell that lacks an axis's label is of a variant that doesn't take the knob.
// It is the same at every value and played once, so that there is something to
// hold the others against. At the value "0", which is to leave the knob alone,
// the label is added.
//
// The error wraps [ErrSpec], or is build's.
func Grid(axes []Axis, build func(point []lab.Label) ([]lab.Comparison, error)) ([]lab.Comparison, error) {
	if err := checkAxes(axes); err != nil {
		return nil, err
	}
	var grids []*grid
	for n, point := range points(axes) {
		at, err := build(point)
		if err != nil {
			return nil, err
		}
		if n > 0 && len(at) != len(grids) {
			return nil, fmt.Errorf("%w: %d comparisons at %s, %d at the first point", ErrSpec, len(at), pointName(point), len(grids))
		}
		for i, c := range at {
			if n == 0 {
				grids = append(grids, &grid{Comparison: c, seen: map[string]bool{}})
				grids[i].Cells = nil
			}
			grids[i].add(c, point)
		}
	}
	var out []lab.Comparison
	for _, g := range grids {
		out = append(out, g.comparison(axes))
	}
	return out, nil
}

func checkAxes(axes []Axis) error {
	if len(axes) == 0 {
		return fmt.Errorf("%w: nothing to vary", ErrSpec)
	}
	for i, a := range axes {
		switch {
		case a.Label == "" || len(a.Values) == 0:
			return fmt.Errorf("%w: no values for %q", ErrSpec, a.Label)
		case slices.ContainsFunc(axes[:i], func(b Axis) bool { return a.Label == b.Label }):
			return fmt.Errorf("%w: %s is varied twice", ErrSpec, a.Label)
		}
		for j, v := range a.Values {
			if slices.Contains(a.Values[:j], v) {
				return fmt.Errorf("%w: %s=%s stands there twice", ErrSpec, a.Label, v)
			}
		}
	}
	return nil
}

// points are all combinations, the last axis fastest.
func points(axes []Axis) [][]lab.Label {
	all := [][]lab.Label{nil}
	for _, a := range axes {
		var longer [][]lab.Label
		for _, p := range all {
			for _, v := range a.Values {
				longer = append(longer, append(slices.Clone(p), lab.Label{Key: a.Label, Value: v}))
			}
		}
		all = longer
	}
	return all
}

func pointName(point []lab.Label) string {
	var parts []string
	for _, l := range point {
		parts = append(parts, l.Key+"="+l.Value)
	}
	return strings.Join(parts, ", ")
}

// grid is a comparison that is being put together.
type grid struct {
	lab.Comparison
	seen   map[string]bool
	titles []string
	inputs []string
}

// add puts in the cells of a point that aren't there yet.
func (g *grid) add(c lab.Comparison, point []lab.Label) {
	g.titles = append(g.titles, c.Title)
	g.inputs = append(g.inputs, c.Input)
	for _, cl := range c.Cells {
		name := cl.BenchName()
		if g.seen[name] {
			continue
		}
		g.seen[name] = true
		cl.Labels = labelled(cl.Labels, point)
		g.Cells = append(g.Cells, cl)
	}
}

// labelled adds the labels of knobs that are left alone, before the rate, which
// stands last.
func labelled(labels, point []lab.Label) []lab.Label {
	for _, p := range point {
		has := func(l lab.Label) bool { return l.Key == p.Key }
		if p.Value != unset || slices.ContainsFunc(labels, has) {
			continue
		}
		at := slices.IndexFunc(labels, func(l lab.Label) bool { return l.Key == "rate" })
		if at < 0 {
			at = len(labels)
		}
		labels = slices.Insert(slices.Clone(labels), at, p)
	}
	return labels
}

// comparison finishes the grid: its title is what the points' titles share, and
// what is varied.
func (g *grid) comparison(axes []Axis) lab.Comparison {
	c := g.Comparison
	parts := strings.Split(g.titles[0], ", ")
	for _, t := range g.titles[1:] {
		have := strings.Split(t, ", ")
		parts = slices.DeleteFunc(parts, func(p string) bool { return !slices.Contains(have, p) })
	}
	for _, a := range axes {
		parts = append(parts, "over "+a.Label)
	}
	c.Title = strings.Join(parts, ", ")
	c.Input = digest(g.inputs)
	return c
}

// digest of what is played at all points; empty where that isn't known of one.
func digest(inputs []string) string {
	if slices.Contains(inputs, "") {
		return ""
	}
	h := sha256.New()
	for _, in := range inputs {
		fmt.Fprintln(h, in)
	}
	return hex.EncodeToString(h.Sum(nil))
}
