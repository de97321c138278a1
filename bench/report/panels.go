package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"watchlab/bench/cell"
	"watchlab/bench/chart"
	"watchlab/bench/lab"
)

// add draws a chart into the panel, unless it has no figure. Screen readers read the description.
func (p *panel) add(c chart.Chart, f figure, description string) {
	f.ID = fmt.Sprintf("%s-%d", p.ID, len(p.Figures)+1)
	svg, ok := chart.Draw(c, f.ID, f.Title, description)
	if !ok {
		return
	}
	f.SVG, f.Table = svg, c.Table()
	f.Table.Title = f.Title
	p.Figures = append(p.Figures, f)
}

// entry adds a series to the legend.
func (p *panel) entry(name string, style chart.Style) {
	if !slices.ContainsFunc(p.Legend, func(s series) bool { return s.Name == name }) {
		p.Legend = append(p.Legend, series{Name: name, Key: chart.Key(style), Baseline: style.Dashed})
	}
}

// panels draws the charts of a comparison, one panel per group.
func (c comparison) panels(id string) (out []panel) {
	for i, g := range c.groups {
		p := panel{ID: fmt.Sprintf("%s-%d", id, i+1), Title: g.title}
		for _, r := range g.rows {
			p.entry(r.variant(), chart.Of(r.variant()))
		}
		g.latencyOverRate(&p)
		p.stages(g.atOneRate())
		if len(p.Figures) > 0 {
			out = append(out, p)
		}
	}
	return out
}

// atOneRate returns the rows at the rate with latencies of the most variants, the highest of several.
func (g group) atOneRate() (best []row) {
	measured := func(rows []row) (n int) {
		for _, r := range rows {
			if r.wait.Count > 1 {
				n++
			}
		}
		return n
	}
	for _, set := range lab.GroupBy(g.rows, row.rate) {
		n, most := measured(set), measured(best)
		if n > most || n > 0 && n == most && numeric(set[0].rate()) > numeric(best[0].rate()) {
			best = set
		}
	}
	return best
}

// latencyOverRate draws p99 over the rate, for at least two rates.
func (g group) latencyOverRate(p *panel) {
	c := chart.Lines{
		X: chart.Axis{Label: "events/s released", Log: true, Format: chart.Count},
		Y: chart.Axis{Label: "p99", Log: true, Format: chart.Nanoseconds},
	}
	rates := map[string]bool{}
	for _, set := range lab.GroupBy(g.rows, row.variant) {
		s := chart.Curve{Name: set[0].variant(), Style: chart.Of(set[0].variant()), Path: true}
		for _, r := range set {
			rate := numeric(r.rate())
			if math.IsInf(rate, 1) || !r.hasP99() {
				continue
			}
			rates[r.rate()] = true
			q := chart.Point{X: rate, Y: float64(r.wait.P99), Mark: true}
			q.Tip = fmt.Sprintf("p99 %s at %s events/s, %s", chart.Nanoseconds(q.Y), chart.Decimal(rate), r.verdict(0))
			q.Lo, q.Hi = r.p99Range()
			s.Points = append(s.Points, q)
		}
		slices.SortFunc(s.Points, func(a, b chart.Point) int { return cmp.Compare(a.X, b.X) })
		c.Curves = append(c.Curves, s)
	}
	if len(rates) < 2 {
		return
	}
	p.add(c, figure{Kind: "rate", Title: "Latency against rate",
		Caption: "All rounds together; the line through a mark goes from the smallest round to the largest. Invalid cells are not drawn."},
		"99th percentile of latency over the rate at which events were released, a curve for each variant; both axes are logarithmic.")
}

// stagesOf returns the boundaries that are not sums of others, in pipeline order. Of
// a→b, b→c and a→c it returns the first two. A total goes to handled, also if no other boundary ends there:
// queues hand over what they pop.
func stagesOf(latency []cell.Latency) (out []cell.Boundary) {
	type edge struct{ from, to string }
	var edges []edge
	for _, l := range latency {
		if from, to, ok := strings.Cut(string(l.Boundary), "→"); ok {
			edges = append(edges, edge{from, to})
		}
	}
	for _, e := range edges {
		begins := slices.ContainsFunc(edges, func(o edge) bool { return o != e && o.from == e.from })
		ends := slices.ContainsFunc(edges, func(o edge) bool { return o != e && o.to == e.to })
		total := e.to == "handled" && (begins || e.from == "intended" && len(edges) > 1)
		if !total && !(begins && ends) {
			out = append(out, cell.Boundary(e.from+"→"+e.to))
		}
	}
	return out
}

// stages draws the share of each stage in an event's latency, of rows at one rate.
func (p *panel) stages(rows []row) {
	var parts []string
	for _, r := range rows {
		for _, b := range stagesOf(r.latency.Latency) {
			if !r.broken() {
				parts = append(parts, string(b))
			}
		}
	}
	if parts = distinct(parts); len(parts) < 2 {
		return
	}
	c := chart.Rows{Axis: chart.Axis{Label: "% of the mean latency", Zero: true, Format: func(v float64) string { return fmt.Sprintf("%.0f", v*100) }}}
	for _, r := range rows {
		values := make([]float64, len(parts))
		for i, b := range parts {
			if l, ok := (cell.Result{Latency: r.latency.Latency}).At(cell.Boundary(b)); ok && !r.broken() {
				values[i] = float64(l.Mean)
			}
		}
		c.Rows = append(c.Rows, chart.Shares(chart.Row{Name: r.variant(), Style: chart.Of(r.variant()), Note: r.verdict(0)}, parts, values, chart.Nanoseconds))
	}
	for _, name := range parts {
		c.Columns = append(c.Columns, name+", mean")
	}
	c.Columns = append(c.Columns, "sum")
	f := figure{Kind: "stages", Title: "Where the time goes, " + lab.RateText(rows[0].rate()),
		Caption: "Shares of the mean, which is at the right. The mean of a stage is that of the events that passed it, without those coalesced before it."}
	for i, name := range parts {
		f.Parts = append(f.Parts, part{name, chart.Part(i).Colour})
	}
	p.add(c, f, "The share of each stage in the mean time that an event takes, a bar for each variant.")
}
