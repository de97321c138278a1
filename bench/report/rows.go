package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"watchlab/bench/cell"
	"watchlab/bench/chart"
	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// row is one line of a table. Throughput comes from one cell, latency from the same or a paced one.
type row struct {
	throughput, latency *lab.CellResult
	fast, slow          stats.Samples  // of throughput and latency; empty for an invalid cell
	wait                cell.Quantiles // headline latency over all rounds of a paced latency cell
	// base is the baseline with the same knobs, whatever its guarantees. One with the same rate is
	// preferred. It is nil for a baseline, and if there is none.
	base     *row
	baseline bool // other rows are compared with this one
}

// rowsOf groups the cells of a comparison. Cells whose labels are equal except for the
// rate form one row. Each paced cell of a group makes a row with the throughput of the
// unpaced cell. The second cells of A/A pairs have no row.
func rowsOf(c *lab.ComparisonResult) []row {
	var cells []*lab.CellResult
	for i := range c.Cells {
		if c.Cells[i].Repeats == "" {
			cells = append(cells, &c.Cells[i])
		}
	}
	var rows []row
	for _, set := range lab.GroupBy(cells, func(cl *lab.CellResult) string { return cl.NameExcept("rate") }) {
		// A search for a knee plays its rates in another order.
		slices.SortStableFunc(set, func(a, b *lab.CellResult) int { return cmp.Compare(numeric(rateOf(a)), numeric(rateOf(b))) })
		var unpaced *lab.CellResult
		if at := slices.IndexFunc(set, func(cl *lab.CellResult) bool { return rateOf(cl) == lab.Unpaced }); at >= 0 {
			unpaced = set[at]
			if len(set) > 1 {
				set = slices.Delete(set, at, at+1)
			}
		}
		for _, latency := range set {
			r := row{throughput: cmp.Or(unpaced, latency), latency: latency}
			if !r.broken() {
				r.fast, r.slow = r.throughput.Samples(), latency.Samples()
			}
			// Unpaced, a latency says how far the generator ran ahead: the queue's bound decides that.
			if !r.broken() && !r.unpaced() {
				all := cell.Result{Latency: latency.Latency}
				l, _ := all.At(stats.Headline(all))
				r.wait = l.Quantiles
			}
			rows = append(rows, r)
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(rank(a.throughput), rank(b.throughput)) })
	link(rows)
	return rows
}

// link sets the baseline of each row.
func link(rows []row) {
	knobs := func(r row) string { return r.throughput.NameExcept("impl", "rate") }
	names := map[string]string{}
	for _, set := range lab.GroupBy(rows, knobs) {
		names[knobs(set[0])] = baselineOf(set)
	}
	for i := range rows {
		rows[i].baseline = rows[i].variant() == names[knobs(rows[i])]
	}
	for i := range rows {
		r := &rows[i]
		for j := range rows {
			b := &rows[j]
			if r.baseline || !b.baseline || knobs(*b) != r.throughput.BaselineKey(b.throughput, "impl", "rate") {
				continue
			}
			if r.base == nil || b.rate() == r.rate() && r.base.rate() != r.rate() {
				r.base = b
			}
		}
	}
}

// baselineOf returns the variant that rows with the same knobs are compared with: the declared
// baseline. A queue alone is compared with the strongest upstream queue of the same guarantees, the one
// with the least CPU time per event, and client-go's informer with its strongest setting. Which one
// that is depends on the storm.
func baselineOf(rows []row) string {
	at := slices.IndexFunc(rows, func(r row) bool { return r.throughput.Baseline })
	if at < 0 {
		return ""
	}
	best := rows[at]
	declared := best.variant()
	cost := func(r row) float64 { return stats.Median(r.samples(r.cpu())) }
	for _, r := range rows {
		rival := r.throughput.Label("pipeline") == "queue" && upstream(r.variant()) || r.variant() == declared+"-transform"
		if rival && !unequal(r.throughput, best.throughput) && cost(r) > 0 && cost(r) < cost(best) {
			best = r
		}
	}
	return best.variant()
}

// upstream reports whether a variant is client-go's.
func upstream(variant string) bool { return strings.HasPrefix(variant, "clientgo") }

// cells returns the row's cells without duplicates.
func (r row) cells() []*lab.CellResult {
	return slices.Compact([]*lab.CellResult{r.throughput, r.latency})
}

// broken reports whether a cell of the row violated an invariant or failed. The row
// then shows no figures, because both cells play the same variant on the same storm.
func (r row) broken() bool {
	return slices.ContainsFunc(r.cells(), func(c *lab.CellResult) bool { return c.Verdict.Failed() })
}

// samples returns the rounds of a unit, from the cell that measures it.
func (r row) samples(unit string) []float64 {
	switch {
	case unit == stats.UnitP99 && r.unpaced():
		return nil
	case unit == stats.UnitP99:
		return r.slow[unit]
	}
	return r.fast[unit]
}

// cpu returns the unit of the CPU time of an event: with its garbage paid, which old runs do not have.
func (r row) cpu() string {
	if len(r.samples(stats.UnitCPUWithGC)) > 0 {
		return stats.UnitCPUWithGC
	}
	return stats.UnitCPUPerOp
}

