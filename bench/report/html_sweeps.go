package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"watchlab/bench/lab"
	"watchlab/bench/report/chart"
	"watchlab/bench/stats"
)

// sweepSections draws knees, scaling and surfaces.
func sweepSections(o *lab.Outcome, styles map[string]chart.Style) []section {
	var out []section
	for _, s := range []section{kneeSection(o.Knees, styles), scalingSection(o.Scalings, styles), surfaceSection(o.Surfaces, styles)} {
		if len(s.Tables) > 0 {
			out = append(out, s)
		}
	}
	return out
}

// add appends a table with its legend to the section.
func (s *section) add(t table) {
	s.Tables = append(s.Tables, htmlGrid(t.title, t.grid))
	for _, line := range t.legend {
		if !slices.Contains(s.Legend, line) {
			s.Legend = append(s.Legend, line)
		}
	}
}

// setting returns a cell's name without its variant. Cells with equal settings share a
// chart.
func setting(cell string) string {
	parts := strings.Split(cell, "/")
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return strings.HasPrefix(p, "impl=") }), " ")
}

// settings names each cell by the labels that differ between the cells, except variant
// and rate.
func settings(cells []string) []string {
	var rows []row
	for _, name := range cells {
		rows = append(rows, named(name, ""))
	}
	varying, _ := splitLabels(rows)
	var out []string
	for _, r := range rows {
		out = append(out, groupTitle(r, varying))
	}
	return out
}

// together groups elements by a key, in order of appearance.
func together[T any](all []T, key func(T) string) [][]T {
	at := map[string]int{}
	var out [][]T
	for _, v := range all {
		k := key(v)
		i, ok := at[k]
		if !ok {
			i = len(out)
			at[k] = i
			out = append(out, nil)
		}
		out[i] = append(out[i], v)
	}
	return out
}

// firsts returns the cell of each set's first element.
func firsts[T any](sets [][]T, cell func(T) string) []string {
	var out []string
	for _, s := range sets {
		out = append(out, cell(s[0]))
	}
	return out
}

func objective(o stats.Objective) string {
	return strings.TrimSuffix(o.Unit, "-ns") + " ≤ " + nanoseconds(float64(o.Most))
}

func kneeSection(all []stats.Knee, styles map[string]chart.Style) section {
	s := section{ID: "knees", Heading: "Knees", Intro: "The highest rate at which each variant holds an objective, and its latency on the way there."}
	if len(all) == 0 {
		return s
	}
	s.add(knees(all))
	sets := together(all, func(k stats.Knee) string { return setting(k.Cell) + "|" + k.Objective.Unit })
	titles := settings(firsts(sets, func(k stats.Knee) string { return k.Cell }))
	for i, ks := range sets {
		id := fmt.Sprintf("knees-%d", i+1)
		p := panel{ID: id, Title: titles[i] + ", " + strings.TrimSuffix(ks[0].Objective.Unit, "-ns"), Open: i < openPanels}
		for _, k := range ks {
			p.Legend = append(p.Legend, legendEntry(k.Impl, styles[k.Impl].Dashed, styles))
		}
		if f, ok := kneeFigure(id, ks, styles); ok {
			p.Figures = append(p.Figures, f)
			s.Panels = append(s.Panels, p)
		}
	}
	return s
}

// kneeFigure draws latency over rate for knees of one setting.
func kneeFigure(id string, knees []stats.Knee, styles map[string]chart.Style) (figure, bool) {
	unit := strings.TrimSuffix(knees[0].Objective.Unit, "-ns")
	c := chart.Lines{
		Name:        "Latency against rate, with knees",
		Description: unit + " of latency over the rate at which events were released, a curve for each variant; the objective is a horizontal line, each knee a vertical one. Both axes are logarithmic.",
		X:           chart.Axis{Label: "events/s released", Log: true, Format: axisCount},
		Y:           chart.Axis{Label: unit, Log: true, Format: axisTime},
		Height:      300,
	}
	most := map[float64]bool{}
	for _, k := range knees {
		curve := chart.Curve{Name: k.Impl, Style: styles[k.Impl], Path: true}
		for _, pt := range k.Points {
			y, ok := pt.Latency[k.Objective.Unit]
			if !ok {
				continue
			}
			tip := fmt.Sprintf("%s %s at %s events/s; held in %d of %s", unit, nanoseconds(y), decimal(pt.Rate), pt.Holds, Plural(pt.Rounds, "round"))
			if pt.Verdict != "" {
				tip += "; " + pt.Verdict
			}
			curve.Points = append(curve.Points, chart.Point{X: pt.Rate, Y: y, Mark: true, Tip: tip})
		}
		c.Series = append(c.Series, curve)
		if k.Held > 0 && len(curve.Points) > 0 {
			c.Rules = append(c.Rules, chart.Rule{Vertical: true, At: k.Held, Series: k.Impl, Style: styles[k.Impl]})
		}
		if at := float64(k.Objective.Most); !most[at] {
			most[at] = true
			c.Rules = append(c.Rules, chart.Rule{At: at, Label: objective(k.Objective)})
		}
	}
	return draw(id+"-knee", "knee", "Latency against rate, with knees",
		"Medians over the rounds. A knee (dotted) is the highest rate that held the objective in most rounds, and below which all that were tried did.", "", c)
}

