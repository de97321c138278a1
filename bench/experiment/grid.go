package experiment

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"watchlab/bench/lab"
)

// Axis is a label with the values that a search tries.
type Axis struct {
	// Label is the key of the cells' label.
	Label string
	// Values in the order of the report.
	Values []string
}

// unset is the value of a knob at its default. Cells may lack the label of such a knob.
const unset = "0"

// Grid returns comparisons with a cell for each combination of the axes' values. All
// cells are interleaved. build returns the comparisons at one point, equally many at
// each point. The i-th of all points become the i-th comparison.
//
// A cell without an axis's label belongs to a variant without that knob. It is equal at
// all values, so it is played once, for reference. At the value "0", the knob's default,
// Grid adds the label.
//
// The error wraps [ErrSpec] or is build's.
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

// points returns all combinations; the last axis changes fastest.
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

// grid collects the cells of one comparison.
type grid struct {
	lab.Comparison
	seen   map[string]bool
	titles []string
	inputs []string
}

// add adds the cells of a point that are not in the grid yet.
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

// labelled adds the labels of knobs at their default, before the rate, which is last.
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

// comparison returns the finished comparison. Its title has the common part of the
// points' titles and the axes.
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

// digest combines the points' input digests; empty if one is unknown.
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
