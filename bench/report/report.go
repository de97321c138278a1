// Package report writes a run in every output form: a one-screen summary, text, JSON,
// benchfmt, CSV, Markdown and HTML.
//
//  1. The cells of a comparison become rows. Cells whose labels differ only in the
//     rate share a row.
//  2. Each row is compared with the baseline that has the same knobs and guarantees.
//     The smallest detectable change stands beside each ratio.
//  3. [Brief] writes one screen. [Table], [Markdown] and [HTML] show all rows. A run
//     keeps no figures of an invalid cell, so its row has dashes.
//
// Figures are medians over the rounds. Latency quantiles are computed over all rounds
// together.
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

// textWidth is the width of text output, in columns.
const textWidth = 100

// Table writes each comparison as a plain-text table with a legend. A table wider than
// 100 columns gets headings for its labels, and then further blocks. Table only counts
// noisy cells; the other forms list them. The error is that of the writer.
func Table(w io.Writer, o *lab.Outcome) error {
	var b bytes.Buffer
	lines := func(indent string, texts ...string) {
		for _, text := range texts {
			for i, line := range wrap(text, textWidth-len(indent)-2) {
				b.WriteString(indent + strings.Repeat(" ", 2*min(i, 1)) + line + "\n")
			}
		}
	}
	show := func(t table, indent string) {
		lines(strings.TrimSuffix(indent, "  "), t.title)
		if t.shared != "" {
			lines(indent, t.shared)
		}
		b.WriteString(t.grid.fitted(indent, textWidth))
		lines(indent, t.legend...)
	}
	for i := range o.Comparisons {
		v := view(&o.Comparisons[i], o.RoundsOf(o.Comparisons[i]))
		legend := v.legend
		if n := len(v.noise); n > 0 {
			legend = append(slices.Clip(legend), fmt.Sprintf("noisy: %s of %d; the report lists them", Plural(n, "cell"), len(o.Comparisons[i].Cells)))
		}
		show(table{title: v.family + ": " + v.title + partial(o), shared: v.shared, grid: v.grid, legend: legend}, "  ")
		for _, t := range v.more() {
			b.WriteString("\n")
			lines("  ", t.title)
			b.WriteString(t.grid.fitted("  ", textWidth))
		}
		b.WriteString("\n")
	}
	others := sweeps(o)
	if t := shares(o); len(t.grid.rows) > 0 {
		others = append(others, t)
	}
	for _, t := range others {
		show(t, "  ")
		b.WriteString("\n")
	}
	lines("", method(o)...)
	_, err := w.Write(b.Bytes())
	return err
}

// JSON writes the run in the form of run.json (see [lab.Outcome]).
func JSON(w io.Writer, o *lab.Outcome) error { return o.WriteJSON(w) }

// Bench writes the rounds as benchfmt, for benchstat.
func Bench(w io.Writer, o *lab.Outcome) error { return o.WriteBench(w) }

// Write writes report.md and report.html into a results folder, each completely or not
// at all. Package lab writes the other files during the run.
func Write(dir string, o *lab.Outcome) error {
	for name, write := range map[string]func(io.Writer, *lab.Outcome) error{lab.ReportFile: Markdown, HTMLFile: HTML} {
		if err := lab.ReplaceFile(filepath.Join(dir, name), func(w io.Writer) error { return write(w, o) }); err != nil {
			return err
		}
	}
	return nil
}

// tableView is a comparison prepared for output.
type tableView struct {
	family, title string
	// shared are the labels that are equal in all rows.
	shared string
	grid   grid
	legend []string
	noise  []string // one line per noisy cell
	rows   []row
	// costs and noted may have no rows.
	costs, noted grid
}

// more returns the further tables that have rows.
func (v tableView) more() []table {
	var out []table
	for _, t := range []table{{title: "Costs", grid: v.costs}, {title: "Notes of the workloads", grid: v.noted}} {
		if len(t.grid.rows) > 0 {
			out = append(out, t)
		}
	}
	return out
}

// view lays out a comparison. rounds is the number of rounds of the run; a comparison
// with a budget has its own.
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
	v.grid.column("ratio", false)
	v.grid.column("would see", false)
	v.grid.column("verdict", true)
	for _, h := range []string{"at rate", "p50", "p99", "p99.9"} {
		v.grid.column(h, false)
	}

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
		if cl.Verdict.Detail == "" || cl.Repeats != "" {
			continue
		}
		line := cellName(&cl, varying) + ": " + cl.Verdict.String()
		if cl.Verdict.Status == lab.Noisy {
			v.noise = append(v.noise, line)
		} else {
			v.legend = append(v.legend, line)
		}
	}
	return v
}

// cellName identifies a cell within its table.
func cellName(c *lab.CellResult, varying []string) string {
	name := row{throughput: c}.variant()
	for _, key := range varying {
		if v := c.Label(key); v != "" {
			name += " " + key + "=" + v
		}
	}
	return name + " @" + rateOf(c)
}

