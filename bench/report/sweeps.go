package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"watchlab/bench/chart"
	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// sweeps returns the sections of claims, knees and scalings that have results.
func sweeps(o *lab.Outcome, charts bool) (all []section) {
	if len(o.Claims) > 0 {
		all = append(all, section{ID: "claims", Heading: "Claims", Intro: claimsIntro, Tables: []*chart.Table{claimTable([]Claimed{{Name: o.Name, Outcome: o}})}})
	}
	if len(o.Knees) > 0 {
		s := section{ID: "knees", Heading: "Knees", Intro: "The highest rate at which each variant holds an objective.", Tables: []*chart.Table{kneeTable(o.Knees)}}
		if o.OneProcess() {
			s.Intro += " All rounds ran in one process: the intervals do not contain what differs between processes."
		}
		all = append(all, s)
	}
	if len(o.Scalings) > 0 {
		s := section{ID: "scaling", Heading: "Scaling", Intro: "Throughput as one number grows. If it is a number of workers, the Universal Scalability Law is fitted to the medians: X(N) = λN / (1 + σ(N−1) + κN(N−1))."}
		for i, set := range lab.GroupBy(o.Scalings, func(s stats.Scaling) string { return s.Over }) {
			s.Tables = append(s.Tables, scalingTables(set)...)
			if charts {
				s.Panels = append(s.Panels, scalingPanels(fmt.Sprintf("%s-%d", s.ID, i+1), set)...)
			}
		}
		all = append(all, s)
	}
	return all
}

// rowNamed makes a row from a cell's name, so that splitLabels works on it.
func rowNamed(name, impl string) row {
	parts := strings.Split(name, "/")
	c := &lab.CellResult{Name: parts[0], Labels: []lab.Label{{Key: "impl", Value: impl}}}
	for _, p := range parts[1:] {
		if key, value, _ := strings.Cut(p, "="); key != "impl" {
			c.Labels = append(c.Labels, lab.Label{Key: key, Value: value})
		}
	}
	return row{throughput: c, latency: c}
}

// titled appends the shared labels to the title of a table.
func titled(title string, shared []string) string {
	if len(shared) == 0 {
		return title
	}
	return title + " (" + strings.Join(shared, ", ") + ")"
}

// objective writes a knee's objective: "p99 ≤ 1ms".
func objective(k stats.Knee) string {
	return strings.TrimSuffix(k.Objective.Unit, "-ns") + " ≤ " + chart.Nanoseconds(float64(k.Objective.Most))
}

// kneeTable returns the table of the highest rates within the objective.
func kneeTable(all []stats.Knee) *chart.Table {
	var rows []row
	for _, k := range all {
		rows = append(rows, rowNamed(k.Cell, k.Impl))
	}
	varying, shared := splitLabels(rows)
	t := rowTable(titled("Highest rates", shared), varying)
	t.Words("objective")
	t.Figures("holds", "fails at", "interval", "latency")
	t.Words("limit")
	rate := func(v float64) string {
		if v <= 0 {
			return chart.None
		}
		return chart.Decimal(v)
	}
	for i, k := range all {
		latency := chart.None
		for _, p := range k.Points {
			if v, ok := p.Latency[k.Objective.Unit]; ok && p.Rate == k.Held {
				latency = chart.Nanoseconds(v)
			}
		}
		lo, hi := k.Interval()
		t.Add(append(rowName(rows[i], varying), objective(k), rate(k.Held), rate(k.Failed), rate(lo)+" to "+rate(hi), latency, k.Limit)...)
	}
	t.Legend = []string{"holds, fails at: events/s, by the majority of the rounds; interval: all rounds hold up to the first, none from the second on, 5 rounds at least; latency: the objective's quantile at the rate that holds, median of the rounds; limit: what ended the search. Below another limit than latency a variant may hold more."}
	return t
}

