package report

import (
	"fmt"
	"math"
	"slices"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// row is one line of a table: throughput from one cell, latency from the same
// or from a paced one.
type row struct {
	throughput, latency *lab.CellResult
	fast, slow          stats.Samples
	wait                cell.Quantiles
}

// rowsOf groups the cells of a comparison: those whose labels are equal save
// for the rate make one row. Where several are paced, each makes a row, with
// the throughput of the one that is not. The second halves of A/A pairs are no
// rows: they are told of apart (see again.go).
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

// headline returns the latency that speaks for a cell.
func headline(c *lab.CellResult, wanted cell.Boundary) cell.Quantiles {
	all := cell.Result{Latency: c.Latency}
	l, _ := all.At(stats.Headline(all, wanted))
	return l.Quantiles
}

// cells returns the row's cells, each once.
func (r row) cells() []*lab.CellResult {
	if r.throughput == r.latency {
		return []*lab.CellResult{r.throughput}
	}
	return []*lab.CellResult{r.throughput, r.latency}
}

// broken reports whether a cell of the row broke an invariant or failed: then
// nothing of the row is shown, as both are the same variant on the same storm.
func (r row) broken() bool {
	return slices.ContainsFunc(r.cells(), func(c *lab.CellResult) bool {
		return c.Verdict.Failed()
	})
}

// variant is the row's name.
func (r row) variant() string { return r.throughput.Impl() }

// rate is the pace that the latency was measured at.
func (r row) rate() string { return rateOf(r.latency) }

func rateOf(c *lab.CellResult) string {
	if rate, paced := c.Rate(); paced {
		return rate
	}
	return lab.Unpaced
}

// paced reports whether the throughput was set by the generator rather than by
// the variant, so that comparing it would say nothing.
func (r row) paced() bool {
	_, paced := r.throughput.Rate()
	return paced
}

// isBaseline reports whether ratios are taken against this row.
func (r row) isBaseline() bool { return r.throughput.Baseline }

// baselineOf returns the row that r is compared with: like with like, so every
// knob but the variant is the same, and so are the guarantees; and the same rate,
// if there is such a row. False where there is none, or r is itself one.
func baselineOf(r row, rows []row) (base row, ok bool) {
	base, ok = counterpart(r, rows)
	return base, ok && !unequal(base, r)
}

// unequal reports whether two rows promise different things, so that a ratio
// would compare what cannot be had for what. Where one doesn't say, they are
// taken for equal.
func unequal(a, b row) bool {
	x, y := a.throughput.Class, b.throughput.Class
	return x != "" && y != "" && x != y
}

// counterpart is the baseline with the same knobs, whatever it promises.
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

// compare holds a figure of the row against the baseline's. False where one of
// them has none.
func compare(base, samples stats.Samples, unit string) (stats.Comparison, bool) {
	if len(base[unit]) == 0 || len(samples[unit]) == 0 {
		return stats.Comparison{}, false
	}
	c := stats.Compare(base[unit], samples[unit])
	return c, !math.IsNaN(c.Ratio)
}

// severity orders verdicts, worst last.
var severity = []lab.Status{lab.Valid, lab.Noisy, lab.Unplayed, lab.Invalid}

// worst is the row's cell with the worse verdict.
func (r row) worst() *lab.CellResult {
	cells := r.cells()
	return slices.MaxFunc(cells, func(a, b *lab.CellResult) int {
		return slices.Index(severity, a.Verdict.Status) - slices.Index(severity, b.Verdict.Status)
	})
}

// verdict is the worse one of the row's cells, with "@rate" where only one of
// two cells has it, and with the rounds where some are missing.
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
