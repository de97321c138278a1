// Package report shows a run: as a table for the terminal, as JSON, as
// benchfmt, as CSV, as Markdown, as a page of HTML.
//
//  1. The cells of a comparison are grouped into rows: equal labels save for
//     the rate.
//  2. Each row is compared with the baseline that has the same knobs and the same
//     guarantees. What the rounds could have shown stands beside each ratio.
//  3. [Table] and [Markdown] lay the rows out. What a cell with an invalid
//     verdict measured is nowhere in a run, so it cannot be shown: its row has
//     dashes.
//
// Every figure is the median over the rounds, save for quantiles of latency,
// which are of all rounds together.
package report

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// Table writes a table for each comparison, with what its signs mean beneath.
// It needs neither colour nor a terminal.
func Table(w io.Writer, o *lab.Outcome) error {
	var b bytes.Buffer
	for i := range o.Comparisons {
		v := view(&o.Comparisons[i], o.RoundsOf(o.Comparisons[i]))
		fmt.Fprintf(&b, "%s: %s%s\n", v.family, v.title, partial(o))
		if v.shared != "" {
			fmt.Fprintf(&b, "  %s\n", v.shared)
		}
		b.WriteString(v.grid.text("  "))
		for _, line := range v.legend {
			fmt.Fprintf(&b, "  %s\n", line)
		}
		for _, t := range v.more() {
			fmt.Fprintf(&b, "\n  %s\n", t.title)
			b.WriteString(t.grid.text("  "))
		}
		b.WriteString("\n")
	}
	for _, t := range sweeps(o) {
		fmt.Fprintf(&b, "%s\n", t.title)
		if t.shared != "" {
			fmt.Fprintf(&b, "  %s\n", t.shared)
		}
		b.WriteString(t.grid.text("  "))
		for _, line := range t.legend {
			fmt.Fprintf(&b, "  %s\n", line)
		}
		b.WriteString("\n")
	}
	if t := shares(o); len(t.grid.rows) > 0 {
		fmt.Fprintf(&b, "%s\n%s", t.title, t.grid.text("  "))
		for _, line := range t.legend {
			fmt.Fprintf(&b, "  %s\n", line)
		}
		b.WriteString("\n")
	}
	for _, line := range method(o) {
		fmt.Fprintf(&b, "%s\n", line)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// JSON writes the run in the form of run.json (see [lab.Outcome]).
func JSON(w io.Writer, o *lab.Outcome) error { return o.WriteJSON(w) }

// Bench writes the rounds as benchfmt, for benchstat.
func Bench(w io.Writer, o *lab.Outcome) error { return o.WriteBench(w) }

// Write writes report.md and report.html into a results folder, each whole or not
// at all. The other files stand there already: package lab writes them while it
// runs.
func Write(dir string, o *lab.Outcome) error {
	for name, write := range map[string]func(io.Writer, *lab.Outcome) error{lab.ReportFile: Markdown, HTMLFile: HTML} {
		if err := lab.ReplaceFile(filepath.Join(dir, name), func(w io.Writer) error { return write(w, o) }); err != nil {
			return err
		}
	}
	return nil
}

// tableView is a comparison, ready to be laid out.
type tableView struct {
	family, title string
	shared        string
	grid          grid
	legend        []string
	rows          []row
	costs, noted  grid
}

// more are the further tables that have rows.
func (v tableView) more() []table {
	var out []table
	for _, t := range []table{{title: "What it costs", grid: v.costs}, {title: "What was noted", grid: v.noted}} {
		if len(t.grid.rows) > 0 {
			out = append(out, t)
		}
	}
	return out
}

func view(c *lab.ComparisonResult, rounds int) tableView {
	v := tableView{family: c.Family, title: c.Title, rows: rowsOf(c)}
	varying, shared := splitLabels(v.rows)
	v.shared = strings.Join(shared, ", ")
	if c.Rounds > 0 {
		rounds = c.Rounds
	}

	rowNames(&v.grid, varying)
	guarantees := guaranteeCodes(c)
	if len(guarantees) > 0 {
		v.grid.column("guar.", true)
	}
	v.grid.column("events/s", false)
	intervals := slices.ContainsFunc(v.rows, func(r row) bool { return interval(r.fast) != none })
	if intervals {
		v.grid.column("95 % interval", false)
	}
	for _, h := range []string{"at rate", "p50", "p99", "p99.9", "ratio", "would see"} {
		v.grid.column(h, false)
	}
	v.grid.column("verdict", true)

	for _, r := range v.rows {
		line := rowName(r, varying)
		if len(guarantees) > 0 {
			line = append(line, code(slices.Index(guarantees, r.throughput.Guarantees)))
		}
		line = append(line, perSecond(r.fast))
		if intervals {
			line = append(line, interval(r.fast))
		}
		v.grid.rows = append(v.grid.rows, append(line, figures(r, v.rows, rounds)...))
	}
	v.costs, v.noted = costs(v.rows, varying), noted(v.rows, varying)

	v.legend = listened(c)
	for i, g := range guarantees {
		v.legend = append(v.legend, "guar. "+code(i)+": "+g)
	}
	if names := latencyBoundaries(v.rows, c.Latency); len(names) > 0 {
		v.legend = append(v.legend, "latency: "+strings.Join(names, ", "))
	}
	v.legend = append(v.legend, inequalities(v.rows)...)
	v.legend = append(v.legend, again(c)...)
	for _, cl := range c.Cells {
		if cl.Verdict.Detail != "" && cl.Repeats == "" {
			v.legend = append(v.legend, cellName(&cl, varying)+": "+cl.Verdict.String())
		}
	}
	return v
}

// cellName tells a cell from the others of its table.
func cellName(c *lab.CellResult, varying []string) string {
	name := row{throughput: c}.variant()
	for _, key := range varying {
		if v := c.Label(key); v != "" {
			name += " " + key + "=" + v
		}
	}
	return name + " @" + rateOf(c)
}

// figures are the columns after the throughput; dashes where nothing was
// measured.
func figures(r row, rows []row, rounds int) []string {
	rate := none
	if r.wait.Count > 0 {
		rate = r.rate()
	}
	return []string{
		rate,
		quantile(r.wait.Count, 2, r.wait.P50),
		quantile(r.wait.Count, 100, r.wait.P99),
		quantile(r.wait.Count, 1000, r.wait.P999),
		ratioColumn(r, rows),
		seenColumn(r, rows),
		r.verdict(rounds),
	}
}

// quantile writes a quantile that so many values are needed for.
func quantile(have, need uint64, d time.Duration) string {
	if have < need {
		return none
	}
	return nanoseconds(float64(d.Nanoseconds()))
}

func ratioColumn(r row, rows []row) string {
	if base, ok := counterpart(r, rows); ok && unequal(base, r) && len(r.fast) > 0 {
		return "unequal"
	}
	if r.isBaseline() && len(r.fast) > 0 {
		return times(1) + " baseline"
	}
	base, ok := ratioBase(r, rows)
	if !ok {
		return none
	}
	c, ok := compare(base.fast, r.fast, stats.UnitEventsPerSec)
	if !ok {
		return none
	}
	return ratio(c)
}

// seenColumn is the smallest change of throughput that the rounds would have
// shown.
func seenColumn(r row, rows []row) string {
	base, ok := ratioBase(r, rows)
	if !ok {
		return none
	}
	return seen(base.fast[stats.UnitEventsPerSec], r.fast[stats.UnitEventsPerSec])
}

// ratioBase is the row that a row's throughput is a ratio of. False where the
// generator set one of them.
func ratioBase(r row, rows []row) (row, bool) {
	base, ok := baselineOf(r, rows)
	return base, ok && !r.paced() && !base.paced() && len(r.fast) > 0
}

// inequalities says why no ratio is taken, once for each pair of promises.
func inequalities(rows []row) []string {
	var lines []string
	for _, r := range rows {
		base, ok := counterpart(r, rows)
		if !ok || !unequal(base, r) {
			continue
		}
		line := fmt.Sprintf("unequal: no ratio is taken, as the baseline promises %s, and the variant %s", base.throughput.Class, r.throughput.Class)
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return lines
}

// splitLabels parts the labels into the keys whose values differ between rows,
// each a column, and those that are the same everywhere, as key=value.
func splitLabels(rows []row) (varying, shared []string) {
	var keys []string
	values := map[string][]string{}
	for _, r := range rows {
		for _, l := range r.throughput.Without("impl", "rate") {
			if _, ok := values[l.Key]; !ok {
				keys = append(keys, l.Key)
				values[l.Key] = nil
			}
		}
	}
	for _, r := range rows {
		for _, k := range keys {
			if v := r.throughput.Label(k); !slices.Contains(values[k], v) {
				values[k] = append(values[k], v)
			}
		}
	}
	for _, k := range keys {
		if len(values[k]) > 1 {
			varying = append(varying, k)
		} else {
			shared = append(shared, k+"="+values[k][0])
		}
	}
	return varying, shared
}

// guaranteeCodes are the different guarantees, in order of appearance; their
// places are their codes.
func guaranteeCodes(c *lab.ComparisonResult) []string {
	var out []string
	for _, cl := range c.Cells {
		if cl.Guarantees != "" && !slices.Contains(out, cl.Guarantees) {
			out = append(out, cl.Guarantees)
		}
	}
	return out
}

// code is a letter for each of the first 26.
func code(i int) string {
	switch {
	case i < 0:
		return none
	case i < 26:
		return string(rune('A' + i))
	}
	return fmt.Sprintf("A%d", i)
}

// latencyBoundaries names what the latency columns measured; usually one. A row
// that has its latency from a paced cell doesn't show the unpaced one's.
func latencyBoundaries(rows []row, wanted cell.Boundary) []string {
	var out []string
	for _, r := range rows {
		if r.broken() {
			continue
		}
		for _, round := range r.latency.Rounds {
			name := string(stats.Headline(round.Result, wanted))
			if name != "" && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

func orNone(s string) string {
	if s == "" {
		return none
	}
	return s
}

// method says how the figures came about, and what the signs mean.
func method(o *lab.Outcome) []string {
	warm := "after one warm-up round that is played and not counted"
	if o.Fresh {
		warm = "each play of a cell in a process of its own, where nothing is warm"
	}
	lines := []string{
		fmt.Sprintf("Figures are medians of %s, %s; in each round the cells are played in an order drawn from seed %d.", rounds(o), warm, o.Seed),
		"events/s: as fast as it goes, unless the rate is set; ±: interquartile range of the rounds over their median (noisy above " + percent(lab.MaxSpread) + "); 95 % interval: of the median, from 6 rounds on.",
		"p50, p99, p99.9: of the latency at the given rate (max: unpaced, so that it is mostly the wait in the queue), in all rounds together; shown from 100 events on, p99.9 from 1,000. Costs are the whole process's.",
		"ratio: events/s over the baseline's of the same knobs. no difference: none that can be told from chance (Mann-Whitney U, p ≥ " + number(stats.Alpha) + "). ?: too few rounds to tell (4 are needed). unequal: the guarantees differ, so that no ratio is taken. -: no such baseline with figures, or the rate was set.",
		"would see: the smallest change that rounds as many and as noisy as these show in " + percent(stats.Power) + " of all runs.",
		"A/A: the baseline played twice in every round; where the two differ, the run can't be trusted with differences of that size.",
		fmt.Sprintf("invalid: no figure is kept. generator: in the median round more than %s of the releases were later than their budget (%v, or 1 %% of the time between two events where that is more, unless it was set).", percent(lab.MaxLateShare), cell.LateAfter),
		fmt.Sprintf("steal, throttled, gc-limit: the machine was in the way: in the median round, others had more than %s of its CPU time, or the control group held the process back for more than %s of the time, or the runtime limited the collector.", percent(lab.MaxSteal), percent(lab.MaxThrottled)),
	}
	if o.Merged != nil {
		lines = append(lines, "A merged cell is noisy where a round of it was not begun by all shares at the same time (within "+percent(lab.MaxSpread)+" of its length), and has the worst verdict of its shares; shares: some are missing.")
	}
	if o.Interrupted {
		finished, all := o.Finished()
		lines = append(lines, fmt.Sprintf("Interrupted: %d of %d cells have all their rounds.", finished, all))
	}
	return lines
}

// rounds says how many a figure is of: with a budget, comparisons differ.
func rounds(o *lab.Outcome) string {
	least, most := o.Rounds, o.Rounds
	for _, c := range o.Comparisons {
		if c.Rounds > 0 {
			least, most = min(least, c.Rounds), max(most, c.Rounds)
		}
	}
	if least == most {
		return Plural(most, "round")
	}
	return fmt.Sprintf("%d to %s", least, Plural(most, "round"))
}

func percent(share float64) string { return number(share*100) + " %" }
