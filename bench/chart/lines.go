package chart

import (
	"fmt"
	"math"
	"slices"
)

// Lines shows curves over two axes.
type Lines struct {
	X, Y   Axis
	Curves []Curve // in order: later curves cover earlier ones
	// Bands and Moments explain the x axis, and Most is a value that it reaches at least. They need a curve.
	Bands   []Band
	Moments []Moment
	Most    float64
}

// Band is a named stretch of x, such as a phase of a storm. Every second one is shaded.
type Band struct {
	From, To float64
	Name     string
}

// Moment is a value of x at which something happened, such as a fault.
type Moment struct {
	At         float64
	Label, Tip string
}

// Curve is one series. Points are drawn in the given order; points outside the axes are omitted.
type Curve struct {
	Name   string
	Style  Style
	Points []Point
	Path   bool // draws a line through the points
	Dots   bool // draws each point
}

// Point is one point of a curve.
type Point struct {
	X, Y   float64
	Lo, Hi float64 // bounds of the interval of Y; both 0 if there is none
	Mark   bool    // draws a mark with Tip; other points only shape the line
	Tip    string
}

func (q Point) bounded() bool { return q.Lo != 0 || q.Hi != 0 }

// Margins and height of charts with two axes.
const (
	marginLeft, marginRight = 54, 14
	marginTop, marginBottom = 24, 40
	linesHeight             = 260
)

// Height of the chart.
func (Lines) Height() float64 { return linesHeight }

// shown returns the points on the axes.
func (c Lines) shown(points []Point) []Point {
	return slices.DeleteFunc(slices.Clone(points), func(q Point) bool { return c.X.lacks(q.X) || c.Y.lacks(q.Y) })
}

// scales returns both scales. They include all points and intervals.
func (c Lines) scales() (x, y scale, xTicks, yTicks []Tick) {
	var xs, ys []float64
	for _, s := range c.Curves {
		for _, q := range c.shown(s.Points) {
			xs, ys = append(xs, q.X), append(ys, q.Y)
			if q.bounded() {
				ys = append(ys, q.Lo, q.Hi)
			}
		}
	}
	if c.Most > 0 {
		xs = append(xs, c.Most)
	}
	for _, m := range c.Moments {
		xs = append(xs, m.At)
	}
	x, xTicks = newScale(c.X, xs, marginLeft, Width-marginRight, 6)
	y, yTicks = newScale(c.Y, ys, c.Height()-marginBottom, marginTop, 5)
	return x, y, xTicks, yTicks
}

func (c Lines) plot(p *picture) {
	x, y, xTicks, yTicks := c.scales()
	bottom := c.Height() - marginBottom
	c.shade(p, x, bottom)
	for _, t := range yTicks {
		p.line(marginLeft, y.at(t.At), Width-marginRight, y.at(t.At), "grid")
		p.text(marginLeft-6, y.at(t.At)+4, "end", "tick", t.Label)
	}
	p.ticks(x, xTicks, marginTop, bottom, 16)
	p.line(marginLeft, bottom, Width-marginRight, bottom, "axis")
	p.text(2, 12, "start", "axis-label", c.Y.Label)
	p.text(Width-marginRight, c.Height()-6, "end", "axis-label", c.X.Label)
	for _, s := range c.Curves {
		c.curve(p, s, x, y)
	}
	c.happened(p, x, bottom)
}

// shade draws the bands. A name without room is omitted.
func (c Lines) shade(p *picture, x scale, bottom float64) {
	for i, b := range c.Bands {
		from, to := x.at(b.From), min(x.at(b.To), Width-marginRight)
		if to <= from {
			continue
		}
		if i%2 == 1 {
			p.f(`<rect x="%s" y="%d" width="%s" height="%s" class="band"/>`, coord(from), marginTop, coord(to-from), coord(bottom-marginTop))
		}
		if to-from > 6.6*float64(len([]rune(b.Name))) {
			p.text(from+3, marginTop+11, "start", "rule-label", b.Name)
		}
	}
}

// happened draws the moments. A label that would overlap the previous one is omitted.
func (c Lines) happened(p *picture, x scale, bottom float64) {
	end := math.Inf(-1)
	for _, m := range c.Moments {
		at := x.at(m.At)
		p.group("rule", "", func() {
			p.line(at, marginTop, at, bottom, "ruled")
			p.figure("path", fmt.Sprintf(`d="M%s %dl-4 -7h8z" class="pt moment"`, coord(at), marginTop), m.Tip)
			if half := 3.3 * float64(len(m.Label)); at-half > end+2 {
				p.text(at, marginTop-9, "middle", "rule-label", m.Label)
				end = at + half
			}
		})
	}
}

func (c Lines) curve(p *picture, s Curve, x, y scale) {
	points := c.shown(s.Points)
	if len(points) == 0 {
		return
	}
	path := "M" + coord(x.at(points[0].X)) + " " + coord(y.at(points[0].Y))
	for _, q := range points[1:] {
		path += "L" + coord(x.at(q.X)) + " " + coord(y.at(q.Y))
	}
	p.group("series "+s.Style.class(), s.Name, func() {
		if s.Path {
			p.f(`<path class="curve" d="%s"/>`, path)
		}
		if s.Dots {
			dots := ""
			for _, q := range points {
				dots += "M" + coord(x.at(q.X)) + " " + coord(y.at(q.Y)) + "h0"
			}
			p.f(`<path class="dots" d="%s"/>`, dots)
		}
		for _, q := range points {
			at := x.at(q.X)
			if q.bounded() && !c.Y.lacks(q.Lo) && !c.Y.lacks(q.Hi) {
				p.line(at, y.at(q.Lo), at, y.at(q.Hi), "whisker")
			}
			if q.Mark {
				p.figure("path", `d="`+markPath(at, y.at(q.Y), s.Style.Form)+`" class="pt"`, s.Name+": "+q.Tip)
			}
		}
	})
}

// ticks draws the grid lines and the labels of a horizontal axis. A label that would
// overlap the previous one is omitted.
func (p *picture) ticks(x scale, ticks []Tick, top, bottom, below float64) {
	lastEnd := math.Inf(-1)
	for _, t := range ticks {
		at := x.at(t.At)
		p.line(at, top, at, bottom, "grid")
		half := 3.3 * float64(len([]rune(t.Label))) // an estimate
		mid := max(min(at, Width-2-half), 2+half)
		if mid-half > lastEnd+5 {
			p.text(mid, bottom+below, "middle", "tick", t.Label)
			lastEnd = mid + half
		}
	}
}

// Table lists the points with marks.
func (c Lines) Table() *Table {
	t := NewTable("", []string{"series"}, c.X.Label, c.Y.Label)
	intervals := slices.ContainsFunc(c.Curves, func(s Curve) bool {
		return slices.ContainsFunc(s.Points, func(q Point) bool { return q.Mark && q.bounded() })
	})
	if intervals {
		t.Figures("from", "to")
	}
	for _, s := range c.Curves {
		for _, q := range c.shown(s.Points) {
			if !q.Mark {
				continue
			}
			line := []string{s.Name, c.X.Format(q.X), c.Y.Format(q.Y)}
			if intervals {
				line = append(line, c.Y.Format(q.Lo), c.Y.Format(q.Hi))
			}
			t.Add(line...)
		}
	}
	return t
}
