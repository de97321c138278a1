package report

import (
	"encoding/csv"
	"io"
	"math"
	"slices"
	"strconv"

	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// csvHeader holds the columns of [CSV].
var csvHeader = []string{
	"family", "comparison", "cell", "impl", "rate", "repeats", "baseline", "class", "verdict", "cause",
	"unit", "rounds", "median", "lo", "hi", "spread",
	"against", "ratio", "ratio_lo", "ratio_hi", "p", "significant", "min_detectable",
}

// CSV writes one line per cell and unit. It contains the unrounded median over the
// rounds, in the unit of bench.txt, and the comparison with the baseline at the same
// rate. The second cell of an A/A pair is compared with the first.
//
// Unknown values are empty. A cell without figures has one line without a unit. Spread, ratios and
// min_detectable are shares, not percentages. The error is that of the writer.
func CSV(w io.Writer, o *lab.Outcome) error {
	out := csv.NewWriter(w)
	// csv.Writer keeps its error; Flush and Error return it below.
	_ = out.Write(csvHeader)
	for i := range o.Comparisons {
		c := &o.Comparisons[i]
		for j := range c.Cells {
			csvCell(out, c, &c.Cells[j])
		}
	}
	out.Flush()
	return out.Error()
}

func csvCell(out *csv.Writer, c *lab.ComparisonResult, cl *lab.CellResult) {
	names := []string{
		c.Family, c.Title, cl.BenchName(), cl.Label("impl"), rateOf(cl), cl.Repeats, strconv.FormatBool(cl.Baseline),
		cl.Class, string(cl.Verdict.Status), string(cl.Verdict.Cause),
	}
	samples := cl.Samples(c.Latency)
	if len(samples) == 0 {
		_ = out.Write(append(names, make([]string, len(csvHeader)-len(names))...))
		return
	}
	base := csvBase(c, cl)
	for _, unit := range samples.Units() {
		s := stats.Summarize(samples[unit])
		_ = out.Write(slices.Concat(names, []string{unit, strconv.Itoa(s.N), exact(&s.Median), exact(s.Lo), exact(s.Hi), exact(s.Spread)},
			csvComparison(base, base.Samples(c.Latency)[unit], samples[unit])))
	}
}

// csvBase returns the cell that cl is compared with; an empty one if there is none.
func csvBase(c *lab.ComparisonResult, cl *lab.CellResult) lab.CellResult {
	at := slices.IndexFunc(c.Cells, func(b lab.CellResult) bool {
		if cl.Repeats != "" {
			return b.BenchName() == cl.Repeats
		}
		return !cl.Baseline && b.Baseline && !unequal(&b, cl) && b.NameWithout("impl") == cl.NameWithout("impl")
	})
	if at < 0 {
		return lab.CellResult{}
	}
	return c.Cells[at]
}

// csvComparison returns the last seven columns; empty without a comparison.
func csvComparison(base lab.CellResult, from, to []float64) []string {
	cells := make([]string, 7)
	if len(from) == 0 {
		return cells
	}
	d := stats.Compare(from, to)
	cells[0] = base.BenchName()
	if !math.IsNaN(d.Ratio) {
		cells[1] = exact(&d.Ratio)
	}
	if d.Lo > 0 {
		cells[2], cells[3] = exact(&d.Lo), exact(&d.Hi)
	}
	if d.Testable {
		cells[4], cells[5] = exact(&d.P), strconv.FormatBool(d.Significant)
	}
	if share, ok := stats.MinDetectable(from, to); ok {
		cells[6] = exact(&share)
	}
	return cells
}

// exact writes a figure without loss; "" for nil.
func exact(v *float64) string {
	if v == nil {
		return ""
	}
	return strconv.FormatFloat(*v, 'g', -1, 64)
}
