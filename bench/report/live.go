package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"watchlab/bench/chart"
	"watchlab/bench/lab"
	"watchlab/bench/stats"
	"watchlab/bench/telemetry/live"
)

// Rankings compares the variants of a run so far, group by group, with the charts of the first screen.
func Rankings(o *lab.Outcome) (out []live.Ranking) {
	for _, c := range newRun(o).comparisons {
		for _, g := range c.groups {
			out = append(out, g.oneRate().ranking(c.Family, fmt.Sprintf("ranking%d", len(out))))
		}
	}
	return out
}

// ranking compares by throughput, or by p99 if all cells are paced. The id is that of the charts.
func (g group) ranking(name, id string) live.Ranking {
	unit, of, format := stats.UnitP99, "p99 "+lab.RateText(g.rows[0].rate()), chart.Nanoseconds
	if slices.ContainsFunc(g.rows, func(r row) bool { return !r.paced() }) {
		unit, of, format = stats.UnitEventsPerSec, "events/s", chart.Decimal
	}
	rows := slices.Clone(g.rows)
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.place(unit), b.place(unit)) })
	out := live.Ranking{Group: live.LabelsOf(name, g.Label).Group(), Knobs: g.NameExcept("impl", "rate"), Of: of}
	for _, r := range rows {
		verdict := r.throughput.Verdict
		if r.broken() {
			verdict = r.worst().Verdict
		}
		out.Variants = append(out.Variants, live.Standing{
			Name: r.variant(), Rounds: max(len(r.throughput.Rounds), len(r.throughput.Withheld)), Figure: r.median(unit, format),
			Ratio: strings.Replace(r.ratio(unit), "no difference", "no diff.", 1), Verdict: verdict.Short(),
		})
	}
	at := slices.IndexFunc(rows, func(r row) bool { return r.gain().missing == "" })
	if at < 0 {
		return out
	}
	p := panel{ID: id}
	p.drawGains(rows, rows[at])
	for _, f := range p.Figures {
		out.Figures = append(out.Figures, live.Figure{Title: f.Title, Caption: f.Caption, SVG: f.SVG})
	}
	for _, m := range p.Marks {
		out.Marks = append(out.Marks, live.Mark{Key: m.Key, Text: m.Name})
	}
	return out
}

// RankingLines writes a ranking for a terminal, with a sign at the variant that is being played.
func RankingLines(r live.Ranking, playing string) []string {
	t := chart.NewTable(r.Group, []string{"  variant"}, "rounds", r.Of, "ratio")
	t.Words("verdict")
	for _, v := range r.Variants {
		sign := "  "
		if v.Name == playing {
			sign = "> "
		}
		t.Add(sign+v.Name, fmt.Sprint(v.Rounds), v.Figure, v.Ratio, v.Verdict)
	}
	return append([]string{t.Title}, t.Lines()...)
}

// place is less for a better row.
func (r row) place(unit string) float64 {
	switch a := r.against(unit); {
	case r.baseline:
		return 1
	case a.missing != "":
		return math.Inf(1)
	case stats.Better(unit) == stats.Higher:
		return 1 / a.Ratio
	default:
		return a.Ratio
	}
}
