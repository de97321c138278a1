package experiment

import (
	"slices"
	"strconv"

	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

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
		if err != nil || paced || cl.Repeats != "" {
			continue
		}
		perSecond := cl.Samples(c.Latency)[stats.UnitEventsPerSec]
		name := cl.NameWithout(over)
		at := slices.IndexFunc(all, func(s stats.Scaling) bool { return s.Cell == name })
		if at < 0 {
			at = len(all)
			all = append(all, stats.Scaling{Cell: name, Impl: cl.Impl(), Over: over})
		}
		if len(perSecond) > 0 {
			all[at].Points = append(all[at].Points, stats.ScalePoint{N: n, EventsPerSecond: perSecond})
		}
	}
	all = slices.DeleteFunc(all, func(s stats.Scaling) bool { return len(s.Points) < 2 })
	for i := range all {
		s := &all[i]
		slices.SortFunc(s.Points, func(a, b stats.ScalePoint) int {
			if a.N < b.N {
				return -1
			}
			return 1
		})
		if !workers {
			s.Why = "the law is about workers, which " + over + " are not"
			continue
		}
		fit, err := stats.FitUSL(s.Points)
		if err != nil {
			s.Why = err.Error()
			continue
		}
		s.Fit = &fit
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
			all = append(all, newSurface(name, cl.Impl(), x, y, unit))
		}
		if values := cl.Samples(c.Latency)[unit]; len(values) > 0 {
			summary := stats.Summarize(values)
			all[at].Points[iy][ix] = &summary
		}
	}
	return slices.DeleteFunc(all, func(s stats.Surface) bool { return !wide(s) })
}

func newSurface(name, impl string, x, y Axis, unit string) stats.Surface {
	s := stats.Surface{
		Cell: name, Impl: impl, X: x.Label, Y: y.Label, Unit: unit,
		Xs: slices.Clone(x.Values), Ys: slices.Clone(y.Values),
	}
	for range y.Values {
		s.Points = append(s.Points, make([]*stats.Summary, len(x.Values)))
	}
	return s
}

// wide reports whether both axes have at least two values with figures.
func wide(s stats.Surface) bool {
	rows, columns := 0, map[int]bool{}
	for _, row := range s.Points {
		measured := false
		for x, p := range row {
			if p != nil {
				measured, columns[x] = true, true
			}
		}
		if measured {
			rows++
		}
	}
	return rows > 1 && len(columns) > 1
}
