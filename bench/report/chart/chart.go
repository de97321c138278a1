// Package chart draws the pictures of a report as SVG, by hand: no library, no
// script, no font and no network is needed to see one.
//
//  1. A chart is a struct that is filled with figures: [Lines], [Bars], [Ranges],
//     [Shares], [Heat].
//  2. SVG draws it. Colours are classes ("s0" to "s9") that [CSS] gives a value in
//     a light and in a dark theme.
//  3. Table gives the same figures as words, for those who do not see the picture.
//
// What a script may want to know stands in the picture: each series is a group
// with data-series, each figure an element of class "pt" with data-tip. Names and
// labels are escaped, whatever they hold.
//
// All charts are [Width] wide and are meant to be scaled; names stand above bars
// rather than beside them, so that a narrow screen shows them whole. A chart costs
// time and text in proportion to its figures.
package chart

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
)

// Width of every chart, in the units of its view box.
const Width = 440

// Chart is what all kinds have in common.
type Chart interface {
	// SVG draws the chart. The id must be the chart's own on its page: the parts
	// that name and describe the picture are derived from it.
	SVG(id string) template.HTML
	// Table holds the chart's figures.
	Table() Table
	// Empty reports whether there is nothing to draw.
	Empty() bool
}

// Table is what a chart shows, as words. The first column names the row.
type Table struct {
	Header []string
	Rows   [][]string
}

// Style is how a series is told from the others: by colour, by the form of its
// marks, and by its line, so that none of them alone is needed.
type Style struct {
	Slot   int
	Dashed bool
}

func (s Style) class() string {
	c := "s" + strconv.Itoa(s.Slot%Slots)
	if s.Dashed {
		c += " base"
	}
	return c
}

// picture collects the text of an SVG.
type picture struct{ b strings.Builder }

// open begins the picture. Its name and its description are what a screen reader
// says of it.
func open(id, name, description string, height float64) *picture {
	p := &picture{}
	fmt.Fprintf(&p.b, `<svg class="chart" viewBox="0 0 %d %s" role="img" aria-labelledby="%s-t %s-d" xmlns="http://www.w3.org/2000/svg">`,
		Width, n(height), esc(id), esc(id))
	fmt.Fprintf(&p.b, `<title id="%s-t">%s</title><desc id="%s-d">%s</desc>`, esc(id), esc(name), esc(id), esc(description))
	return p
}

func (p *picture) close() template.HTML {
	p.b.WriteString("</svg>")
	// Everything that came from outside went through esc.
	return template.HTML(p.b.String())
}

func (p *picture) f(format string, args ...any) { fmt.Fprintf(&p.b, format, args...) }

// text writes a label; anchor is start, middle or end.
func (p *picture) text(x, y float64, anchor, class, s string) {
	p.f(`<text x="%s" y="%s" text-anchor="%s" class="%s">%s</text>`, n(x), n(y), anchor, class, esc(s))
}

func (p *picture) line(x1, y1, x2, y2 float64, class string) {
	p.f(`<line x1="%s" y1="%s" x2="%s" y2="%s" class="%s"/>`, n(x1), n(y1), n(x2), n(y2), class)
}

// mark draws a figure's sign, in the form of its slot. What is said of it is its
// title, so that it is shown without a script, too.
func (p *picture) mark(x, y float64, s Style, tip string) {
	const r = 3.6
	var d string
	switch s.Slot % Slots % 5 {
	case 0:
		d = fmt.Sprintf("M%s %sa%g %g 0 1 0 %g 0a%g %g 0 1 0 %g 0z", n(x-r), n(y), r, r, 2*r, r, r, -2*r)
	case 1:
		d = fmt.Sprintf("M%s %sh%gv%gh%gz", n(x-r+.4), n(y-r+.4), 2*r-.8, 2*r-.8, -2*r+.8)
	case 2:
		d = fmt.Sprintf("M%s %sl%g %gh%gz", n(x), n(y-r-.6), r+.4, 2*r, -2*r-.8)
	case 3:
		d = fmt.Sprintf("M%s %sl%g %gl%g %gl%g %gz", n(x), n(y-r-.8), r+.8, r+.8, -r-.8, r+.8, -r-.8, -r-.8)
	default:
		d = fmt.Sprintf("M%s %sl%g %gh%gz", n(x), n(y+r+.6), r+.4, -2*r, -2*r-.8)
	}
	p.f(`<path d="%s" class="pt" data-tip="%s"><title>%s</title></path>`, d, esc(tip), esc(tip))
}

// n writes a coordinate: a tenth of a pixel is finer than anybody sees.
func n(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		v = 0
	}
	return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64)
}

func esc(s string) string { return template.HTMLEscapeString(s) }

// Key draws a series' sign for a legend, as a small picture that says nothing to
// those who hear its name beside it.
func Key(s Style) template.HTML {
	p := &picture{}
	p.f(`<svg class="key" viewBox="0 0 26 12" aria-hidden="true" focusable="false"><g class="series %s">`, s.class())
	p.line(1, 6, 25, 6, "curve")
	p.mark(13, 6, s, "")
	p.f(`</g></svg>`)
	return template.HTML(strings.ReplaceAll(strings.ReplaceAll(p.b.String(), "<title></title>", ""), ` data-tip=""`, ""))
}

// shorten cuts a label that would leave its place.
func shorten(s string, most int) string {
	r := []rune(s)
	if len(r) <= most {
		return s
	}
	return string(r[:most-1]) + "…"
}
