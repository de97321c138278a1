package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// verdictView is the first part of the page: how reliable the run is, and the best
// variants.
type verdictView struct {
	Tiles []tile
	// Pairs describe the A/A pairs.
	Pairs []note
	// Notes are warnings about the figures.
	Notes []note
	// Winners has one row per group of comparable cells.
	Winners htmlTable
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

// asked describes the questions of the run.
func asked(o *lab.Outcome) []term {
	terms := []term{{Name: "Command", Values: []string{command(o)}, Code: true}}
	var compared, inputs []string
	for _, c := range o.Comparisons {
		var impls []string
		cells := 0
		for _, cl := range c.Cells {
			if cl.Repeats != "" {
				continue
			}
			cells++
			name := (row{throughput: &cl}).variant()
			if !slices.Contains(impls, name) {
				impls = append(impls, name)
			}
		}
		compared = append(compared, fmt.Sprintf("%s: %s — %s (%s)", c.Family, c.Title, strings.Join(impls, ", "), Plural(cells, "cell")))
		if c.Input != "" && !slices.Contains(inputs, c.Input) {
			inputs = append(inputs, c.Input)
		}
	}
	terms = append(terms, term{Name: "Compared", Values: compared})
	terms = append(terms, term{Name: "Rounds", Values: []string{fmt.Sprintf("%s that count, after one that warms up; order drawn from seed %d", rounds(o), o.Seed)}})
	if len(inputs) > 0 {
		terms = append(terms, term{Name: "Played (digest)", Values: inputs, Code: true})
	}
	return terms
}

// verdictOf summarises the verdicts and the best variants.
func verdictOf(o *lab.Outcome, views []tableView) verdictView {
	var v verdictView
	counts := map[lab.Status]int{}
	all := 0
	for _, c := range o.Comparisons {
		for _, cl := range c.Cells {
			counts[cl.Verdict.Status]++
			all++
			if cl.Verdict.Status == lab.Invalid {
				v.Notes = invalid(v.Notes, &cl)
			}
		}
	}
	for _, s := range []struct {
		status lab.Status
		class  string
	}{{lab.Valid, "good"}, {lab.Noisy, "warn"}, {lab.Invalid, "bad"}, {lab.Unplayed, "warn"}} {
		n := counts[s.status]
		t := tile{Value: fmt.Sprint(n), Label: fmt.Sprintf("of %s %s", Plural(all, "cell"), s.status), Class: s.class}
		if n == 0 && s.status != lab.Valid {
			if s.status == lab.Unplayed {
				continue
			}
			t.Class = "none"
		}
		v.Tiles = append(v.Tiles, t)
	}
	for i := range o.Comparisons {
		c := &o.Comparisons[i]
		for _, line := range breaks(c) {
			v.Notes = append(v.Notes, note{Text: c.Family + ", " + c.Title + ", " + line, Class: "warn"})
		}
	}
	v.Notes = append(shareNotes(o), v.Notes...)
	v.Pairs = pairs(o)
	if o.Interrupted {
		finished, of := o.Finished()
		v.Notes = slices.Insert(v.Notes, 0, note{Text: fmt.Sprintf("Interrupted: %d of %d cells have all their rounds.", finished, of), Class: "warn"})
	}
	for i := range v.Notes {
		if n := &v.Notes[i]; len(n.Cells) > 0 {
			n.Text = Plural(len(n.Cells), "cell") + " " + n.Text
			n.Open = len(n.Cells) <= 4
		}
	}
	v.Winners = winners(o, views)
	return v
}

// invalid adds a cell to the note of its verdict. A disturbance by the machine is only
// a warning, because no variant causes it.
func invalid(notes []note, c *lab.CellResult) []note {
	text := c.Verdict.Short()
	at := slices.IndexFunc(notes, func(n note) bool { return n.Text == text })
	if at < 0 {
		at = len(notes)
		class := "warn"
		if (row{throughput: c, latency: c}).broken() {
			class = "bad"
		}
		notes = append(notes, note{Text: text, Class: class})
	}
	line := c.BenchName()
	if c.Verdict.Detail != "" {
		line += ": " + c.Verdict.Detail
	}
	notes[at].Cells = append(notes[at].Cells, line)
	return notes
}

// pairs describes the results of the A/A pairs.
func pairs(o *lab.Outcome) []note {
	var out []note
	for i := range o.Comparisons {
		for _, line := range again(&o.Comparisons[i]) {
			class := "good"
			switch {
			case strings.Contains(line, "WARNING"):
				class = "bad"
			case !strings.Contains(line, "no difference"):
				class = "warn"
			}
			if len(o.Comparisons) > 1 {
				line = o.Comparisons[i].Family + ": " + line
			}
			out = append(out, note{Text: line, Class: class})
		}
	}
	return out
}

// winners names two variants per group: the one with the most events/s and the one with
// the lowest p99. Each is compared with its baseline. A lead that is not significant is
// marked as none.
func winners(o *lab.Outcome, views []tableView) htmlTable {
	g := grid{}
	g.column("compared", true)
	g.column("most events/s", true)
	g.column("against its baseline", true)
	g.column("lowest p99", true)
	g.column("against its baseline", true)
	for i, v := range views {
		for _, gr := range groupsOf(v.rows, o.Comparisons[i].Latency, nil) {
			if !gr.contested() {
				continue
			}
			title := o.Comparisons[i].Family + ": " + gr.title
			line := []string{title}
			line = append(line, fastest(gr.rows)...)
			line = append(line, quickest(gr.rows)...)
			g.rows = append(g.rows, line)
		}
	}
	return htmlGrid("Who came out best", g)
}

// fastest returns the unpaced row with the most events/s.
func fastest(rows []row) []string {
	free := slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return r.paced() || len(r.fast[stats.UnitEventsPerSec]) == 0 })
	perSecond := func(r row) float64 { return stats.Median(r.fast[stats.UnitEventsPerSec]) }
	slices.SortStableFunc(free, func(a, b row) int { return cmp.Compare(perSecond(b), perSecond(a)) })
	if len(free) == 0 {
		return []string{none, none}
	}
	best := free[0]
	return []string{best.variant() + " " + decimal(perSecond(best)) + caution(best.throughput), lead(free, rows, stats.UnitEventsPerSec)}
}

