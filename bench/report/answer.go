package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"watchlab/bench/chart"
	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// answer is the first screen of the page for a block: the sentence of [Brief], a chart that shows it, and
// the cost.
type answer struct {
	*block
	Evidence, Cost string
	Panel          panel
}

func answers(all []*block) (out []answer) {
	for i, b := range all {
		a := answer{block: b, Panel: panel{ID: fmt.Sprintf("answer-%d", i+1)}}
		switch {
		case b.best != nil:
			a.Evidence, a.Cost = b.evidence(), b.cost()
			a.draw(withBase(b.rows), *b.best)
		case len(b.knees) > 0:
			drawHeld(&a.Panel, b.knees, b.all)
		case slices.ContainsFunc(b.rows, func(r row) bool { return !r.baseline }):
			a.draw(b.rows, b.rows[0])
		}
		out = append(out, a)
	}
	return out
}

// withBase adds the baseline of rows, which may lack a knob that they have.
func withBase(rows []row) []row {
	for _, r := range rows {
		if r.base != nil && !slices.ContainsFunc(rows, func(other row) bool { return other.variant() == r.base.variant() }) {
			return append([]row{*r.base}, rows...)
		}
	}
	return rows
}

// evidence counts the verdicts of the cells beside the best variant's.
func (b *block) evidence() string {
	var verdicts []string
	cells := 0
	for _, r := range withBase(b.rows) {
		for _, c := range r.cells() {
			verdicts = append(verdicts, string(c.Verdict.Status))
			cells++
		}
	}
	var parts []string
	for _, set := range together(verdicts, func(s string) string { return s }) {
		parts = append(parts, fmt.Sprintf("%d %s", len(set), set[0]))
	}
	parts[0] = strings.Replace(parts[0], " ", fmt.Sprintf(" of %s are ", lab.Plural(cells, "cell")), 1)
	if len(parts) == 1 {
		parts[0] = fmt.Sprintf("all %s are %s", lab.Plural(cells, "cell"), verdicts[0])
	}
	return fmt.Sprintf("`%s` over `%s` in %s: %s.", b.best.variant(), b.best.base.variant(),
		lab.Plural(len(b.best.samples(stats.UnitEventsPerSec)), "round"), strings.Join(parts, ", "))
}

// span writes a ratio with its interval.
func span(c stats.Comparison) string {
	if c.Lo > 0 {
		return fmt.Sprintf("%s (%s–%s)", chart.Times(c.Ratio), chart.Times(c.Lo), chart.Times(c.Hi))
	}
	return ratio(c)
}

// cost compares what an event costs the best variant and its baseline.
func (b *block) cost() string {
	of := func(r row) string {
		var parts []string
		add := func(unit, format string, write func(float64) string) {
			if text := r.median(unit, write); text != chart.None {
				parts = append(parts, fmt.Sprintf(format, text))
			}
		}
		add(r.cpu(), "%s of CPU", chart.Nanoseconds)
		add(stats.UnitAllocsPerOp, "%s allocations", chart.Number)
		add(stats.UnitBytesPerOp, "%sB", chart.Bytes)
		return fmt.Sprintf("`%s` %s", r.variant(), strings.Join(parts, ", "))
	}
	return "An event costs " + of(*b.best) + "; " + of(*b.best.base) + "."
}

// draw draws the ratio of each variant to the baseline, and p99 beside it.
func (a *answer) draw(rows []row, best row) {
	unit, base := a.gain.unit, "the baseline"
	if best.base != nil {
		base = best.base.variant()
	}
	along := chart.Axis{Label: cmp.Or(unit, perCPU) + ", × of " + base, Log: true, Format: chart.Ratio}
	c := chart.Rows{Axis: along, Columns: chart.IntervalColumns(along), Rule: 1}
	for _, r := range rows {
		c.Rows = append(c.Rows, gainRow(r, along, unit))
	}
	a.Panel.add(c, figure{Kind: "answer", Title: "Ratio to " + base,
		Caption: "A bar goes from the baseline, 1×, to the ratio: to the right is better. The line through its end is the 95 % confidence interval."},
		"Ratio of each variant to the baseline on a logarithmic axis, as a bar from 1 with its interval.")
	a.drawP99(rows)
	a.Panel.Marks = marks(rows, len(a.Panel.Figures) > 1)
}