func scalingSection(all []stats.Scaling, styles map[string]chart.Style) section {
	s := section{ID: "scaling", Heading: "Scaling", Intro: "Throughput as one number grows, with the Universal Scalability Law fitted where that number is one of workers: X(N) = λN / (1 + σ(N−1) + κN(N−1))."}
	if len(all) == 0 {
		return s
	}
	for _, t := range scalings(all) {
		s.add(t)
	}
	sets := together(all, func(sc stats.Scaling) string { return sc.Over + "|" + setting(sc.Cell) })
	titles := settings(firsts(sets, func(sc stats.Scaling) string { return sc.Cell }))
	for i, ss := range sets {
		id := fmt.Sprintf("scaling-%d", i+1)
		p := panel{ID: id, Title: titles[i] + ", over " + ss[0].Over, Open: i < openPanels}
		for _, sc := range ss {
			p.Legend = append(p.Legend, legendEntry(sc.Impl, styles[sc.Impl].Dashed, styles))
		}
		if f, ok := scalingFigure(id, ss, styles); ok {
			p.Figures = append(p.Figures, f)
			s.Panels = append(s.Panels, p)
		}
	}
	return s
}

// scalingFigure draws throughput over one parameter, with the fitted laws.
func scalingFigure(id string, scalings []stats.Scaling, styles map[string]chart.Style) (figure, bool) {
	over := scalings[0].Over
	c := chart.Lines{
		Name:        "Throughput over " + over,
		Description: "Events a second over " + over + ": the median of the rounds as a mark, with the rounds' range, and the fitted law as a curve for each variant.",
		X:           chart.Axis{Label: over, Log: true, Format: axisCount},
		Y:           chart.Axis{Label: "events/s", Zero: true, Format: axisCount},
		Height:      300,
	}
	ns := map[float64]bool{}
	fitted := false
	for _, sc := range scalings {
		curve := chart.Curve{Name: sc.Impl, Style: styles[sc.Impl], Path: sc.Fit == nil}
		for _, pt := range sc.Points {
			if len(pt.EventsPerSecond) == 0 {
				continue
			}
			ns[pt.N] = true
			sum := stats.Summarize(pt.EventsPerSecond)
			p := chart.Point{X: pt.N, Y: sum.Median, Mark: true, Tip: fmt.Sprintf("%s events/s with %s %s", decimal(sum.Median), number(pt.N), over)}
			if len(pt.EventsPerSecond) > 1 {
				p.Lo, p.Hi = slices.Min(pt.EventsPerSecond), slices.Max(pt.EventsPerSecond)
			}
			curve.Points = append(curve.Points, p)
		}
		c.Series = append(c.Series, curve)
		if sc.Fit == nil || len(curve.Points) == 0 {
			continue
		}
		fitted = true
		c.Series = append(c.Series, lawCurve(sc, curve, styles))
	}
	for at := range ns {
		c.X.Ticks = append(c.X.Ticks, chart.Tick{At: at, Label: axisCount(at)})
	}
	slices.SortFunc(c.X.Ticks, func(a, b chart.Tick) int { return int(math.Copysign(1, a.At-b.At)) })
	caption := "Marks are medians, the lines through them the rounds' range."
	if fitted {
		caption += " Curves are the fit, drawn between the first and the last number that were measured."
	}
	return draw(id+"-scaling", "scaling", "Throughput over "+over, caption, "", c)
}

