package report

import (
	"bytes"
	"fmt"
	"html/template"

	"watchlab/bench/chart"
	"watchlab/loadgen/trace"
)

// traceStyle styles the texts that are not of a chart.
const traceStyle = `text{font:11px sans-serif;fill:var(--muted)}text[class^=s]{fill:var(--c)}`

// TraceSVG draws a trace as an SVG document: the events per second, and the events of
// each key from the busiest to the quietest, with one line for each resource.
func TraceSVG(m *trace.Stats) []byte {
	rate := chart.Lines{X: chart.Axis{Label: "seconds"}, Y: chart.Axis{Label: "events per second", Zero: true}}
	skew := chart.Lines{X: chart.Axis{Label: "rank of the key", Log: true}, Y: chart.Axis{Label: "events of the key", Log: true}}
	line := func(name string, slot int, counts []int, first float64) chart.Curve {
		c := chart.Curve{Name: name, Style: chart.Nth(slot), Path: true, Step: true}
		for i, n := range counts {
			c.Points = append(c.Points, chart.Point{X: first + float64(i), Y: float64(n)})
		}
		return c
	}
	height := rate.Height()
	var legend bytes.Buffer
	for i, r := range m.Resources {
		rate.Curves = append(rate.Curves, line(r.Resource, i, r.Rate, 0))
		skew.Curves = append(skew.Curves, line(r.Resource, i, r.Counts, 1))
		fmt.Fprintf(&legend, "<text class=\"s%d\" x=\"2\" y=\"%g\">%s, Zipf exponent %.2f</text>\n", chart.Nth(i).Colour, 2*height+20+float64(16*i), template.HTMLEscapeString(r.Resource), r.Zipf)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "<?xml version=\"1.0\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %g\">\n<style>%s%s</style>\n", chart.Width, 2*height+20+float64(16*len(m.Resources)), chart.CSS(), traceStyle)
	b.WriteString("<rect width=\"100%\" height=\"100%\" fill=\"var(--page)\"/>\n")
	for i, c := range []chart.Lines{rate, skew} {
		svg, _ := chart.Draw(c, fmt.Sprintf("c%d", i), m.Name, c.Y.Label)
		fmt.Fprintf(&b, "<svg y=\"%g\" width=\"%d\" height=\"%g\">%s</svg>\n", float64(i)*height, chart.Width, height, svg)
	}
	fmt.Fprintf(&b, "%s</svg>\n", legend.Bytes())
	return b.Bytes()
}