// gainRow shows the gain of a row.
func gainRow(r row, along chart.Axis, unit string) chart.Row {
	line := chart.Row{Name: r.variant(), Style: chart.Of(r.variant())}
	g := r.gain()
	switch {
	case r.broken():
		line.Note = r.worst().Verdict.Short()
	case r.baseline && len(r.fast) == 0:
		line.Note = "baseline, " + r.throughput.Verdict.Short()
	case r.baseline:
		line.Note = "baseline"
		return chart.Interval(line, along, chart.Sample{Median: 1}, r.form(), "baseline, "+r.verdict(0))
	case g.why != "":
		line.Note = g.why
	case g.unit != unit:
		line.Note = "no CPU time was measured"
	default:
		line.Note = span(g.Comparison)
		if g.same() {
			line.Note = "no difference " + strings.TrimPrefix(line.Note, chart.Times(g.Ratio)+" ")
		}
		return chart.Interval(line, along, chart.Sample{Median: g.Ratio, Lo: g.Lo, Hi: g.Hi}, r.form(), span(g.Comparison)+" "+unit+", "+r.verdict(0))
	}
	return chart.Interval(line, along, chart.Sample{}, chart.Missing, line.Note)
}

// form returns the form of a row's mark.
func (r row) form() chart.Verdict {
	return formOf(!r.broken() && len(r.fast) > 0, r.gain().against, r.throughput)
}

// p99Form returns the form of the mark of a row's p99, whose cell has a verdict of its own.
func (r row) p99Form() chart.Verdict { return formOf(r.hasP99(), r.against(stats.UnitP99), r.latency) }

func formOf(has bool, base against, c *lab.CellResult) chart.Verdict {
	switch {
	case !has:
		return chart.Missing
	case base.why == "" && !base.Testable:
		return chart.Untested
	case c.Verdict.Status == lab.Noisy:
		return chart.Noisy
	}
	return chart.Sure
}

// marks explains the forms of the marks of rows, with p99 if it is drawn.
func marks(rows []row, p99 bool) (out []mark) {
	for v, name := range []string{"valid", "noisy", tooFew, "no figure"} {
		verdict := chart.Verdict(v)
		if slices.ContainsFunc(rows, func(r row) bool {
			return r.form() == verdict || p99 && r.p99Form() == verdict || verdict == chart.Missing && !r.baseline && r.gain().why != ""
		}) {
			out = append(out, mark{chart.VerdictKey(verdict), name})
		}
	}
	return out
}

// drawP99 draws p99 at a fixed rate.
func (a *answer) drawP99(rows []row) {
	measured := slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return !r.hasP99() })
	rates := distinct(ratesOf(measured))
	if len(rates) == 0 {
		return
	}
	along := chart.Axis{Label: "p99", Log: true, Format: chart.Time}
	if len(rates) == 1 {
		along.Label += " " + lab.RateText(rates[0])
	}
	c := chart.Rows{Axis: along, Columns: chart.IntervalColumns(along)}
	for _, r := range rows {
		line := chart.Row{Name: r.variant(), Style: chart.Of(r.variant()), Note: r.latency.Verdict.Short()}
		if r.unpaced() {
			line.Note = "not played at this rate"
		}
		var s chart.Sample
		if r.hasP99() {
			s.Median = float64(r.wait.P99)
			line.Note = chart.Nanoseconds(s.Median)
			if len(rates) > 1 {
				line.Note += " @" + r.rate()
			}
			if x := r.ratio(stats.UnitP99); x != chart.None {
				line.Note += "  " + x
			}
			s.Lo, s.Hi = r.p99Range()
		}
		c.Rows = append(c.Rows, chart.Interval(line, along, s, r.p99Form(), line.Note))
	}
	a.Panel.add(c, figure{Kind: "tail", Title: "Latency at a fixed rate",
		Caption: "Left is better. p99 of all rounds; the line goes from the smallest round to the largest."},
		"99th percentile of each variant's latency on a logarithmic axis, as a mark with the range of the rounds.")
}

