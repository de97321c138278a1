package report

import (
	"cmp"
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
func sweeps(o *lab.Outcome, charts bool) []section {
	claims := section{ID: "claims", Heading: "Claims", Intro: claimsIntro}
	if len(o.Claims) > 0 {
		claims.Tables = []*chart.Table{claimTable([]Claimed{{Name: o.Name, Outcome: o}})}
	}
	all := []section{
		{ID: "knees", Heading: "Knees", Intro: "The highest rate at which each variant holds an objective, and its latency on the way there."},
		{ID: "scaling", Heading: "Scaling", Intro: "Throughput as one number grows. If it is a number of workers, the Universal Scalability Law is fitted to the medians: X(N) = λN / (1 + σ(N−1) + κN(N−1))."},
	}
	if len(o.Knees) > 0 {
		all[0].Tables = []*chart.Table{kneeTable(o.Knees)}
		if o.OneProcess() {
			all[0].Intro += " All rounds ran in one process: the intervals do not contain what differs between processes."
		}
	}
	for _, set := range together(o.Scalings, func(s stats.Scaling) string { return s.Over }) {
		all[1].Tables = append(all[1].Tables, scalingTables(set)...)
	}
	if charts {
		sweepPanels(&all[0], o.Knees, func(k stats.Knee) (string, string) { return k.Cell, ", " + quantileName(k) },
			drawKnees)
		sweepPanels(&all[1], o.Scalings, func(s stats.Scaling) (string, string) { return s.Cell, ", over " + s.Over },
			drawScalings)
	}
	return slices.DeleteFunc(append([]section{claims}, all...), func(s section) bool { return len(s.Tables) == 0 })
}

// sweepPanels draws a panel per setting: the results whose cells differ only in the
// variant and that describe the same figure. name returns the cell and the figure.
func sweepPanels[T any](s *section, results []T, name func(T) (cell, what string), draw func(*panel, []T)) {
	sets := together(results, func(r T) string {
		cell, what := name(r)
		return rowNamed(cell, "").throughput.NameExcept("impl") + what
	})
	var rows []row
	for _, set := range sets {
		cell, _ := name(set[0])
		rows = append(rows, rowNamed(cell, ""))
	}
	varying, _ := splitLabels(rows)
	for i, set := range sets {
		_, what := name(set[0])
		p := panel{ID: fmt.Sprintf("%s-%d", s.ID, i+1), Title: groupTitle(rows[i], varying) + what}
		draw(&p, set)
		if len(p.Figures) > 0 {
			s.Panels = append(s.Panels, p)
		}
	}
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

// quantileName returns the quantile of a knee's objective: "p99".
func quantileName(k stats.Knee) string { return strings.TrimSuffix(k.Objective.Unit, "-ns") }

func objective(k stats.Knee) string {
	return quantileName(k) + " ≤ " + chart.Nanoseconds(float64(k.Objective.Most))
}

// kneeLimits describes what prevented higher rates.
var kneeLimits = map[string]string{
	"latency":   "latency",
	"generator": "generator; may hold more",
	"invariant": "an invariant was broken",
	"search":    "none up to the search's end",
	"time":      "time; may hold more",
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
		t.Add(append(rowName(rows[i], varying), objective(k), rate(k.Held), rate(k.Failed), rate(lo)+" to "+rate(hi), latency, cmp.Or(kneeLimits[k.Limit], k.Limit))...)
	}
	t.Legend = []string{"holds, fails at: events/s, by the majority of the rounds; interval: all rounds hold up to the first, none from the second on, 5 rounds at least; latency: the objective's quantile at the rate that holds, median of the rounds."}
	return t
}

// drawKnees draws latency over rate for knees of one setting.
func drawKnees(p *panel, knees []stats.Knee) {
	unit := quantileName(knees[0])
	c := chart.Lines{
		X:    chart.Axis{Label: "events/s released", Log: true, Format: chart.Count},
		Y:    chart.Axis{Label: unit, Log: true, Format: chart.Time},
		High: 300,
	}
	objectives := map[float64]bool{}
	for _, k := range knees {
		p.entry(k.Impl, chart.Of(k.Impl))
		s := chart.Curve{Name: k.Impl, Style: chart.Of(k.Impl), Path: true}
		for _, pt := range k.Points {
			y, ok := pt.Latency[k.Objective.Unit]
			if !ok {
				continue
			}
			tip := fmt.Sprintf("%s %s at %s events/s; held in %d of %s", unit, chart.Nanoseconds(y), chart.Decimal(pt.Rate), pt.Holds, lab.Plural(pt.Rounds, "round"))
			if pt.Verdict != "" {
				tip += "; " + pt.Verdict
			}
			s.Points = append(s.Points, chart.Point{X: pt.Rate, Y: y, Mark: true, Tip: tip})
		}
		c.Curves = append(c.Curves, s)
		if k.Held > 0 && len(s.Points) > 0 {
			c.Rules = append(c.Rules, chart.Rule{Vertical: true, At: k.Held, Series: k.Impl, Style: s.Style, Label: k.Impl + " " + chart.Decimal(k.Held)})
		}
		if at := float64(k.Objective.Most); !objectives[at] {
			objectives[at] = true
			c.Rules = append(c.Rules, chart.Rule{At: at, Label: objective(k)})
		}
	}
	p.add(c, figure{Kind: "knee", Title: "Latency against rate, with knees",
		Caption: "Medians over the rounds. A knee (dotted, with its name) is the highest rate that, like all lower rates tried, held the objective in most rounds."},
		unit+" of latency over the rate at which events were released, a curve for each variant; the objective is a horizontal line, each knee a vertical one. Both axes are logarithmic.")
}

// scalingTables returns the tables of one varied label: the measured throughputs, and
// the fitted laws.
func scalingTables(all []stats.Scaling) []*chart.Table {
	over := all[0].Over
	var rows []row
	points := map[float64]bool{}
	for _, s := range all {
		r := rowNamed(s.Cell, s.Impl)
		r.throughput.Labels = r.throughput.Without(over)
		rows = append(rows, r)
		for _, p := range s.Points {
			points[p.N] = true
		}
	}
	varying, shared := splitLabels(rows)
	measured := rowTable(titled("Scaling over "+over+", events/s", shared), varying)
	fits := rowTable("Scaling over "+over+", the Universal Scalability Law", varying, "λ (of one)", "σ (contention)", "κ (coherency)", "peak at", "peak", "RMSE", "R²")
	ns := slices.Sorted(maps.Keys(points))
	for _, n := range ns {
		measured.Figures(over + "=" + trimmed(n))
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
	fits.Legend = append(fits.Legend, "In brackets 95 % intervals (bootstrap); (beyond): more than the largest measured number; RMSE: of the relative residuals.")
	return []*chart.Table{measured, fits}
}

// fitCells returns the columns of a fitted law.
func fitCells(s stats.Scaling) []string {
	u := s.Fit
	if u == nil {
		return slices.Repeat([]string{chart.None}, 7)
	}
	peak, rate := "none", chart.None
	if u.Peak > 0 {
		peak, rate = chart.Number(u.Peak), chart.Decimal(u.PeakRate)
		if u.Peak > s.Points[len(s.Points)-1].N {
			peak += " (beyond)"
		}
	}
	return []string{
		estimate(u.Lambda, chart.Decimal), estimate(u.Sigma, coefficient), estimate(u.Kappa, coefficient),
		peak, rate, chart.Percent(u.RMSE), strconv.FormatFloat(u.R2, 'f', 3, 64),
	}
}

// drawScalings draws throughput over one parameter, with the fitted laws.
func drawScalings(p *panel, scalings []stats.Scaling) {
	over := scalings[0].Over
	c := chart.Lines{
		X:    chart.Axis{Label: over, Log: true, Format: chart.Count},
		Y:    chart.Axis{Label: "events/s", Zero: true, Format: chart.Count},
		High: 300,
	}
	caption := "Marks are medians, the lines through them the rounds' range."
	for _, sc := range scalings {
		p.entry(sc.Impl, chart.Of(sc.Impl))
		s := chart.Curve{Name: sc.Impl, Style: chart.Of(sc.Impl), Path: sc.Fit == nil}
		for _, pt := range sc.Points {
			if len(pt.EventsPerSecond) == 0 {
				continue
			}
			if !slices.ContainsFunc(c.X.Ticks, func(t chart.Tick) bool { return t.At == pt.N }) {
				c.X.Ticks = append(c.X.Ticks, chart.Tick{At: pt.N, Label: chart.Count(pt.N)})
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
			c.Curves = append(c.Curves, lawCurve(*sc.Fit, s))
			caption = "Marks are medians, the lines through them the rounds' range. Curves are the fit, drawn between the smallest and the largest measured number."
		}
	}
	slices.SortFunc(c.X.Ticks, func(a, b chart.Tick) int { return cmp.Compare(a.At, b.At) })
	p.add(c, figure{Kind: "scaling", Title: "Throughput over " + over, Caption: caption},
		"Events a second over "+over+": the median of the rounds as a mark, with the rounds' range, and the fitted law as a curve for each variant.")
}

// lawCurve draws the fitted law over the measured range only.
func lawCurve(fit stats.USL, measured chart.Curve) chart.Curve {
	const steps = 60
	byX := func(a, b chart.Point) int { return cmp.Compare(a.X, b.X) }
	lo, hi := slices.MinFunc(measured.Points, byX).X, slices.MaxFunc(measured.Points, byX).X
	s := chart.Curve{Name: measured.Name, Style: measured.Style, Path: true}
	for i := range steps + 1 {
		x := lo * math.Pow(hi/lo, float64(i)/steps)
		s.Points = append(s.Points, chart.Point{X: x, Y: fit.At(x)})
	}
	return s
}
