package experiment

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

const unset = "0" // value of a knob at its default; cells may lack the label of such a knob

// Grid returns comparisons with a cell for each combination of the axes' values. All
// cells are interleaved. build returns the comparisons at one point, equally many at
// each point. The i-th of all points become the i-th comparison.
//
// A cell without an axis's label belongs to a variant without that knob. It is equal at all values,
// so it is played once, for reference. At the value "0", the knob's default, Grid adds the label.
//
// The error wraps [ErrSpec] or is build's.
func Grid(axes []Axis, build func(point []lab.Label) ([]lab.Comparison, error)) ([]lab.Comparison, error) {
	var grid []lab.Comparison
	var titles [][]string // parts that the titles of all points have in common, by comparison
	seen := map[string]bool{}
	for n, point := range points(axes) {
		at, err := build(point)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			grid, titles = make([]lab.Comparison, len(at)), make([][]string, len(at))
		}
		if len(at) != len(grid) {
			return nil, fmt.Errorf("%w: %d comparisons at %v, %d at the first point", ErrSpec, len(at), point, len(grid))
		}
		for i, c := range at {
			cells, parts := c.Cells, strings.Split(c.Title, ", ")
			if n == 0 {
				grid[i], titles[i] = c, parts
				grid[i].Cells = nil
			} else {
				grid[i].Input = digestOf(grid[i].Input, c.Input)
			}
			titles[i] = slices.DeleteFunc(titles[i], func(part string) bool { return !slices.Contains(parts, part) })
			for _, cl := range cells {
				if name := strconv.Itoa(i) + cl.BenchName(); !seen[name] {
					seen[name] = true
					for _, l := range point {
						if l.Value == unset {
							cl.Labels = withLabel(cl.Labels, l)
						}
					}
					grid[i].Cells = append(grid[i].Cells, cl)
				}
			}
		}
	}
	for i := range grid {
		for _, a := range axes {
			titles[i] = append(titles[i], "over "+a.Label)
		}
		grid[i].Title = strings.Join(titles[i], ", ")
	}
	return grid, nil
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

// withLabel adds a label before the rate, unless the key has one.
func withLabel(labels []lab.Label, l lab.Label) []lab.Label {
	at := len(labels)
	for i, have := range labels {
		switch have.Key {
		case l.Key:
			return labels
		case "rate":
			at = i
		}
	}
	return slices.Insert(slices.Clone(labels), at, l)
}

// Scalings returns throughput over a numeric label: one scaling for each set of cells that differ
// only in that label. It leaves out paced cells, whose throughput is the generator's, and variants
// with fewer than two numbers. The Universal Scalability Law describes workers that share
// something, so it is fitted only if workers is true. If the fit fails, Why has the reason.
func Scalings(c *lab.ComparisonResult, over string, workers bool) []stats.Scaling {
	var all []stats.Scaling
	for _, cells := range groups(c.Cells, over) {
		s := stats.Scaling{Cell: cells[0].NameWithout(over), Impl: cells[0].Impl(), Over: over}
		for _, cl := range cells {
			n, err := strconv.ParseFloat(cl.Label(over), 64)
			_, paced := cl.Rate()
			if perSecond := cl.Samples(c.Latency)[stats.UnitEventsPerSec]; err == nil && !paced && len(perSecond) > 0 {
				s.Points = append(s.Points, stats.ScalePoint{N: n, EventsPerSecond: perSecond})
			}
		}
		if len(s.Points) < 2 {
			continue
		}
		slices.SortFunc(s.Points, func(a, b stats.ScalePoint) int { return cmp.Compare(a.N, b.N) })
		if !workers {
			s.Why = "the law is about workers, which " + over + " are not"
		} else if fit, err := stats.FitUSL(s.Points); err != nil {
			s.Why = err.Error()
		} else {
			s.Fit = &fit
		}
		all = append(all, s)
	}
	return all
}

// groups collects the cells that differ only in the labels with the keys, without A/A pairs.
func groups(cells []lab.CellResult, keys ...string) [][]*lab.CellResult {
	var all [][]*lab.CellResult
	index := map[string]int{}
	for i := range cells {
		if cells[i].Repeats != "" {
			continue
		}
		name := cells[i].NameWithout(keys...)
		at, ok := index[name]
		if !ok {
			at = len(all)
			index[name], all = at, append(all, nil)
		}
		all[at] = append(all[at], &cells[i])
	}
	return all
}

// Surfaces returns a figure over two labels: one surface for each set of cells that differ only in
// these. It leaves out variants with fewer than two values of either label.
func Surfaces(c *lab.ComparisonResult, x, y Axis, unit string) []stats.Surface {
	var all []stats.Surface
	for _, cells := range groups(c.Cells, x.Label, y.Label) {
		s := stats.Surface{
			Cell: cells[0].NameWithout(x.Label, y.Label), Impl: cells[0].Impl(),
			X: x.Label, Y: y.Label, Unit: unit, Xs: x.Values, Ys: y.Values,
		}
		for range y.Values {
			s.Points = append(s.Points, make([]*stats.Summary, len(x.Values)))
		}
		rows, columns := map[int]bool{}, map[int]bool{}
		for _, cl := range cells {
			ix, iy := slices.Index(x.Values, cl.Label(x.Label)), slices.Index(y.Values, cl.Label(y.Label))
			if values := cl.Samples(c.Latency)[unit]; ix >= 0 && iy >= 0 && len(values) > 0 {
				summary := stats.Summarize(values)
				s.Points[iy][ix] = &summary
				rows[iy], columns[ix] = true, true
			}
		}
		if len(rows) > 1 && len(columns) > 1 {
			all = append(all, s)
		}
	}
	return all
}
