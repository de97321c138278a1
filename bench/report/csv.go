package report

import (
	"encoding/csv"
	"io"
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
// Unknown values are empty. A cell without figures has one line without a unit. Spread,
// ratios and min_detectable are shares, not percentages. The error is that of the
// writer.
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
	against := csvAgainst(c, cl)
	var base stats.Samples
	if against != nil {
		base = against.Samples(c.Latency)
	}
	for _, unit := range samples.Units() {
		s := stats.Summarize(samples[unit])
		line := append(names[:len(names):len(names)],
			unit, strconv.Itoa(s.N), exact(&s.Median), exact(s.Lo), exact(s.Hi), exact(s.Spread))
		line = append(line, csvComparison(against, base[unit], samples[unit])...)
		_ = out.Write(line)
	}
}

// csvAgainst returns the cell that cl is compared with; nil if there is none.
func csvAgainst(c *lab.ComparisonResult, cl *lab.CellResult) *lab.CellResult {
	for i := range c.Cells {
		b := &c.Cells[i]
		switch {
		case cl.Repeats != "":
			if b.BenchName() == cl.Repeats {
				return b
			}
		case cl.Baseline || !b.Baseline || unequal(b, cl):
		case b.NameWithout("impl") == cl.NameWithout("impl"):
			return b
		}
	}
	return nil
}

// csvComparison returns the last seven columns; empty without a comparison.
func csvComparison(against *lab.CellResult, base, values []float64) []string {
	cells := make([]string, 7)
	if against == nil || len(base) == 0 {
		return cells
	}
	d := stats.Compare(base, values)
	cells[0] = against.BenchName()
	if stats.Median(base) != 0 {
		cells[1] = exact(&d.Ratio)
	}
	if d.Lo > 0 {
		cells[2], cells[3] = exact(&d.Lo), exact(&d.Hi)
	}
	if d.Testable {
		cells[4], cells[5] = exact(&d.P), strconv.FormatBool(d.Significant)
	}
	if share, ok := stats.MinDetectable(base, values); ok {
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
