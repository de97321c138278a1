package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"watchlab/bench/cell"
	"watchlab/bench/chart"
	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// run is a run prepared for output. All forms with rows are made from it.
type run struct {
	*lab.Outcome
	comparisons []comparison
}

// comparison is a comparison prepared for output.
type comparison struct {
	*lab.ComparisonResult
	rows   []row
	groups []group // of the rows
	// varying are the labels whose values differ between the rows; shared are the
	// others as key=value.
	varying, shared []string
	rounds          int
}

func newRun(o *lab.Outcome) run {
	r := run{Outcome: o}
	for i := range o.Comparisons {
		c := &o.Comparisons[i]
		out := comparison{ComparisonResult: c, rows: rowsOf(c), rounds: cmp.Or(c.Rounds, o.Rounds)}
		out.varying, out.shared = splitLabels(out.rows)
		for _, set := range lab.GroupBy(out.rows, func(r row) string { return r.throughput.NameExcept("impl", "rate") }) {
			out.groups = append(out.groups, group{set[0].throughput, groupTitle(set[0], out.varying), set})
		}
		r.comparisons = append(r.comparisons, out)
	}
	return r
}

// section returns the tables of the comparison.
func (c comparison) section(id string, o *lab.Outcome) section {
	s := section{
		ID: id, Heading: c.Family + ": " + c.Title + partial(o), Intro: strings.Join(c.shared, ", "),
		Tables: []*chart.Table{c.figures()},
	}
	for _, t := range []*chart.Table{c.costs(), c.notes()} {
		if len(t.Rows) > 0 {
			s.Tables = append(s.Tables, t)
		}
	}
	return s
}

// figures returns the table of throughput, ratio, verdict and latency. It omits columns
// without figures.
func (c comparison) figures() *chart.Table {
	t := rowTable("Figures", c.varying)
	t.Words("guar.")
	t.Figures("events/s", "ratio", "interval", "CPU/ev", "per CPU", "interval")
	t.Words("verdict")
	t.Figures("at rate", "p50", "p99", "p99.9", "p99 ratio")
	var guarantees, boundaries []string
	for _, cl := range c.Cells {
		guarantees = append(guarantees, cl.Guarantees)
	}
	guarantees = distinct(guarantees)
	for _, r := range c.rows {
		t.Add(slices.Concat(rowName(r, c.varying), []string{
			code(slices.Index(guarantees, r.throughput.Guarantees)), perSecond(r.fast),
			r.ratio(stats.UnitEventsPerSec), span(r.against(stats.UnitEventsPerSec).Comparison), r.median(r.cpu(), chart.Nanoseconds),
		}, r.gainFigures(r.base, r.baseline), []string{r.verdict(c.rounds)}, r.quantiles(), []string{r.ratio(stats.UnitP99)})...)
		for _, round := range r.latency.Rounds {
			if r.wait.Count > 0 {
				boundaries = append(boundaries, string(stats.Headline(round.Result)))
			}
		}
	}
	t.DropEmpty()

	for i, g := range guarantees {
		t.Legend = append(t.Legend, "guar. "+code(i)+": "+g)
	}
	if names := distinct(boundaries); len(names) > 0 {
		t.Legend = append(t.Legend, "latency: "+strings.Join(names, ", "))
	}
	return t
}

// distinct returns the distinct texts in order of appearance, without the empty one.
func distinct(texts []string) []string {
	var out []string
	for _, set := range lab.GroupBy(texts, func(s string) string { return s }) {
		if set[0] != "" {
			out = append(out, set[0])
		}
	}
	return out
}

// quantiles returns the rate and the latency quantiles at that rate.
func (r row) quantiles() []string {
	rate := chart.None
	if r.wait.Count > 0 {
		rate = r.rate()
	}
	return []string{
		rate, quantile(r.wait.Count, 2, r.wait.P50), quantile(r.wait.Count, 100, r.wait.P99), quantile(r.wait.Count, 1000, r.wait.P999),
	}
}

// quantile writes a quantile, or none if have is below need.
func quantile(have, need uint64, d time.Duration) string {
	if have < need {
		return chart.None
	}
	return chart.Nanoseconds(float64(d.Nanoseconds()))
}

// ratio writes the ratio of a figure to the baseline's, or the reason for its absence.
func (r row) ratio(unit string) string {
	a := r.against(unit)
	switch {
	case len(r.samples(unit)) == 0:
		return chart.None
	case r.baseline:
		return "baseline"
	case a.missing == notEqual:
		return "unequal"
	case a.missing != "":
		return chart.None
	}
	return ratio(a.Comparison)
}

