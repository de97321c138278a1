package report

import (
	"cmp"
	"fmt"
	"slices"

	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// tooFew marks a comparison that cannot be tested.
const tooFew = "too few rounds to tell"

// verdict is how reliable the run is, and the best variants.
type verdict struct {
	Tiles []tile
	Pairs []note // the A/A pairs
	Notes []note // warnings about the figures
	// Ranking has one row per group of comparable cells.
	Ranking table
}

// tile is a large count.
type tile struct{ Value, Label, Class string }

// note is a line with the cells concerned. The list of cells is collapsed unless Open
// is set.
type note struct {
	Text, Class string
	Cells       []string
	Open        bool
}

func newVerdict(o *lab.Outcome, all []comparison) verdict {
	var v verdict
	var cells []lab.CellResult
	for _, c := range o.Comparisons {
		cells = slices.Concat(cells, c.Cells)
	}
	for _, s := range []lab.Status{lab.Valid, lab.Noisy, lab.Invalid, lab.Unplayed} {
		n := 0
		for _, cl := range cells {
			if cl.Verdict.Status == s {
				n++
			}
		}
		t := tile{Value: fmt.Sprint(n), Label: fmt.Sprintf("of %s %s", Plural(len(cells), "cell"), s), Class: statusClass[s]}
		if n == 0 && s != lab.Valid {
			t.Class = "none"
		}
		if n > 0 || s != lab.Unplayed {
			v.Tiles = append(v.Tiles, t)
		}
	}
	if o.Interrupted {
		v.Notes = append(v.Notes, note{Text: interrupted(o), Class: "warn"})
	}
	v.Notes = slices.Concat(v.Notes, shareNotes(o.Merged), invalidNotes(cells))
	for i := range o.Comparisons {
		c := &o.Comparisons[i]
		for _, line := range watchBreaks(c) {
			v.Notes = append(v.Notes, note{Text: c.Family + ", " + c.Title + ", " + line, Class: "warn"})
		}
		for _, n := range repeats(c) {
			if len(o.Comparisons) > 1 {
				n.Text = c.Family + ": " + n.Text
			}
			v.Pairs = append(v.Pairs, n)
		}
	}
	v.Ranking = ranking(all)
	return v
}

// invalidNotes returns a note for each invalid verdict. A disturbance by the machine is
// only a warning, because no variant causes it.
func invalidNotes(cells []lab.CellResult) []note {
	cells = slices.DeleteFunc(cells, func(c lab.CellResult) bool { return c.Verdict.Status != lab.Invalid })
	var out []note
	for _, set := range together(cells, func(c lab.CellResult) string { return c.Verdict.Short() }) {
		n := note{Text: Plural(len(set), "cell") + " " + set[0].Verdict.Short(), Class: "warn", Open: len(set) <= 4}
		if set[0].Verdict.Failed() {
			n.Class = "bad"
		}
		for _, c := range set {
			line := c.BenchName()
			if c.Verdict.Detail != "" {
				line += ": " + c.Verdict.Detail
			}
			n.Cells = append(n.Cells, line)
		}
		out = append(out, n)
	}
	return out
}

// ranking names two variants per group: the one with the most events/s and the one with
// the lowest p99. Each is compared with its baseline.
func ranking(all []comparison) table {
	const against = "against its baseline"
	t := newTable("Ranking", []string{"compared", "most events/s", against, "lowest p99", against})
	for _, c := range all {
		for _, g := range groupsOf(c.rows, c.Latency, nil) {
			if g.contested() {
				t.add(slices.Concat([]string{c.Family + ": " + g.title}, fastest(g.rows), quickest(g))...)
			}
		}
	}
	return t
}

// fastest returns the unpaced row with the most events/s.
func fastest(rows []row) []string {
	free := slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return r.paced() || len(r.samples(stats.UnitEventsPerSec)) == 0 })
	if len(free) == 0 {
		return []string{none, none}
	}
	slices.SortStableFunc(free, func(a, b row) int { return cmp.Compare(b.perSecond(), a.perSecond()) })
	best := free[0]
	return []string{best.variant() + " " + decimal(best.perSecond()) + doubt(best.throughput), lead(free, rows, stats.UnitEventsPerSec)}
}

// quickest returns the row with the lowest p99. It uses the rate with a p99 for the
// most variants, and the highest such rate.
func quickest(g group) []string {
	var chosen, all []row
	for _, rate := range slices.Backward(g.rates()) {
		rows := g.at(rate).rows
		with := slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return r.wait.Count < 100 })
		if len(with) > len(chosen) {
			chosen, all = with, rows
		}
	}
	if len(chosen) == 0 {
		return []string{none, none}
	}
	slices.SortStableFunc(chosen, func(a, b row) int { return cmp.Compare(a.wait.P99, b.wait.P99) })
	best := chosen[0]
	return []string{
		fmt.Sprintf("%s %s %s", best.variant(), nanoseconds(float64(best.wait.P99)), rateTitle(best.rate())) + doubt(best.latency),
		lead(chosen, all, stats.UnitP99),
	}
}

// lead compares the first of the ordered rows with its baseline. If the first row is
// itself a baseline, lead compares the best other row. A baseline then does not seem to
// win by chance.
func lead(ordered, rows []row, unit string) string {
	if !ordered[0].isBaseline() {
		return standing(ordered[0], rows, unit)
	}
	at := slices.IndexFunc(ordered, func(r row) bool { return !r.isBaseline() })
	if at < 0 {
		return "is itself a baseline"
	}
	return "is itself a baseline; " + ordered[at].variant() + ": " + standing(ordered[at], rows, unit)
}

// doubt returns the verdict of a cell that is not valid, in brackets.
func doubt(c *lab.CellResult) string {
	if c.Verdict.Status == lab.Valid {
		return ""
	}
	return " (" + string(c.Verdict.Status) + ")"
}

// standing compares a row with its baseline in one unit.
func standing(r row, rows []row, unit string) string {
	a := r.against(rows, unit)
	if a.why == noBaseline {
		return a.why
	}
	base := a.base.variant()
	switch {
	case a.why == notEqual:
		return "no ratio: guarantees other than " + base
	case a.why == noFigures:
		return base + " has no figure"
	case a.why != "":
		return "no ratio: " + a.why
	case !a.Testable:
		return fmt.Sprintf("%s of %s; %s", times(a.Ratio), base, tooFew)
	case !a.Significant:
		return fmt.Sprintf("no difference from %s (%s; would see %s)", base, stats.PText(a.P), seen(a.from, a.to))
	}
	return fmt.Sprintf("%s of %s (%s)", times(a.Ratio), base, stats.PText(a.P))
}
