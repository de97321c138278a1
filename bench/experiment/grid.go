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

// withLabel adds a label before the rate, unless there is one with the key.
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

// Scalings returns each variant's throughput over a numeric label: one scaling for each
// set of cells that differ only in that label. It leaves out paced cells, whose
// throughput is the generator's, and variants with fewer than two numbers.
//
// The Universal Scalability Law describes workers that share something, so it is fitted
// only if workers is true. If the fit fails, Why has the reason.
func Scalings(c *lab.ComparisonResult, over string, workers bool) []stats.Scaling {
	var all []stats.Scaling
	for i := range c.Cells {
		cl := &c.Cells[i]
		n, err := strconv.ParseFloat(cl.Label(over), 64)
		_, paced := cl.Rate()
		perSecond := cl.Samples(c.Latency)[stats.UnitEventsPerSec]
		if err != nil || paced || cl.Repeats != "" || len(perSecond) == 0 {
			continue
		}
		name := cl.NameWithout(over)
		at := slices.IndexFunc(all, func(s stats.Scaling) bool { return s.Cell == name })
		if at < 0 {
			at = len(all)
			all = append(all, stats.Scaling{Cell: name, Impl: cl.Impl(), Over: over})
		}
		all[at].Points = append(all[at].Points, stats.ScalePoint{N: n, EventsPerSecond: perSecond})
	}
	all = slices.DeleteFunc(all, func(s stats.Scaling) bool { return len(s.Points) < 2 })
	for i := range all {
		s := &all[i]
		slices.SortFunc(s.Points, func(a, b stats.ScalePoint) int { return cmp.Compare(a.N, b.N) })
		if !workers {
			s.Why = "the law is about workers, which " + over + " are not"
		} else if fit, err := stats.FitUSL(s.Points); err != nil {
			s.Why = err.Error()
		} else {
			s.Fit = &fit
		}
	}
	return all
}

// Surfaces returns a figure of each variant over two labels: one surface for each set of
// cells that differ only in these. It leaves out variants with fewer than two values of
// either label.
func Surfaces(c *lab.ComparisonResult, x, y Axis, unit string) []stats.Surface {
	var all []stats.Surface
	for i := range c.Cells {
		cl := &c.Cells[i]
		ix, iy := slices.Index(x.Values, cl.Label(x.Label)), slices.Index(y.Values, cl.Label(y.Label))
		if ix < 0 || iy < 0 || cl.Repeats != "" {
			continue
		}
		name := cl.NameWithout(x.Label, y.Label)
		at := slices.IndexFunc(all, func(s stats.Surface) bool { return s.Cell == name })
		if at < 0 {
			at = len(all)
			s := stats.Surface{Cell: name, Impl: cl.Impl(), X: x.Label, Y: y.Label, Unit: unit, Xs: x.Values, Ys: y.Values}
			for range y.Values {
				s.Points = append(s.Points, make([]*stats.Summary, len(x.Values)))
			}
			all = append(all, s)
		}
		if values := cl.Samples(c.Latency)[unit]; len(values) > 0 {
			summary := stats.Summarize(values)
			all[at].Points[iy][ix] = &summary
		}
	}
	return slices.DeleteFunc(all, func(s stats.Surface) bool {
		rows, columns := map[int]bool{}, map[int]bool{}
		for y, row := range s.Points {
			for x, p := range row {
				if p != nil {
					rows[y], columns[x] = true, true
				}
			}
		}
		return len(rows) < 2 || len(columns) < 2
	})
}
