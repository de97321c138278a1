package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
)

// chart is a picture of figures: [lineChart] or [rowChart]. The picture is SVG without script, font
// or network. Colours are classes ("s0" to "s9"), which html/palette.css defines for a light and a
// dark theme.
//
// Scripts find the data in the picture: a series is a group with data-series, a figure is an
// element of class "pt" with data-tip. All charts are [chartWidth] wide and scale with the page.
// Time and size are linear in the number of figures.
type chart interface {
	height() float64
	plot(p *picture)
	// table returns the same figures as text, for screen readers and print.
	table() table
}

// chartWidth is the width of every chart, in units of the view box.
const chartWidth = 440

//go:embed html/palette.css
var palette string

// slots is the number of colours, and a multiple of the number of forms of marks.
const slots = 10

// style distinguishes a series by colour, form of the marks and line. No distinction
// depends on colour alone.
type style struct {
	slot   int  // selects the colour and the form of marks, modulo [slots]
	dashed bool // dashed lines and hollow marks, for baselines
}

func (s style) class() string {
	c := "s" + strconv.Itoa(s.slot%slots)
	if s.dashed {
		c += " base"
	}
	return c
}

// picture collects the text of an SVG.
type picture struct {
	b       strings.Builder
	figures int // figures drawn
}

// drawSVG draws a chart. It returns false if the chart has no figure. Other ids are
// derived from id. Screen readers read the name and the description.
func drawSVG(c chart, id, name, description string) (template.HTML, bool) {
	p := &picture{}
	id = esc(id)
	p.f(`<svg class="chart" viewBox="0 0 %d %s" role="img" aria-labelledby="%s-t %s-d" xmlns="http://www.w3.org/2000/svg">`,
		chartWidth, coord(c.height()), id, id)
	p.f(`<title id="%s-t">%s</title><desc id="%s-d">%s</desc>`, id, esc(name), id, esc(description))
	c.plot(p)
	p.f("</svg>")
	// esc has escaped all external text.
	return template.HTML(p.b.String()), p.figures > 0
}

func (p *picture) f(format string, args ...any) { fmt.Fprintf(&p.b, format, args...) }

// group draws the elements of a series.
func (p *picture) group(class, series string, draw func()) {
	if series != "" {
		class += fmt.Sprintf(`" data-series="%s`, esc(series))
	}
	p.f(`<g class="%s">`, class)
	draw()
	p.f("</g>")
}

// text writes a label; anchor is start, middle or end.
func (p *picture) text(x, y float64, anchor, class, s string) {
	p.f(`<text x="%s" y="%s" text-anchor="%s" class="%s">%s</text>`, coord(x), coord(y), anchor, class, esc(s))
}

func (p *picture) line(x1, y1, x2, y2 float64, class string) {
	p.f(`<line x1="%s" y1="%s" x2="%s" y2="%s" class="%s"/>`, coord(x1), coord(y1), coord(x2), coord(y2), class)
}

// figure draws a figure. The tip is also its title, so browsers show it without a script.
func (p *picture) figure(element, attributes, tip string) {
	p.figures++
	p.f(`<%[1]s %[2]s data-tip="%[3]s"><title>%[3]s</title></%[1]s>`, element, attributes, esc(tip))
}

// markPath returns the path of a mark in the form of its slot.
func markPath(x, y float64, s style) string {
	const r = 3.6
	switch s.slot % slots % 5 {
	case 0:
		return fmt.Sprintf("M%s %sa%g %g 0 1 0 %g 0a%g %g 0 1 0 %g 0z", coord(x-r), coord(y), r, r, 2*r, r, r, -2*r)
	case 1:
		return fmt.Sprintf("M%s %sh%gv%gh%gz", coord(x-r+.4), coord(y-r+.4), 2*r-.8, 2*r-.8, -2*r+.8)
	case 2:
		return fmt.Sprintf("M%s %sl%g %gh%gz", coord(x), coord(y-r-.6), r+.4, 2*r, -2*r-.8)
	case 3:
		return fmt.Sprintf("M%s %sl%g %gl%g %gl%g %gz", coord(x), coord(y-r-.8), r+.8, r+.8, -r-.8, r+.8, -r-.8, -r-.8)
	}
	return fmt.Sprintf("M%s %sl%g %gh%gz", coord(x), coord(y+r+.6), r+.4, -2*r, -2*r-.8)
}

// legendKey draws the mark of a series for a legend. Screen readers skip it, because
// the name is next to it.
func legendKey(s style) template.HTML {
	p := &picture{}
	p.f(`<svg class="key" viewBox="0 0 26 12" aria-hidden="true" focusable="false">`)
	p.group("series "+s.class(), "", func() {
		p.line(1, 6, 25, 6, "curve")
		p.f(`<path d="%s" class="pt"></path>`, markPath(13, 6, s))
	})
	p.f("</svg>")
	return template.HTML(p.b.String())
}

// coord writes a coordinate with a precision of 0.1 units.
func coord(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		v = 0
	}
	return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64)
}

func esc(s string) string { return template.HTMLEscapeString(s) }

// shorten truncates a label to at most most characters.
func shorten(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}