// figures returns the columns after the throughput, with dashes for missing figures.
func figures(r row, rows []row, rounds int) []string {
	rate := none
	if r.wait.Count > 0 {
		rate = r.rate()
	}
	return []string{
		ratioColumn(r, rows),
		seenColumn(r, rows),
		r.verdict(rounds),
		rate,
		quantile(r.wait.Count, 2, r.wait.P50),
		quantile(r.wait.Count, 100, r.wait.P99),
		quantile(r.wait.Count, 1000, r.wait.P999),
	}
}

// quantile writes a quantile, or none if have is below need.
func quantile(have, need uint64, d time.Duration) string {
	if have < need {
		return none
	}
	return nanoseconds(float64(d.Nanoseconds()))
}

// ratioColumn returns the ratio to the baseline, or the reason for its absence.
func ratioColumn(r row, rows []row) string {
	if base, ok := counterpart(r, rows); ok && unequal(base, r) && len(r.fast) > 0 {
		return "unequal"
	}
	if r.isBaseline() && len(r.fast) > 0 {
		return "baseline"
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

// seenColumn returns the smallest change of throughput that the rounds detect.
func seenColumn(r row, rows []row) string {
	base, ok := ratioBase(r, rows)
	if !ok {
		return none
	}
	return seen(base.fast[stats.UnitEventsPerSec], r.fast[stats.UnitEventsPerSec])
}

// ratioBase returns the baseline of a row's throughput. It returns false if either row
// is paced: the generator sets its throughput.
func ratioBase(r row, rows []row) (row, bool) {
	base, ok := baselineOf(r, rows)
	return base, ok && !r.paced() && !base.paced() && len(r.fast) > 0
}

// inequalities explains the missing ratios, once per pair of guarantees.
func inequalities(rows []row) []string {
	var lines []string
	for _, r := range rows {
		base, ok := counterpart(r, rows)
		if !ok || !unequal(base, r) {
			continue
		}
		line := fmt.Sprintf("unequal: no ratio, because the baseline guarantees %s and the variant %s", base.throughput.Class, r.throughput.Class)
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return lines
}

// splitLabels returns the keys whose values differ between the rows, and the other
// labels as key=value.
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

// guaranteeCodes returns the distinct guarantees in order of appearance. The index is
// the code.
func guaranteeCodes(c *lab.ComparisonResult) []string {
	var out []string
	for _, cl := range c.Cells {
		if cl.Guarantees != "" && !slices.Contains(out, cl.Guarantees) {
			out = append(out, cl.Guarantees)
		}
	}
	return out
}

// code returns a letter for the first 26 indexes, and none below 0.
func code(i int) string {
	switch {
	case i < 0:
		return none
	case i < 26:
		return string(rune('A' + i))
	}
	return fmt.Sprintf("A%d", i)
}

// latencyBoundaries returns the boundaries of the latency columns, usually one.
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

// method describes the measurement and the notation.
func method(o *lab.Outcome) []string {
	warm := "after one warm-up round that does not count"
	if o.Fresh {
		warm = "each play in a process of its own, without warm-up"
	}
	lines := []string{
		fmt.Sprintf("Figures are medians of %s, %s. Seed %d draws the order of the cells in each round.", rounds(o), warm, o.Seed),
		"events/s: unpaced throughput, unless the rate is set. ±: interquartile range of the rounds over their median; above " + percent(lab.MaxSpread) + " the cell is noisy. 95 % interval: of the median, from 6 rounds on.",
		"p50, p99, p99.9: latency at the given rate, over all rounds; unpaced (max), it is mostly the wait in the queue. Shown from 100 events on, p99.9 from 1,000. Costs are those of the whole process.",
		"ratio: events/s over the baseline with the same knobs. no difference: not significant (Mann-Whitney U, p ≥ " + number(stats.Alpha) + "). ?: fewer than 4 rounds, not testable. unequal: the guarantees differ, so there is no ratio. -: no baseline with figures, or a set rate.",
		"would see: the smallest change that these rounds, with their noise, detect in " + percent(stats.Power) + " of all runs.",
		"A/A: the baseline played twice in every round. If the two differ, do not trust differences of that size.",
		fmt.Sprintf("invalid: no figure is kept. generator: in the median round, more than %s of the releases were late by more than their budget (default %v, or 1 %% of the time between two events if that is longer).", percent(lab.MaxLateShare), cell.LateAfter),
		fmt.Sprintf("steal, throttled, gc-limit: the machine disturbed the median round. Other machines took more than %s of the CPU time, the CPU quota held the process back for more than %s of the time, or the runtime limited the collector.", percent(lab.MaxSteal), percent(lab.MaxThrottled)),
	}
	if o.Merged != nil {
		lines = append(lines, "A merged cell has the worst verdict of its shares, and is noisy if the shares did not start a round together (within "+percent(lab.MaxSpread)+" of its length). shares: some are missing.")
	}
	if o.Interrupted {
		finished, all := o.Finished()
		lines = append(lines, fmt.Sprintf("Interrupted: %d of %d cells have all their rounds.", finished, all))
	}
	return lines
}

// rounds returns the number of rounds. With a budget, comparisons have different
// numbers.
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
