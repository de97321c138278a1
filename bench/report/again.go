package report

import (
	"fmt"
	"slices"

	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// again describes each A/A pair of a comparison. A pair is the same variant played
// twice in every round: only chance or the machine causes a difference.
func again(c *lab.ComparisonResult) []string {
	var lines []string
	for i := range c.Cells {
		cl := &c.Cells[i]
		if cl.Repeats == "" {
			continue
		}
		at := slices.IndexFunc(c.Cells, func(o lab.CellResult) bool { return o.BenchName() == cl.Repeats })
		if at < 0 {
			continue
		}
		lines = append(lines, pair(c, &c.Cells[at], cl))
	}
	return lines
}

// pair describes one pair by throughput, or by p99 at a set rate.
func pair(c *lab.ComparisonResult, first, second *lab.CellResult) string {
	unit, what := stats.UnitEventsPerSec, "events/s"
	if _, paced := first.Rate(); paced {
		unit, what = stats.UnitP99, "p99"
	}
	line := fmt.Sprintf("A/A: %s against itself: ", row{throughput: first}.variant())
	base, values := first.Samples(c.Latency)[unit], second.Samples(c.Latency)[unit]
	if len(base) == 0 || len(values) == 0 {
		return line + fmt.Sprintf("no figures (%s, %s)", first.Verdict.Short(), second.Verdict.Short())
	}
	d := stats.Compare(base, values)
	line += times(d.Ratio) + " " + what
	if d.Lo > 0 {
		line += fmt.Sprintf(" (%s to %s)", times(d.Lo), times(d.Hi))
	}
	switch {
	case !d.Testable:
		return line + ", too few rounds to tell"
	case !d.Significant:
		return line + ", no difference, would see " + seen(base, values)
	}
	return line + fmt.Sprintf(", WARNING: they differ (%s), so the machine may cause differences of this size; by chance 1 pair in 20 differs", stats.PText(d.P))
}