// lawCurve draws the fitted law over the measured range only.
func lawCurve(sc stats.Scaling, measured chart.Curve, styles map[string]chart.Style) chart.Curve {
	const steps = 60
	curve := chart.Curve{Name: sc.Impl, Style: styles[sc.Impl], Path: true}
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, p := range measured.Points {
		lo, hi = min(lo, p.X), max(hi, p.X)
	}
	for i := range steps + 1 {
		x := lo * math.Pow(hi/lo, float64(i)/steps)
		y := sc.Fit.Lambda.Value * x / (1 + sc.Fit.Sigma.Value*(x-1) + sc.Fit.Kappa.Value*x*(x-1))
		curve.Points = append(curve.Points, chart.Point{X: x, Y: y})
	}
	return curve
}

func surfaceSection(surfaces []stats.Surface, styles map[string]chart.Style) section {
	s := section{ID: "surfaces", Heading: "Surfaces", Intro: "One figure over two numbers. The maps of a panel share one scale of colour, so that variants can be compared."}
	sets := together(surfaces, func(x stats.Surface) string {
		return setting(x.Cell) + "|" + x.X + "|" + x.Y + "|" + x.Unit
	})
	titles := settings(firsts(sets, func(x stats.Surface) string { return x.Cell }))
	for i, ss := range sets {
		id := fmt.Sprintf("surfaces-%d", i+1)
		p := panel{ID: id, Title: fmt.Sprintf("%s: %s over %s and %s", titles[i], ss[0].Unit, ss[0].X, ss[0].Y), Open: i < openPanels}
		low, high := surfaceRange(ss)
		for j, x := range ss {
			f, ok := surfaceFigure(fmt.Sprintf("%s-%d", id, j+1), x, low, high, styles)
			if !ok {
				continue
			}
			p.Figures = append(p.Figures, f)
		}
		if len(p.Figures) > 0 {
			s.Panels = append(s.Panels, p)
		}
	}
	if len(surfaces) > 0 {
		s.Tables = append(s.Tables, surfaceTable(surfaces))
	}
	return s
}

// surfaceRange returns the smallest and the largest value of the surfaces, for a common
// colour scale.
func surfaceRange(surfaces []stats.Surface) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, s := range surfaces {
		for _, line := range s.Points {
			for _, p := range line {
				if p != nil {
					low, high = min(low, p.Median), max(high, p.Median)
				}
			}
		}
	}
	return low, high
}

func surfaceFigure(id string, s stats.Surface, low, high float64, styles map[string]chart.Style) (figure, bool) {
	c := chart.Heat{
		Name:        s.Impl + ": " + s.Unit + " over " + s.X + " and " + s.Y,
		Description: "A map of " + s.Unit + " with " + s.X + " from left to right and " + s.Y + " from top to bottom; the median of the rounds stands in each field.",
		X:           s.X, Y: s.Y, Xs: s.Xs, Ys: s.Ys, Unit: s.Unit, Format: unitFormat(s.Unit),
		Missing: "no figure: invalid or not played", Low: low, High: high, Style: styles[s.Impl],
	}
	for _, line := range s.Points {
		var values []float64
		for _, p := range line {
			v := math.NaN()
			if p != nil {
				v = p.Median
			}
			values = append(values, v)
		}
		c.Values = append(c.Values, values)
	}
	return draw(id+"-surface", "surface", s.Impl, s.Unit+", medians of the rounds; – is a field without a figure.", "", c)
}

// surfaceTable lists the best and the worst field of each surface.
func surfaceTable(surfaces []stats.Surface) htmlTable {
	g := grid{}
	for _, h := range []string{"variant", "setting", "figure", "least", "most"} {
		g.column(h, true)
	}
	var cells []string
	for _, s := range surfaces {
		cells = append(cells, s.Cell)
	}
	titles := settings(cells)
	for k, s := range surfaces {
		least, most := none, none
		low, high := math.Inf(1), math.Inf(-1)
		format := unitFormat(s.Unit)
		for j, line := range s.Points {
			for i, p := range line {
				if p == nil || j >= len(s.Ys) || i >= len(s.Xs) {
					continue
				}
				where := fmt.Sprintf("%s at %s %s, %s %s", format(p.Median), s.X, s.Xs[i], s.Y, s.Ys[j])
				if p.Median < low {
					low, least = p.Median, where
				}
				if p.Median > high {
					high, most = p.Median, where
				}
			}
		}
		g.rows = append(g.rows, []string{s.Impl, titles[k], s.Unit, least, most})
	}
	return htmlGrid("Ends of the surfaces", g)
}
