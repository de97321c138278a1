// Package chart draws the charts of a report as SVG. The SVG needs no library, script,
// font or network.
//
//  1. A chart is a struct with figures: [Lines], [Bars], [Ranges], [Shares], [Heat].
//  2. SVG draws it. Colours are classes ("s0" to "s9"). [CSS] defines them for a light
//     and a dark theme.
//  3. Table returns the same figures as text, for screen readers and print.
//
// The picture holds the data for scripts. Each series is a group with data-series, and
// each figure is an element of class "pt" with data-tip. Names and labels are escaped.
//
// All charts are [Width] wide and scale with the page. Names are above the bars, so
// that narrow screens show them completely. Time and size are linear in the number of
// figures.
package chart

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
)

// Width of every chart, in units of the view box.
const Width = 440

// Chart is the interface of all kinds of charts.
type Chart interface {
	// SVG draws the chart. The id must be unique on the page: other ids are derived
	// from it.
	SVG(id string) template.HTML
	// Table returns the figures of the chart.
	Table() Table
	// Empty reports whether there is nothing to draw.
	Empty() bool
}

// Table holds the figures of a chart as text. The first column names the row.
type Table struct {
	// Header names the columns.
	Header []string
	// Rows have as many cells as Header.
	Rows [][]string
}

// Style distinguishes a series by colour, form of the marks and line. No distinction
// depends on colour alone.
type Style struct {
	// Slot selects the colour and the form of marks, modulo [Slots].
	Slot int
	// Dashed selects dashed lines and hollow marks, for baselines.
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

// open begins the picture. Screen readers read the name and the description.
func open(id, name, description string, height float64) *picture {
	p := &picture{}
	fmt.Fprintf(&p.b, `<svg class="chart" viewBox="0 0 %d %s" role="img" aria-labelledby="%s-t %s-d" xmlns="http://www.w3.org/2000/svg">`,
		Width, n(height), esc(id), esc(id))
	fmt.Fprintf(&p.b, `<title id="%s-t">%s</title><desc id="%s-d">%s</desc>`, esc(id), esc(name), esc(id), esc(description))
	return p
}

func (p *picture) close() template.HTML {
	p.b.WriteString("</svg>")
	// esc has escaped all external text.
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

// mark draws the mark of a figure in the form of its slot. The tip is its title, so
// browsers show it without a script.
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

// n writes a coordinate with a precision of 0.1 units.
func n(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		v = 0
	}
	return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64)
}

func esc(s string) string { return template.HTMLEscapeString(s) }

// Key draws the mark of a series for a legend. Screen readers skip it, because the name
// is next to it.
func Key(s Style) template.HTML {
	p := &picture{}
	p.f(`<svg class="key" viewBox="0 0 26 12" aria-hidden="true" focusable="false"><g class="series %s">`, s.class())
	p.line(1, 6, 25, 6, "curve")
	p.mark(13, 6, s, "")
	p.f(`</g></svg>`)
	return template.HTML(strings.ReplaceAll(strings.ReplaceAll(p.b.String(), "<title></title>", ""), ` data-tip=""`, ""))
}

// shorten truncates a label to at most most characters.
func shorten(s string, most int) string {
	r := []rune(s)
	if len(r) <= most {
		return s
	}
	return string(r[:most-1]) + "…"
}
