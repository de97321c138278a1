package report

import (
	"bytes"
	"fmt"

	"watchlab/loadgen/trace"
)

// traceStyle styles the charts, which only have classes.
const traceStyle = `text{font:11px sans-serif;fill:var(--muted)}text[class^=s]{fill:var(--c)}
.grid{stroke:var(--grid)}.axis{stroke:var(--line)}.curve{fill:none;stroke:var(--c);stroke-width:1.5}`

// TraceSVG draws a trace as an SVG document: the events per second, and the events of
// each key from the busiest to the quietest, with one line for each resource.
func TraceSVG(m *trace.Stats) []byte {
	rate := lineChart{x: axis{label: "seconds"}, y: axis{label: "events per second", zero: true}}
	skew := lineChart{x: axis{label: "rank of the key", log: true}, y: axis{label: "events of the key", log: true}}
	line := func(name string, slot int, counts []int, first float64) curve {
		c := curve{name: name, style: style{slot: slot}, path: true, step: true}
		for i, n := range counts {
			c.points = append(c.points, point{x: first + float64(i), y: float64(n)})
		}
		return c
	}
	height := rate.height()
	var legend bytes.Buffer
	for i, r := range m.Resources {
		rate.curves = append(rate.curves, line(r.Resource, i, r.Rate, 0))
		skew.curves = append(skew.curves, line(r.Resource, i, r.Counts, 1))
		fmt.Fprintf(&legend, "<text class=\"s%d\" x=\"2\" y=\"%g\">%s, Zipf exponent %.2f</text>\n", i%slots, 2*height+20+float64(16*i), esc(r.Resource), r.Zipf)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "<?xml version=\"1.0\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %g\">\n<style>%s%s</style>\n", chartWidth, 2*height+20+float64(16*len(m.Resources)), palette, traceStyle)
	b.WriteString("<rect width=\"100%\" height=\"100%\" fill=\"var(--page)\"/>\n")
	for i, c := range []lineChart{rate, skew} {
		svg, _ := drawSVG(c, fmt.Sprintf("c%d", i), m.Name, c.y.label)
		fmt.Fprintf(&b, "<svg y=\"%g\" width=\"%d\" height=\"%g\">%s</svg>\n", float64(i)*height, chartWidth, height, svg)
	}
	fmt.Fprintf(&b, "%s</svg>\n", legend.Bytes())
	return b.Bytes()
}
