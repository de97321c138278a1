package report

import (
	"cmp"
	"fmt"
	"slices"

	"watchlab/bench/chart"
	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// drawn returns the summaries with the charts of the first screen, which show what each sentence says.
func drawn(all []*summary) []*summary {
	for i, s := range all {
		s.Panel.ID = fmt.Sprintf("answer-%d", i+1)
		switch {
		case s.best != nil:
			s.Panel.drawGains(withBase(s.rows), *s.best)
		case len(s.knees) == 0 && slices.ContainsFunc(s.rows, func(r row) bool { return !r.baseline }):
			s.Panel.drawGains(s.rows, s.rows[0])
		}
	}
	return all
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

// drawGains draws the ratio of each variant to the baseline of the best one, and p99 beside it.
func (p *panel) drawGains(rows []row, best row) {
	base := "the baseline"
	if best.base != nil {
		base = best.base.variant()
	}
	along := chart.Axis{Label: perCPU + ", × of " + base, Log: true, Format: chart.Ratio}
	c := chart.Rows{Axis: along, Columns: chart.IntervalColumns(along), Rule: 1}
	for _, r := range rows {
		c.Rows = append(c.Rows, gainRow(r, along))
	}
	p.add(c, figure{Kind: "answer", Title: "Ratio to " + base,
		Caption: "A bar goes from the baseline, 1×, to the ratio: to the right is better. The line through its end is the 95 % confidence interval. " + hollow},
		"Ratio of each variant to the baseline on a logarithmic axis, as a bar from 1 with its interval.")
	p.drawP99(rows)
}

// gainRow shows the gain of a row, with the words of the summary's table.
func gainRow(r row, along chart.Axis) chart.Row {
	text := r.gainFigures(r.base, r.baseline)
	line := chart.Row{Name: r.variant(), Style: chart.Of(r.variant()), Note: text[0]}
	if text[1] != chart.None {
		line.Note += " (" + text[1] + ")"
	}
	q := chart.Point{Tip: line.Note + ", " + r.verdict(0)}
	if r.throughput.Verdict.Status == lab.Noisy {
		line.Note += ", noisy"
	}
	g := r.gain()
	switch {
	case r.broken() || len(r.fast) == 0:
	case r.baseline:
		q.Y = 1
	case g.missing == "":
		q.Y, q.Lo, q.Hi = g.Ratio, g.Lo, g.Hi
	}
	return chart.Interval(line, along, q, uncertain(g, r.throughput))
}

// hollow explains the marks of [uncertain] figures.
const hollow = "A hollow mark is noisy, or has too few rounds to tell."

func uncertain(base against, c *lab.CellResult) bool {
	return base.missing == "" && !base.Testable || c.Verdict.Status == lab.Noisy
}

// drawP99 draws p99 at a fixed rate.
func (p *panel) drawP99(rows []row) {
	rates := ratesOf(rows)
	if len(rates) == 0 {
		return
	}
	along := chart.Axis{Label: "p99", Log: true, Format: chart.Nanoseconds}
	if len(rates) == 1 {
		along.Label += " " + lab.RateText(rates[0])
	}
	c := chart.Rows{Axis: along, Columns: chart.IntervalColumns(along)}
	for _, r := range rows {
		line := chart.Row{Name: r.variant(), Style: chart.Of(r.variant()), Note: r.latency.Verdict.Short()}
		if r.unpaced() {
			line.Note = "not played at this rate"
		}
		var q chart.Point
		if r.hasP99() {
			q.Y = float64(r.wait.P99)
			line.Note = chart.Nanoseconds(q.Y)
			if len(rates) > 1 {
				line.Note += " @" + r.rate()
			}
			if x := r.ratio(stats.UnitP99); x != chart.None {
				line.Note += "  " + x
			}
			q.Lo, q.Hi = r.p99Range()
			q.Tip = line.Note
		}
		c.Rows = append(c.Rows, chart.Interval(line, along, q, uncertain(r.against(stats.UnitP99), r.latency)))
	}
	p.add(c, figure{Kind: "tail", Title: "Latency at a fixed rate",
		Caption: "Left is better. p99 of all rounds; the line goes from the smallest round to the largest."},
		"99th percentile of each variant's latency on a logarithmic axis, as a mark with the range of the rounds.")
}

// kneesOf returns the knees of the first setting that the rows belong to, the highest first.
func kneesOf(o run, rows []row) []stats.Knee {
	var all []stats.Knee
	for _, k := range o.Knees {
		if slices.ContainsFunc(rows, func(r row) bool { return r.throughput.NameExcept("rate") == k.Cell }) {
			all = append(all, k)
		}
	}
	if len(all) == 0 {
		return nil
	}
	first := lab.GroupBy(all, func(k stats.Knee) string { return rowNamed(k.Cell, "").throughput.NameExcept("impl") + objective(k) })[0]
	slices.SortStableFunc(first, func(a, b stats.Knee) int { return cmp.Compare(b.Held, a.Held) })
	return first
}

// compareKnees compares the highest rate within the objective with the baseline's. It prefers a knee of ours.
func compareKnees(knees []stats.Knee, rows []row) sentence {
	baseline := func(k stats.Knee) bool {
		return slices.ContainsFunc(rows, func(r row) bool { return r.throughput.Baseline && r.variant() == k.Impl })
	}
	of, at := slices.IndexFunc(knees, baseline), slices.IndexFunc(knees, func(k stats.Knee) bool { return !upstream(k.Impl) && !baseline(k) })
	if at < 0 {
		at = slices.IndexFunc(knees, func(k stats.Knee) bool { return !baseline(k) })
	}
	if of < 0 || at < 0 {
		return sentence{Missing: noBaseline}
	}
	base, best := knees[of], knees[at]
	s := sentence{Best: best.Impl, Base: base.Impl, Unit: "events per second within " + objective(best), Ratio: best.Held / base.Held}
	if base.Held <= 0 || best.Held <= 0 {
		s.Missing = fmt.Sprintf("`%s` or `%s` holds %s at no tried rate", best.Impl, base.Impl, objective(best))
		return s
	}
	from, to := base.Interval()
	lo, hi := best.Interval()
	s.Same = from > 0 && to > 0 && lo > 0 && hi > 0 && lo <= to && from <= hi
	return s
}
