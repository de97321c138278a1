package cli

import (
	"bytes"
	"fmt"
	"html"

	"watchlab/bench/report/chart"
	"watchlab/loadgen/trace"
)

// traceSVG draws the events per second and the events of each key, from the
// busiest to the quietest, with one line for each resource.
func traceSVG(m *trace.Stats) []byte {
	const height = 260
	rate := chart.Lines{
		Name: m.Name, Description: "events per second", Height: height,
		X: chart.Axis{Label: "seconds"}, Y: chart.Axis{Label: "events per second", Zero: true},
	}
	skew := chart.Lines{
		Name: m.Name, Description: "events of each key", Height: height,
		X: chart.Axis{Label: "rank of the key", Log: true}, Y: chart.Axis{Label: "events of the key", Log: true},
	}
	points := func(counts []int, first float64) []chart.Point {
		out := make([]chart.Point, len(counts))
		for i, n := range counts {
			out[i] = chart.Point{X: first + float64(i), Y: float64(n)}
		}
		return out
	}
	var legend bytes.Buffer
	for i, r := range m.Resources {
		style := chart.Style{Slot: i}
		rate.Series = append(rate.Series, chart.Curve{Name: r.Resource, Style: style, Path: true, Step: true, Points: points(r.Rate, 0)})
		skew.Series = append(skew.Series, chart.Curve{Name: r.Resource, Style: style, Path: true, Step: true, Points: points(r.Counts, 1)})
		fmt.Fprintf(&legend, "<text class=\"s%d\" x=\"2\" y=\"%d\">%s, Zipf exponent %.2f</text>\n", i%chart.Slots, 2*height+20+16*i, html.EscapeString(r.Resource), r.Zipf)
	}
	var b bytes.Buffer
	total := 2*height + 20 + 16*len(m.Resources)
	fmt.Fprintf(&b, "<?xml version=\"1.0\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\">\n<style>%s%s</style>\n", chart.Width, total, chart.CSS(), traceStyle)
	fmt.Fprintf(&b, "<rect width=\"100%%\" height=\"100%%\" fill=\"var(--page)\"/>\n")
	for i, c := range []chart.Lines{rate, skew} {
		fmt.Fprintf(&b, "<svg y=\"%d\" width=\"%d\" height=\"%d\">%s</svg>\n", i*height, chart.Width, height, c.SVG(fmt.Sprintf("c%d", i)))
	}
	fmt.Fprintf(&b, "%s</svg>\n", legend.Bytes())
	return b.Bytes()
}

// traceStyle styles the charts, which only have classes.
const traceStyle = `text{font:11px sans-serif;fill:var(--muted)}text[class^=s]{fill:var(--c)}
.grid{stroke:var(--grid)}.axis{stroke:var(--line)}.curve{fill:none;stroke:var(--c);stroke-width:1.5}`
