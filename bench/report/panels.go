package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/HdrHistogram/hdrhistogram-go"

	"watchlab/bench/cell"
	"watchlab/bench/chart"
	"watchlab/bench/lab"
	"watchlab/bench/stats"
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
func (c comparison) panels(id string) ([]panel, error) {
	var out []panel
	for i, g := range c.groups {
		p := panel{ID: fmt.Sprintf("%s-%d", id, i+1), Title: g.title}
		if err := g.draw(&p); err != nil {
			return nil, err
		}
		if len(p.Figures) > 0 {
			out = append(out, p)
		}
	}
	return out, nil
}

// draw draws the charts of a group. All but latency over rate are those of one rate.
func (g group) draw(p *panel) error {
	for _, r := range g.rows {
		p.entry(r.variant(), chart.Of(r.variant()))
	}
	g.latencyOverRate(p)
	rate := g.shownRate()
	if rate == "" {
		return nil
	}
	if len(g.rates()) > 1 {
		p.Notes = append(p.Notes, fmt.Sprintf("Distributions are drawn %s, the highest rate with figures of most variants. The table has all rates.", lab.RateText(rate)))
	}
	at := g.at(rate)
	if err := at.distribution(p, rate); err != nil {
		return err
	}
	at.stages(p, rate)
	return nil
}

// shownRate returns the highest of the rates with the most distributions; "" without any.
func (g group) shownRate() (best string) {
	most := 0
	for _, rate := range g.rates() {
		n := 0
		for _, r := range g.at(rate).rows {
			if r.wait.Count > 1 {
				n++
			}
		}
		if n > 0 && n >= most {
			best, most = rate, n
		}
	}
	return best
}

func (g group) curve(r row, points []chart.Point) chart.Curve {
	return chart.Curve{Name: r.variant(), Style: chart.Of(r.variant()), Path: true, Points: points}
}

// latencyOverRate draws p99 over the rate, for at least two rates.
func (g group) latencyOverRate(p *panel) {
	c := chart.Lines{
		X: chart.Axis{Label: "events/s released", Log: true, Format: chart.Count},
		Y: chart.Axis{Label: "p99", Log: true, Format: chart.Time},
	}
	rates := map[string]bool{}
	for _, set := range lab.GroupBy(g.rows, row.variant) {
		s := g.curve(set[0], nil)
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

// percentileTicks are the ticks of the percentile axis. Each decade leaves a tenth of the events.
var percentileTicks = []chart.Tick{
	{At: 1, Label: "0"}, {At: 2, Label: "50"}, {At: 10, Label: "90"}, {At: 100, Label: "99"}, {At: 1e3, Label: "99.9"}, {At: 1e4, Label: "99.99"}, {At: 1e5, Label: "99.999"}, {At: 1e6, Label: "5 nines"}, {At: 1e7, Label: "6 nines"},
}

// percentileOf writes the percentile at a position of the axis.
func percentileOf(v float64) string {
	if v <= 1 {
		return "0"
	}
	return strconv.FormatFloat(100-100/v, 'f', max(0, int(math.Ceil(math.Log10(v)-1e-9))-2), 64)
}

// distribution draws the full latency distribution of each variant. It returns an error
// for an unreadable histogram.
func (g group) distribution(p *panel, rate string) error {
	c := chart.Lines{
		X: chart.Axis{Label: "percentile", Log: true, Ticks: percentileTicks, Format: percentileOf},
		Y: chart.Axis{Label: "latency", Log: true, Format: chart.Time},
	}
	for _, r := range g.rows {
		points, err := r.distribution(g.wanted)
		if err != nil {
			return fmt.Errorf("%s: histogram: %w", r.latency.BenchName(), err)
		}
		c.Curves = append(c.Curves, g.curve(r, points))
	}
	p.add(c, figure{Kind: "distribution", Title: "Distribution of latency, " + lab.RateText(rate),
		Caption: "Every event of all rounds; the last mark is the longest."},
		"Latency over the percentile, a curve for each variant. Both axes are logarithmic: each step to the right is a tenth of the events that are left.")
	return nil
}

// allLatency returns the latency distribution over all rounds of the latency cell, at
// its headline boundary. The histogram is empty if one is missing.
func (r row) allLatency(wanted cell.Boundary) (cell.Quantiles, error) {
	if r.wait.Count == 0 || r.wait.Histogram != "" {
		return r.wait, nil
	}
	at := stats.Headline(cell.Result{Latency: r.latency.Latency}, wanted)
	var parts []cell.Quantiles
	for _, round := range r.latency.Rounds {
		if l, ok := round.Result.At(at); ok {
			parts = append(parts, l.Quantiles)
		}
	}
	if slices.ContainsFunc(parts, func(q cell.Quantiles) bool { return q.Histogram == "" }) {
		return cell.Quantiles{}, nil
	}
	return cell.MergeHistograms(parts...)
}

// markedPercentiles are the percentiles with marks.
var markedPercentiles = []float64{50, 75, 90, 95, 99, 99.9, 99.99, 99.999}

// distribution returns a row's latency as a curve over 1/(1-q), from the shortest to
// the longest; nil without histograms.
func (r row) distribution(wanted cell.Boundary) ([]chart.Point, error) {
	const stepsPerDecade = 16
	q, err := r.allLatency(wanted)
	if err != nil || q.Histogram == "" {
		return nil, err
	}
	h, err := hdrhistogram.Decode([]byte(q.Histogram))
	if err != nil {
		return nil, err
	}
	count, longest := float64(q.Count), max(1, float64(q.Max))
	var percentiles []float64
	for left, i := 1.0, 0; left <= count; left = math.Pow(10, float64(i)/stepsPerDecade) {
		percentiles = append(percentiles, 100-100/left)
		i++
	}
	for _, p := range markedPercentiles {
		// A quantile needs events beyond it.
		if 100/(100-p) <= count {
			percentiles = append(percentiles, p)
		}
	}
	slices.Sort(percentiles)
	percentiles = slices.Compact(percentiles)
	var points []chart.Point
	for i, v := range h.ValueAtPercentilesSlice(percentiles) {
		p := percentiles[i]
		at := chart.Point{X: 100 / (100 - p), Y: max(1, min(float64(v), float64(q.Max)))}
		if slices.Contains(markedPercentiles, p) {
			at.Mark, at.Tip = true, fmt.Sprintf("p%g is %s", p, chart.Nanoseconds(at.Y))
		}
		points = append(points, at)
	}
	tip := fmt.Sprintf("the longest of %s is %s", lab.Plural(int(q.Count), "event"), chart.Nanoseconds(longest))
	return append(points, chart.Point{X: count, Y: longest, Mark: true, Tip: tip}), nil
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

// stages draws the share of each stage in an event's latency.
func (g group) stages(p *panel, rate string) {
	var parts []string
	for _, r := range g.rows {
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
	for _, r := range g.rows {
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
	f := figure{Kind: "stages", Title: "Where the time goes, " + lab.RateText(rate),
		Caption: "Shares of the mean, which is at the right. The mean of a stage is that of the events that passed it, without those coalesced before it."}
	for i, name := range parts {
		f.Parts = append(f.Parts, part{name, chart.Part(i).Colour})
	}
	p.add(c, f, "The share of each stage in the mean time that an event takes, a bar for each variant.")
}
