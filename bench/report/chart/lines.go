package chart

import (
	"html/template"
	"math"
	"slices"
)

// Lines is a chart of curves over two axes.
type Lines struct {
	// Name and Description are the accessible name and description of the picture.
	Name, Description string
	// X and Y are the axes.
	X, Y Axis
	// Series are drawn in order, so that later curves cover earlier ones.
	Series []Curve
	// Rules are lines across the chart.
	Rules []Rule
	// Height is in units of the view box; 0 means 260.
	Height float64
}

// Curve is one series. Points are drawn in the given order.
type Curve struct {
	// Name appears in the legend, with the mark of Style.
	Name  string
	Style Style
	// Points outside the axes are omitted.
	Points []Point
	// Path draws a line through the points. Area fills the region below it. Step draws
	// each value from the X of the previous point on.
	Path, Area, Step bool
	// Background excludes the curve from the legend and its colours, such as the
	// released events behind the handled ones.
	Background bool
}

// Point is one point of a curve.
type Point struct {
	// X and Y are values on the axes.
	X, Y float64
	// Lo and Hi bound the interval of Y; both 0 if there is none.
	Lo, Hi float64
	// Mark draws a mark with the tooltip Tip. Other points only shape the line.
	Mark bool
	Tip  string
}

// Rule is a straight line across the chart: an objective, a knee, a peak.
type Rule struct {
	// Vertical rules are at an X value, others at a Y value.
	Vertical bool
	// At is the position, in the values of the axis.
	At float64
	// Label is written beside the line.
	Label string
	// Series and Style are those of the curve that the rule belongs to; Series is empty
	// for none.
	Series string
	Style  Style
}

// Margins of charts with two axes.
const (
	marginLeft, marginRight = 54, 14
	marginTop, marginBottom = 24, 40
)

// Empty reports whether no point is on the axes.
func (c Lines) Empty() bool {
	for _, s := range c.Series {
		if slices.ContainsFunc(s.Points, c.has) {
			return false
		}
	}
	return true
}

func (c Lines) has(p Point) bool { return c.X.has(p.X) && c.Y.has(p.Y) }

// scales returns both scales. They include all points, intervals and rules.
func (c Lines) scales(height float64) (x, y scale, xTicks, yTicks []Tick) {
	var xs, ys []float64
	for _, s := range c.Series {
		for _, p := range s.Points {
			if !c.has(p) {
				continue
			}
			xs, ys = append(xs, p.X), append(ys, p.Y)
			if p.Lo != 0 || p.Hi != 0 {
				ys = append(ys, p.Lo, p.Hi)
			}
		}
	}
	for _, r := range c.Rules {
		if r.Vertical {
			xs = append(xs, r.At)
		} else {
			ys = append(ys, r.At)
		}
	}
	x, xTicks = scaleOf(c.X, xs, marginLeft, Width-marginRight).widen(6)
	y, yTicks = scaleOf(c.Y, ys, height-marginBottom, marginTop).widen(5)
	return x, y, xTicks, yTicks
}

// SVG draws the chart.
func (c Lines) SVG(id string) template.HTML {
	height := c.Height
	if height == 0 {
		height = 260
	}
	x, y, xTicks, yTicks := c.scales(height)
	p := open(id, c.Name, c.Description, height)
	bottom := height - marginBottom
	for _, t := range yTicks {
		p.line(marginLeft, y.at(t.At), Width-marginRight, y.at(t.At), "grid")
		p.text(marginLeft-6, y.at(t.At)+4, "end", "tick", t.Label)
	}
	lastEnd := math.Inf(-1)
	for _, t := range xTicks {
		at := x.at(t.At)
		p.line(at, marginTop, at, bottom, "grid")
		// A label that would overlap the previous one is omitted; its grid line stays.
		half := labelWidth(t.Label) / 2
		mid := min(at, Width-2-half)
		if mid-half > lastEnd+5 {
			p.text(mid, bottom+16, "middle", "tick", t.Label)
			lastEnd = mid + half
		}
	}
	p.line(marginLeft, bottom, Width-marginRight, bottom, "axis")
	p.text(2, 12, "start", "axis-label", c.Y.Label)
	p.text(Width-marginRight, height-6, "end", "axis-label", c.X.Label)

	for _, r := range c.Rules {
		c.rule(p, r, x, y, bottom)
	}
	for _, s := range c.Series {
		c.curve(p, s, x, y, bottom)
	}
	return p.close()
}