// scalingTables returns the tables of one varied label: the measured throughputs, and
// the fitted laws.
func scalingTables(all []stats.Scaling) []*chart.Table {
	over := all[0].Over
	var rows []row
	points := map[float64]bool{}
	for _, s := range all {
		rows = append(rows, rowNamed(s.Cell, s.Impl))
		for _, p := range s.Points {
			points[p.N] = true
		}
	}
	varying, shared := splitLabels(rows)
	measured := rowTable(titled("Scaling over "+over+", events/s", shared), varying)
	fits := rowTable("Scaling over "+over+", the Universal Scalability Law", varying, "λ (of one)", "σ (contention)", "κ (coherency)", "peak at", "peak", "RMSE")
	ns := slices.Sorted(maps.Keys(points))
	for _, n := range ns {
		measured.Figures(over + "=" + strconv.FormatFloat(n, 'f', -1, 64))
	}
	for i, s := range all {
		name := rowName(rows[i], varying)
		line := slices.Clone(name)
		for _, n := range ns {
			var rounds []float64
			if at := slices.IndexFunc(s.Points, func(p stats.ScalePoint) bool { return p.N == n }); at >= 0 {
				rounds = s.Points[at].EventsPerSecond
			}
			line = append(line, perSecond(stats.Samples{stats.UnitEventsPerSec: rounds}))
		}
		measured.Add(line...)
		fits.Add(append(name, fitCells(s)...)...)
		if s.Fit == nil {
			fits.Legend = append(fits.Legend, fmt.Sprintf("%s: no fit: %s", strings.Join(name, " "), s.Why))
		}
	}
	fits.Legend = append(fits.Legend, "In brackets 95 % intervals (bootstrap); (beyond): more than the largest measured number; RMSE: of the residuals relative to the curve.")
	return []*chart.Table{measured, fits}
}

// fitCells returns the columns of a fitted law.
func fitCells(s stats.Scaling) []string {
	u := s.Fit
	if u == nil {
		return slices.Repeat([]string{chart.None}, 6)
	}
	peak, rate := "none", chart.None
	if u.Peak > 0 {
		peak, rate = chart.Number(u.Peak), chart.Decimal(u.PeakRate)
		if !slices.ContainsFunc(s.Points, func(p stats.ScalePoint) bool { return p.N >= u.Peak }) {
			peak += " (beyond)"
		}
	}
	return []string{
		estimate(u.Lambda, chart.Decimal), estimate(u.Sigma, coefficient), estimate(u.Kappa, coefficient),
		peak, rate, chart.Percent(u.RMSE),
	}
}

// scalingPanels draws throughput over one number, a panel for each set of results that differ only in the variant.
func scalingPanels(id string, all []stats.Scaling) (panels []panel) {
	sets := lab.GroupBy(all, func(s stats.Scaling) string { return rowNamed(s.Cell, "").throughput.NameExcept("impl") })
	var rows []row
	for _, set := range sets {
		rows = append(rows, rowNamed(set[0].Cell, ""))
	}
	varying, _ := splitLabels(rows)
	for i, set := range sets {
		over := set[0].Over
		p := panel{ID: fmt.Sprintf("%s-%d", id, i+1), Title: groupTitle(rows[i], varying) + ", over " + over}
		c := chart.Lines{
			X: chart.Axis{Label: over, Log: true, Format: chart.Count},
			Y: chart.Axis{Label: "events/s", Zero: true, Format: chart.Count},
		}
		for _, sc := range set {
			p.entry(sc.Impl, chart.Of(sc.Impl))
			s := chart.Curve{Name: sc.Impl, Style: chart.Of(sc.Impl), Path: sc.Fit == nil}
			for _, pt := range sc.Points {
				if len(pt.EventsPerSecond) == 0 {
					continue
				}
				q := chart.Point{X: pt.N, Y: stats.Median(pt.EventsPerSecond), Mark: true}
				q.Tip = fmt.Sprintf("%s events/s with %s %s", chart.Decimal(q.Y), chart.Number(pt.N), over)
				if len(pt.EventsPerSecond) > 1 {
					q.Lo, q.Hi = slices.Min(pt.EventsPerSecond), slices.Max(pt.EventsPerSecond)
				}
				s.Points = append(s.Points, q)
			}
			c.Curves = append(c.Curves, s)
			if sc.Fit != nil && len(s.Points) > 0 {
				const steps = 60
				law := chart.Curve{Name: s.Name, Style: s.Style, Path: true}
				for lo, hi, i := s.Points[0].X, s.Points[len(s.Points)-1].X, 0; i <= steps; i++ {
					n := lo * math.Pow(hi/lo, float64(i)/steps)
					law.Points = append(law.Points, chart.Point{X: n, Y: sc.Fit.At(n)})
				}
				c.Curves = append(c.Curves, law)
			}
		}
		p.add(c, figure{Kind: "scaling", Title: "Throughput over " + over, Caption: "Marks are medians, the lines through them the rounds' range. A curve is the fitted law; without a fit it joins the medians."},
			"Events a second over "+over+": the median of the rounds as a mark, with the rounds' range, and a curve for each variant.")
		if len(p.Figures) > 0 {
			panels = append(panels, p)
		}
	}
	return panels
}
