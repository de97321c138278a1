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

// CSV writes one line per cell and unit. It contains the unrounded median over the rounds, in the unit
// of bench.txt, and the comparison with the baseline at the same rate. The second cell of an A/A pair is
// compared with the first. Its rounds are processes if they share rounds.
//
// Unknown values are empty. A cell without figures has one line without a unit. Spread, ratios and
// min_detectable are shares, not percentages. The error is that of the writer.
func CSV(w io.Writer, o *lab.Outcome) error {
	out := csv.NewWriter(w)
	// csv.Writer keeps its error; Flush and Error return it below.
	_ = out.Write(csvHeader)
	for c, cl := range o.Cells() {
		csvCell(out, c, cl)
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
	base := c.Against(cl)
	var from stats.Samples
	if base != nil && (cl.Repeats != "" || !unequal(base, cl)) {
		from = base.Samples(c.Latency)
	}
	for _, unit := range samples.Units() {
		s := stats.Summarize(samples[unit])
		line := slices.Concat(names, []string{unit, strconv.Itoa(s.N), exact(&s.Median), exact(s.Lo), exact(s.Hi), exact(s.Spread)})
		if len(from[unit]) == 0 {
			line = append(line, make([]string, len(csvHeader)-len(line))...)
		} else {
			line = append(append(line, base.BenchName()), csvComparison(stats.Compare(from[unit], samples[unit]))...)
		}
		_ = out.Write(line)
	}
}

// csvComparison returns the last six columns.
func csvComparison(d stats.Comparison) []string {
	cells := make([]string, 6)
	if !math.IsNaN(d.Ratio) {
		cells[0] = exact(&d.Ratio)
	}
	if d.Lo > 0 {
		cells[1], cells[2] = exact(&d.Lo), exact(&d.Hi)
	}
	if d.Testable {
		cells[3], cells[4] = exact(&d.P), strconv.FormatBool(d.Significant)
	}
	cells[5] = exact(d.MinDetectable)
	return cells
}

// exact writes a figure without loss; "" for nil.
func exact(v *float64) string {
	if v == nil {
		return ""
	}
	return strconv.FormatFloat(*v, 'g', -1, 64)
}