// quickest returns the row with the lowest p99. It uses the rate with a p99 for the
// most variants, and the highest such rate.
func quickest(rows []row) []string {
	g := group{rows: rows}
	rates := g.rates()
	slices.Reverse(rates)
	var chosen, all []row
	for _, rate := range rates {
		at := g.at(rate).rows
		with := slices.DeleteFunc(slices.Clone(at), func(r row) bool { return r.wait.Count < 100 })
		if len(with) > len(chosen) {
			chosen, all = with, at
		}
	}
	if len(chosen) == 0 {
		return []string{none, none}
	}
	slices.SortStableFunc(chosen, func(a, b row) int { return cmp.Compare(a.wait.P99, b.wait.P99) })
	best := chosen[0]
	return []string{
		fmt.Sprintf("%s %s %s", best.variant(), nanoseconds(float64(best.wait.P99)), rateTitle(best.rate())) + caution(best.latency),
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

// caution returns the verdict of a cell that is not valid, in brackets.
func caution(c *lab.CellResult) string {
	if c.Verdict.Status == lab.Valid {
		return ""
	}
	return " (" + string(c.Verdict.Status) + ")"
}

// standing compares a row with its baseline in one unit.
func standing(r row, rows []row, unit string) string {
	base, ok := counterpart(r, rows)
	switch {
	case !ok:
		return "has none"
	case unequal(base, r):
		return "no ratio: promises other than " + base.variant()
	}
	from, to := base.fast, r.fast
	if unit == stats.UnitP99 {
		from, to = base.slow, r.slow
	}
	c, ok := compare(from, to, unit)
	switch {
	case !ok:
		return base.variant() + " has no figure"
	case !c.Testable:
		return fmt.Sprintf("%s of %s; too few rounds to tell", times(c.Ratio), base.variant())
	case !c.Significant:
		return fmt.Sprintf("no difference from %s (%s; would see %s)", base.variant(), stats.PText(c.P), seen(from[unit], to[unit]))
	}
	return fmt.Sprintf("%s of %s (%s)", times(c.Ratio), base.variant(), stats.PText(c.P))
}
