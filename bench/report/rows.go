package report

import (
	"fmt"
	"math"
	"slices"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// row is one line of a table. Throughput comes from one cell, latency from the same or
// a paced one.
type row struct {
	throughput, latency *lab.CellResult
	// fast and slow are the samples of throughput and latency; empty for an invalid
	// cell.
	fast, slow stats.Samples
	// wait is the headline latency over all rounds of the latency cell.
	wait cell.Quantiles
}

// rowsOf groups the cells of a comparison. Cells whose labels are equal except for the
// rate form one row. Each paced cell of a group makes a row with the throughput of the
// unpaced cell. The second cells of A/A pairs have no row; see again.go.
func rowsOf(c *lab.ComparisonResult) []row {
	type group struct {
		unpaced *lab.CellResult
		paced   []*lab.CellResult
	}
	groups := map[string]*group{}
	var keys []string
	for i := range c.Cells {
		cl := &c.Cells[i]
		if cl.Repeats != "" {
			continue
		}
		key := cl.NameWithout("rate")
		g, ok := groups[key]
		if !ok {
			g = &group{}
			groups[key] = g
			keys = append(keys, key)
		}
		if _, paced := cl.Rate(); paced || g.unpaced != nil {
			g.paced = append(g.paced, cl)
		} else {
			g.unpaced = cl
		}
	}
	var rows []row
	add := func(throughput, latency *lab.CellResult) {
		r := row{throughput: throughput, latency: latency}
		if !r.broken() {
			r.fast, r.slow = throughput.Samples(c.Latency), latency.Samples(c.Latency)
			r.wait = headline(latency, c.Latency)
		}
		rows = append(rows, r)
	}
	for _, key := range keys {
		g := groups[key]
		switch {
		case len(g.paced) == 0:
			add(g.unpaced, g.unpaced)
		default:
			for _, p := range g.paced {
				if g.unpaced != nil {
					add(g.unpaced, p)
				} else {
					add(p, p)
				}
			}
		}
	}
	return rows
}

// headline returns the latency of a cell at its headline boundary.
func headline(c *lab.CellResult, wanted cell.Boundary) cell.Quantiles {
	all := cell.Result{Latency: c.Latency}
	l, _ := all.At(stats.Headline(all, wanted))
	return l.Quantiles
}

// cells returns the row's cells without duplicates.
func (r row) cells() []*lab.CellResult {
	if r.throughput == r.latency {
		return []*lab.CellResult{r.throughput}
	}
	return []*lab.CellResult{r.throughput, r.latency}
}

// broken reports whether a cell of the row violated an invariant or failed. The row
// then shows no figures, because both cells play the same variant on the same storm.
func (r row) broken() bool {
	return slices.ContainsFunc(r.cells(), func(c *lab.CellResult) bool {
		return c.Verdict.Failed()
	})
}

// variant returns the name of the row.
func (r row) variant() string { return r.throughput.Impl() }

// rate returns the rate of the latency cell.
func (r row) rate() string { return rateOf(r.latency) }

func rateOf(c *lab.CellResult) string {
	if rate, paced := c.Rate(); paced {
		return rate
	}
	return lab.Unpaced
}

// paced reports whether the generator, not the variant, sets the throughput. A
// comparison of such throughputs is meaningless.
func (r row) paced() bool {
	_, paced := r.throughput.Rate()
	return paced
}

// isBaseline reports whether other rows are compared with this one.
func (r row) isBaseline() bool { return r.throughput.Baseline }

// baselineOf returns the baseline of r. All knobs except the variant are equal, and so
// are the guarantees. A baseline with r's rate is preferred. It returns false if there
// is none or if r is a baseline.
func baselineOf(r row, rows []row) (base row, ok bool) {
	base, ok = counterpart(r, rows)
	return base, ok && !unequal(base, r)
}

// unequal reports whether two rows have different guarantees. A ratio between them
// would be misleading. Unknown guarantees count as equal.
func unequal(a, b row) bool {
	x, y := a.throughput.Class, b.throughput.Class
	return x != "" && y != "" && x != y
}

// counterpart returns the baseline with the same knobs, whatever its guarantees.
func counterpart(r row, rows []row) (base row, ok bool) {
	if r.isBaseline() {
		return row{}, false
	}
	for _, b := range rows {
		if !b.isBaseline() || b.throughput.NameWithout("impl", "rate") != r.throughput.NameWithout("impl", "rate") {
			continue
		}
		if b.rate() == r.rate() {
			return b, true
		}
		if !ok {
			base, ok = b, true
		}
	}
	return base, ok
}

// compare compares a row's figure with the baseline's. It returns false if either is
// missing.
func compare(base, samples stats.Samples, unit string) (stats.Comparison, bool) {
	if len(base[unit]) == 0 || len(samples[unit]) == 0 {
		return stats.Comparison{}, false
	}
	c := stats.Compare(base[unit], samples[unit])
	return c, !math.IsNaN(c.Ratio)
}

// severity orders verdicts from best to worst.
var severity = []lab.Status{lab.Valid, lab.Noisy, lab.Unplayed, lab.Invalid}

// worst returns the row's cell with the worse verdict.
func (r row) worst() *lab.CellResult {
	cells := r.cells()
	return slices.MaxFunc(cells, func(a, b *lab.CellResult) int {
		return slices.Index(severity, a.Verdict.Status) - slices.Index(severity, b.Verdict.Status)
	})
}

// verdict returns the worse verdict of the row's cells. "@rate" names the cell if the
// verdicts differ. The number of rounds follows if some are missing.
func (r row) verdict(rounds int) string {
	cells, worst := r.cells(), r.worst()
	v := worst.Verdict.Short()
	if len(cells) > 1 && cells[0].Verdict.Short() != cells[1].Verdict.Short() {
		v += " @" + rateOf(worst)
	}
	if n := len(worst.Rounds); n > 0 && n < rounds {
		v += fmt.Sprintf(" (%d of %d rounds)", n, rounds)
	}
	return v
}