// code returns a letter for an index, and none below 0.
func code(i int) string {
	if i < 0 {
		return chart.None
	}
	return string(rune('A' + i))
}

// pair describes an A/A pair by throughput, or by p99 at a set rate. It is the same variant played twice in every
// round: only chance or the machine causes a difference. The class is good for no difference, bad for a difference,
// and warn if neither is known.
func pair(first, second *lab.CellResult) note {
	unit, what := stats.UnitEventsPerSec, "events/s"
	if _, paced := first.Rate(); paced {
		unit, what = stats.UnitP99, "p99"
	}
	line := fmt.Sprintf("A/A: %s against itself: ", first.Impl())
	base, values := first.Samples()[unit], second.Samples()[unit]
	if len(base) == 0 || len(values) == 0 {
		return note{Text: line + fmt.Sprintf("no figures (%s, %s)", first.Verdict.Short(), second.Verdict.Short()), Class: "warn"}
	}
	if first.ByProcess {
		line = fmt.Sprintf("A/A: %s against itself in %s: ", first.Impl(), lab.Plural(len(base), "process"))
	}
	d := stats.Compare(base, values)
	line += chart.Times(d.Ratio) + " " + what
	if d.Lo > 0 {
		line += " (" + span(d) + ")"
	}
	switch {
	case !d.Testable:
		return note{Text: line + ", too few rounds to tell", Class: "warn"}
	case !d.Significant:
		return note{Text: line + ", no difference", Class: "good"}
	}
	return note{
		Text:  line + fmt.Sprintf(", WARNING: they differ (%s), so the machine may cause differences of this size; by chance 1 pair in 20 differs", stats.PText(d.P)),
		Class: "bad",
	}
}

// costs returns the table of resource use, once per throughput cell. It omits columns
// without figures.
func (c comparison) costs() *chart.Table {
	columns := []struct {
		name, unit string
		format     func(float64) string
	}{
		{"CPU unpriced", stats.UnitCPUPerOp, chart.Nanoseconds},
		{"allocs/ev", stats.UnitAllocsPerOp, chart.Number},
		{"B/ev", stats.UnitBytesPerOp, chart.Bytes},
		{"deltas/ev", stats.UnitDeltasPerEvent, chart.Number},
		{"peak heap", stats.UnitPeakHeap, chart.Bytes},
		{"heap growth", stats.UnitHeapGrowth, chart.Bytes},
		{"peak RSS", stats.UnitPeakRSS, chart.Bytes},
		{"GCs", stats.UnitGCs, chart.Number},
		{"longest pause", stats.UnitGCPauseMax, chart.Nanoseconds},
		{"lock wait/ev", stats.UnitLockWait, chart.Nanoseconds},
	}
	t := rowTable("Costs", c.varying)
	for _, col := range columns {
		t.Figures(col.name)
	}
	for _, set := range lab.GroupBy(c.rows, func(r row) string { return r.throughput.BenchName() }) {
		r := set[0]
		if len(r.fast) == 0 {
			continue
		}
		line := rowName(r, c.varying)
		for _, col := range columns {
			line = append(line, r.median(col.unit, col.format))
		}
		t.Add(line...)
	}
	t.DropEmpty()
	return t
}

// notes returns the table of the workloads' notes. Each cell with notes has one line with the medians over its
// rounds.
func (c comparison) notes() *chart.Table {
	t := rowTable("Notes of the workloads", c.varying, "at rate")
	t.Words("figures")
	seen := map[*lab.CellResult]bool{}
	for _, r := range c.rows {
		if r.broken() {
			continue
		}
		for _, cl := range r.cells() {
			if text := notesOf(cl); text != "" && !seen[cl] {
				t.Add(append(rowName(r, c.varying), rateOf(cl), text)...)
			}
			seen[cl] = true
		}
	}
	return t
}

// notesOf returns a cell's notes in order of first appearance.
func notesOf(c *lab.CellResult) string {
	var all []cell.Note
	for _, round := range c.Rounds {
		all = append(all, round.Result.Notes...)
	}
	var out []string
	for _, set := range lab.GroupBy(all, func(n cell.Note) string { return n.Unit }) {
		unit := set[0].Unit
		var values []float64
		for _, n := range set {
			values = append(values, n.Value)
		}
		out = append(out, unit+" "+unitFormat(unit)(stats.Median(values)))
	}
	return strings.Join(out, ", ")
}