func (c Lines) rule(p *picture, r Rule, x, y scale, bottom float64) {
	if r.Vertical && !c.X.has(r.At) || !r.Vertical && !c.Y.has(r.At) {
		return
	}
	if r.Series == "" {
		p.f(`<g class="rule">`)
	} else {
		p.f(`<g class="rule series %s" data-series="%s">`, r.Style.class(), esc(r.Series))
	}
	if r.Vertical {
		at := x.at(r.At)
		p.line(at, marginTop, at, bottom, "ruled")
		anchor, dx := "start", 4.0
		if at > Width*0.6 {
			anchor, dx = "end", -4.0
		}
		if r.Label != "" {
			p.text(at+dx, marginTop+11, anchor, "rule-label", r.Label)
		}
	} else {
		p.line(marginLeft, y.at(r.At), Width-marginRight, y.at(r.At), "ruled")
		p.text(marginLeft+4, y.at(r.At)-4, "start", "rule-label", r.Label)
	}
	p.f(`</g>`)
}

func (c Lines) curve(p *picture, s Curve, x, y scale, bottom float64) {
	points := slices.DeleteFunc(slices.Clone(s.Points), func(q Point) bool { return !c.has(q) })
	if len(points) == 0 {
		return
	}
	if s.Background {
		p.f(`<g class="backdrop">`)
	} else {
		p.f(`<g class="series %s" data-series="%s">`, s.Style.class(), esc(s.Name))
	}
	if s.Path || s.Area {
		path := "M" + n(x.at(points[0].X)) + " " + n(y.at(points[0].Y))
		for _, q := range points[1:] {
			if s.Step {
				path += "V" + n(y.at(q.Y)) + "H" + n(x.at(q.X))
				continue
			}
			path += "L" + n(x.at(q.X)) + " " + n(y.at(q.Y))
		}
		if s.Area {
			p.f(`<path class="area" d="%sV%sH%sz"/>`, path, n(bottom), n(x.at(points[0].X)))
		}
		if s.Path {
			p.f(`<path class="curve" d="%s"/>`, path)
		}
	}
	for _, q := range points {
		at := x.at(q.X)
		if (q.Lo != 0 || q.Hi != 0) && c.Y.has(q.Lo) && c.Y.has(q.Hi) {
			p.line(at, y.at(q.Lo), at, y.at(q.Hi), "whisker")
		}
		if q.Mark {
			p.mark(at, y.at(q.Y), s.Style, s.Name+": "+q.Tip)
		}
	}
	p.f(`</g>`)
}

// labelWidth estimates the width of a tick label.
func labelWidth(s string) float64 { return 6.6 * float64(len([]rune(s))) }

// Table lists the points with marks.
func (c Lines) Table() Table {
	t := Table{Header: []string{"series", c.X.Label, c.Y.Label}}
	intervals := false
	for _, s := range c.Series {
		for _, p := range s.Points {
			intervals = intervals || p.Mark && (p.Lo != 0 || p.Hi != 0)
		}
	}
	if intervals {
		t.Header = append(t.Header, "from", "to")
	}
	for _, s := range c.Series {
		for _, p := range s.Points {
			if !p.Mark || !c.has(p) {
				continue
			}
			row := []string{s.Name, c.X.format(p.X), c.Y.format(p.Y)}
			if intervals {
				row = append(row, c.Y.format(p.Lo), c.Y.format(p.Hi))
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}
