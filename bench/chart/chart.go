// Package chart shows figures, as SVG and as tables, for reports, the command and the live page:
// the same axes, colours and number formats everywhere.
//
//  1. A [Table] is laid out for a terminal, in Markdown or by a page.
//  2. A chart is [Lines], curves over two axes, or [Rows], a bar or an interval for each variant.
//  3. [Draw] makes its picture. It needs no script, font or network. Colours are classes, which
//     [CSS] defines for a light and a dark theme.
//  4. [Of] returns the style of a variant by its name, [Hex] its colours for dashboards.
//
// Scripts find the data in the picture: a series is a group with data-series, a figure is an
// element of class "pt" with data-tip.
package chart

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
)

// Chart is a picture of figures: [Lines] or [Rows]. All charts are [Width] wide and scale with the
// page. Time and size are linear in the number of figures.
type Chart interface {
	Height() float64
	// Table returns the same figures as text, for screen readers and print.
	Table() *Table
	plot(p *picture)
}

// Width is the width of every chart, in units of the view box.
const Width = 440

// picture collects the text of an SVG.
type picture struct {
	b       strings.Builder
	figures int // figures drawn
}

// Draw draws a chart. It returns false if the chart has no figure. Other ids are
// derived from id. Screen readers read the name and the description.
func Draw(c Chart, id, name, description string) (template.HTML, bool) {
	p := &picture{}
	id = esc(id)
	p.f(`<svg class="chart" viewBox="0 0 %d %s" role="img" aria-labelledby="%s-t %s-d" xmlns="http://www.w3.org/2000/svg">`,
		Width, coord(c.Height()), id, id)
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

// forms is the number of forms of marks.
const forms = 5

// markPath returns the path of a mark.
func markPath(x, y float64, form int) string {
	const r = 3.6
	switch form % forms {
	case 0: // circle
		return fmt.Sprintf("M%s %sa%g %g 0 1 0 %g 0a%g %g 0 1 0 %g 0z", coord(x-r), coord(y), r, r, 2*r, r, r, -2*r)
	case 1: // square
		return fmt.Sprintf("M%s %sh%gv%gh%gz", coord(x-r+.4), coord(y-r+.4), 2*r-.8, 2*r-.8, -2*r+.8)
	case 2: // triangle
		return fmt.Sprintf("M%s %sl%g %gh%gz", coord(x), coord(y-r-.6), r+.4, 2*r, -2*r-.8)
	case 3: // diamond
		return fmt.Sprintf("M%s %sl%g %gl%g %gl%g %gz", coord(x), coord(y-r-.8), r+.8, r+.8, -r-.8, r+.8, -r-.8, -r-.8)
	}
	return fmt.Sprintf("M%s %sl%g %gh%gz", coord(x), coord(y+r+.6), r+.4, -2*r, -2*r-.8)
}

// Key draws the mark of a series for a legend. Screen readers skip it, because
// the name is next to it.
func Key(s Style) template.HTML {
	p := &picture{}
	p.f(`<svg class="key" viewBox="0 0 26 12" aria-hidden="true" focusable="false">`)
	p.group("series "+s.class(), "", func() {
		p.line(1, 6, 25, 6, "curve")
		p.f(`<path d="%s" class="pt"></path>`, markPath(13, 6, s.Form))
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
