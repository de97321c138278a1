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

// AlongAxis returns comparisons with a cell for each value of the axis. All cells are
// interleaved. build returns the comparisons at one value, equally many at each. The i-th of all
// values become the i-th comparison.
//
// A cell without the axis's label belongs to a variant without that knob. It is equal at all values,
// so it is played once, for reference. At the value "0", the knob's default, AlongAxis adds the label.
//
// The error is build's, or names a value with other comparisons than the first.
func AlongAxis(axis Axis, build func(lab.Label) ([]lab.Comparison, error)) ([]lab.Comparison, error) {
	var all []lab.Comparison
	var titles [][]string // parts that the titles of all values have in common, by comparison
	seen := map[string]bool{}
	for n, value := range axis.Values {
		at := lab.Label{Key: axis.Label, Value: value}
		built, err := build(at)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			all, titles = make([]lab.Comparison, len(built)), make([][]string, len(built))
		}
		if len(built) != len(all) {
			return nil, fmt.Errorf("%d comparisons at %v, %d at the first value", len(built), at, len(all))
		}
		for i, c := range built {
			cells, parts := c.Cells, strings.Split(c.Title, ", ")
			if n == 0 {
				all[i], titles[i] = c, parts
				all[i].Cells = nil
			} else {
				all[i].Input = digestOf(all[i].Input, c.Input)
			}
			titles[i] = slices.DeleteFunc(titles[i], func(part string) bool { return !slices.Contains(parts, part) })
			for _, cl := range cells {
				if name := strconv.Itoa(i) + cl.BenchName(); !seen[name] {
					seen[name] = true
					if value == unset {
						cl.Labels = withLabel(cl.Labels, at)
					}
					all[i].Cells = append(all[i].Cells, cl)
				}
			}
		}
	}
	for i := range all {
		all[i].Title = strings.Join(append(titles[i], "over "+axis.Label), ", ")
	}
	return all, nil
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
		s := stats.Scaling{Cell: cells[0].NameExcept(over), Impl: cells[0].Impl(), Over: over}
		for _, cl := range cells {
			n, err := strconv.ParseFloat(cl.Label(over), 64)
			_, paced := cl.Rate()
			if perSecond := cl.Samples()[stats.UnitEventsPerSec]; err == nil && !paced && len(perSecond) > 0 {
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

// groups collects the cells that differ only in one label, without A/A pairs.
func groups(cells []lab.CellResult, key string) [][]*lab.CellResult {
	var own []*lab.CellResult
	for i := range cells {
		if cells[i].Repeats == "" {
			own = append(own, &cells[i])
		}
	}
	return lab.GroupBy(own, func(c *lab.CellResult) string { return c.NameExcept(key) })
}