// median writes the median of a unit, or none.
func (r row) median(unit string, format func(float64) string) string {
	return median(r.samples(unit), format)
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

// unpaced reports whether the latency cell has no intended times.
func (r row) unpaced() bool { return r.latency.Label("rate") == lab.Unpaced }

// paced reports whether the generator, not the variant, sets the throughput. A
// comparison of such throughputs is meaningless.
func (r row) paced() bool { return rateOf(r.throughput) != lab.Unpaced }

// unequal reports whether two cells have different guarantees. A ratio between them
// would be misleading. Unknown guarantees count as equal.
func unequal(a, b *lab.CellResult) bool {
	return a.Class != "" && b.Class != "" && a.Class != b.Class
}

// The reasons for a missing comparison.
const (
	noBaseline = "no baseline"
	notEqual   = "guarantees differ from the baseline's"
	noFigures  = "no figures, or a set rate"
	noCPU      = "has no CPU time"
)

// against is the comparison of a figure with the baseline's.
type against struct {
	stats.Comparison
	missing string // reason for no comparison
}

// against compares the row with its baseline.
func (r row) against(unit string) against {
	if r.base == nil {
		return against{missing: noBaseline}
	}
	var a against
	switch from, to := r.base.samples(unit), r.samples(unit); {
	case unequal(r.base.throughput, r.throughput):
		a.missing = notEqual
	case len(from) == 0 || len(to) == 0,
		unit == stats.UnitEventsPerSec && (r.paced() || r.base.paced()), unit == stats.UnitP99 && r.rate() != r.base.rate():
		a.missing = noFigures
	default:
		if a.Comparison = stats.Compare(from, to); math.IsNaN(a.Ratio) {
			a.missing = noFigures
		}
	}
	return a
}

// severity orders verdicts from best to worst.
var severity = []lab.Status{lab.Valid, lab.Noisy, lab.Unplayed, lab.Invalid}

// worst returns the row's cell with the worse verdict.
func (r row) worst() *lab.CellResult {
	return slices.MaxFunc(r.cells(), func(a, b *lab.CellResult) int {
		return slices.Index(severity, a.Verdict.Status) - slices.Index(severity, b.Verdict.Status)
	})
}

// verdict returns the worse verdict of the row's cells. "@rate" names the cell if the
// verdicts differ. The number of rounds follows if some are missing.
func (r row) verdict(rounds int) string {
	worst := r.worst()
	v := worst.Verdict.Short()
	if r.throughput.Verdict.Short() != r.latency.Verdict.Short() {
		v += " @" + rateOf(worst)
	}
	if n := len(worst.Rounds); n > 0 && n < rounds {
		v += fmt.Sprintf(" (%d of %d rounds)", n, rounds)
	}
	return v
}

// splitLabels returns the keys whose values differ between the rows, and the other
// labels as key=value.
func splitLabels(rows []row) (varying, shared []string) {
	var keys []string
	for _, r := range rows {
		for _, l := range r.throughput.Without("impl", "rate") {
			keys = append(keys, l.Key)
		}
	}
	for _, k := range distinct(keys) {
		first := rows[0].throughput.Label(k)
		if slices.ContainsFunc(rows, func(r row) bool { return r.throughput.Label(k) != first }) {
			varying = append(varying, k)
		} else {
			shared = append(shared, k+"="+first)
		}
	}
	return varying, shared
}

// rowTable returns a table with the columns that identify a row; rowName returns their values.
func rowTable(title string, varying []string, figures ...string) *chart.Table {
	t := chart.NewTable(title, append([]string{"variant"}, varying...), figures...)
	t.Labels = len(varying)
	return t
}

func rowName(r row, varying []string) []string {
	line := []string{r.variant()}
	for _, key := range varying {
		line = append(line, cmp.Or(r.throughput.Label(key), chart.None))
	}
	return line
}

// group holds rows that differ only in variant and rate. One chart can show them.
type group struct {
	*lab.CellResult // of the first row
	title           string
	rows            []row
}

func groupTitle(r row, varying []string) string {
	parts := []string{r.throughput.Name}
	for _, key := range varying {
		if v := r.throughput.Label(key); v != "" {
			parts = append(parts, key+" "+v)
		}
	}
	return strings.Join(parts, ", ")
}

// hasP99 reports whether enough events have a latency for a 99th percentile.
func (r row) hasP99() bool { return r.wait.Count >= 100 }

// p99Range returns the smallest and the largest p99 of the rounds, with that of all rounds; 0 for one round.
func (r row) p99Range() (lo, hi float64) {
	values := r.samples(stats.UnitP99)
	if len(values) < 2 {
		return 0, 0
	}
	values = append(values[:len(values):len(values)], float64(r.wait.P99))
	return slices.Min(values), slices.Max(values)
}

// numeric parses a rate. Other paces sort last.
func numeric(rate string) float64 {
	if v, err := strconv.ParseFloat(rate, 64); err == nil {
		return v
	}
	return math.Inf(1)
}