// kneesOf returns the knees of the first setting that the rows belong to, the highest first.
func kneesOf(o run, rows []row) []stats.Knee {
	var all []stats.Knee
	for _, k := range o.Knees {
		if slices.ContainsFunc(rows, func(r row) bool { return r.throughput.NameWithout("rate") == k.Cell }) {
			all = append(all, k)
		}
	}
	if len(all) == 0 {
		return nil
	}
	first := together(all, func(k stats.Knee) string { return rowNamed(k.Cell, "").throughput.NameWithout("impl") + objective(k) })[0]
	slices.SortStableFunc(first, func(a, b stats.Knee) int { return cmp.Compare(b.Held, a.Held) })
	return first
}

// isBaseline reports whether a variant is the baseline of rows.
func isBaseline(rows []row, impl string) bool {
	return slices.ContainsFunc(rows, func(r row) bool { return r.throughput.Baseline && r.variant() == impl })
}

// kneeAnswer says who holds the objective up to the highest rate.
func kneeAnswer(knees []stats.Knee, rows []row) string {
	best := knees[0]
	var open []string
	for _, k := range knees {
		if k.Held <= 0 && k.Limit != "latency" {
			open = append(open, "`"+k.Impl+"` (limit: "+k.Limit+")")
		}
	}
	rest := "."
	if len(open) > 0 {
		rest = "; not answered: " + strings.Join(open, ", ") + "."
	}
	if best.Held <= 0 {
		return fmt.Sprintf("No variant of %d holds %s at a rate that was tried", len(knees), objective(best)) + rest
	}
	text := fmt.Sprintf("`%s` holds %s up to the highest rate of %s, %s events/s", best.Impl, objective(best), lab.Plural(len(knees), "variant"), chart.Decimal(best.Held))
	wanted := func(k stats.Knee) bool { return isBaseline(rows, k.Impl) }
	if isBaseline(rows, best.Impl) {
		wanted = func(k stats.Knee) bool { return !upstream(k.Impl) && k.Impl != best.Impl }
	}
	at := slices.IndexFunc(knees, wanted)
	if at < 0 || knees[at].Held <= 0 {
		return text + rest
	}
	other := knees[at]
	text += fmt.Sprintf(": %s of `%s` (%s)", chart.Times(best.Held/other.Held), other.Impl, chart.Decimal(other.Held))
	if lo, _ := best.Interval(); lo > 0 {
		if _, hi := other.Interval(); hi > 0 && hi >= lo {
			text += "; their intervals overlap"
		}
	}
	return text + rest
}

// drawHeld draws the highest rate within the objective of each variant.
func drawHeld(p *panel, knees []stats.Knee, rows []row) {
	along := chart.Axis{Label: "events/s within " + objective(knees[0]), Log: true, Format: chart.Count}
	c := chart.Rows{Axis: along, Columns: chart.IntervalColumns(along)}
	for _, k := range knees {
		line := chart.Row{Name: k.Impl, Style: chart.Of(k.Impl), Note: "none"}
		s, form := chart.Sample{Median: k.Held}, chart.Sure
		if lo, hi := k.Interval(); lo > 0 && hi > 0 {
			s.Lo, s.Hi = lo, hi
		}
		if k.Held > 0 {
			line.Note = chart.Decimal(k.Held)
		}
		if isBaseline(rows, k.Impl) {
			line.Note += "  baseline"
		}
		if k.Limit != "latency" {
			line.Note, form = line.Note+", limit: "+k.Limit, chart.Untested
		}
		c.Rows = append(c.Rows, chart.Interval(line, along, s, form, line.Note+" events/s"))
	}
	p.add(c, figure{Kind: "answer", Title: "Highest rate within " + objective(knees[0]),
		Caption: "Right is better. The line goes from the rate that all rounds hold to the one that none holds. A hollow mark may hold more."},
		"The highest rate at which each variant holds the objective, on a logarithmic axis.")
}
