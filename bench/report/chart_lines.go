package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// lineChart shows curves over two axes.
type lineChart struct {
	x, y   axis
	curves []curve // in order: later curves cover earlier ones
	rules  []rule
	high   float64 // height in units of the view box; 0 means 260
	// bands and moments explain the x axis, and most is a value that it reaches at least. They need a curve.
	bands   []band
	moments []moment
	most    float64
}

// band is a named stretch of x, such as a phase of a storm. Every second one is shaded.
type band struct {
	from, to float64
	name     string
}

// moment is a value of x at which something happened, such as a fault.
type moment struct {
	at         float64
	label, tip string
}

// curve is one series. Points are drawn in the given order; points outside the axes are omitted.
type curve struct {
	name   string
	style  style
	points []point
	// path draws a line through the points. area fills the region below it. step draws
	// each value from the X of the previous point on.
	path, area, step bool
	// dots draws each point.
	dots bool
	// background excludes the curve from the legend and its colours.
	background bool
}

// point is one point of a curve.
type point struct {
	x, y   float64
	lo, hi float64 // bounds of the interval of y; both 0 if there is none
	mark   bool    // draws a mark with tip; other points only shape the line
	tip    string
}

func (q point) bounded() bool { return q.lo != 0 || q.hi != 0 }

// rule is a straight line across the chart, such as an objective or a knee.
type rule struct {
	vertical bool    // at a value of x; others at a value of y
	at       float64 // position
	label    string  // of a horizontal rule
	series   string  // curve that the rule belongs to; empty for none
	style    style   // of the curve
}

// Margins of charts with two axes.
const (
	marginLeft, marginRight = 54, 14
	marginTop, marginBottom = 24, 40
)

func (c lineChart) height() float64 { return cmp.Or(c.high, 260) }

// shown returns the points on the axes.
func (c lineChart) shown(points []point) []point {
	return slices.DeleteFunc(slices.Clone(points), func(q point) bool { return c.x.lacks(q.x) || c.y.lacks(q.y) })
}

// scales returns both scales. They include all points, intervals and rules.
func (c lineChart) scales() (x, y scale, xTicks, yTicks []tick) {
	var xs, ys []float64
	for _, s := range c.curves {
		for _, q := range c.shown(s.points) {
			xs, ys = append(xs, q.x), append(ys, q.y)
			if q.bounded() {
				ys = append(ys, q.lo, q.hi)
			}
		}
	}
	if c.most > 0 {
		xs = append(xs, c.most)
	}
	for _, m := range c.moments {
		xs = append(xs, m.at)
	}
	for _, r := range c.rules {
		if r.vertical {
			xs = append(xs, r.at)
		} else {
			ys = append(ys, r.at)
		}
	}
	x, xTicks = newScale(c.x, xs, marginLeft, chartWidth-marginRight, 6)
	y, yTicks = newScale(c.y, ys, c.height()-marginBottom, marginTop, 5)
	return x, y, xTicks, yTicks
}

func (c lineChart) plot(p *picture) {
	x, y, xTicks, yTicks := c.scales()
	bottom := c.height() - marginBottom
	c.shade(p, x, bottom)
	for _, t := range yTicks {
		p.line(marginLeft, y.at(t.at), chartWidth-marginRight, y.at(t.at), "grid")
		p.text(marginLeft-6, y.at(t.at)+4, "end", "tick", t.label)
	}
	p.ticks(x, xTicks, marginTop, bottom, 16)
	p.line(marginLeft, bottom, chartWidth-marginRight, bottom, "axis")
	p.text(2, 12, "start", "axis-label", c.y.label)
	p.text(chartWidth-marginRight, c.height()-6, "end", "axis-label", c.x.label)
	for _, r := range c.rules {
		c.rule(p, r, x, y, bottom)
	}
	for _, s := range c.curves {
		c.curve(p, s, x, y, bottom)
	}
	c.happened(p, x, bottom)
}

// shade draws the bands. A name without room is omitted.
func (c lineChart) shade(p *picture, x scale, bottom float64) {
	for i, b := range c.bands {
		from, to := x.at(b.from), min(x.at(b.to), chartWidth-marginRight)
		if to <= from {
			continue
		}
		if i%2 == 1 {
			p.f(`<rect x="%s" y="%d" width="%s" height="%s" class="band"/>`, coord(from), marginTop, coord(to-from), coord(bottom-marginTop))
		}
		if to-from > 6.6*float64(len([]rune(b.name))) {
			p.text(from+3, marginTop+11, "start", "rule-label", b.name)
		}
	}
}

// happened draws the moments. A label that would overlap the previous one is omitted.
func (c lineChart) happened(p *picture, x scale, bottom float64) {
	end := math.Inf(-1)
	for _, m := range c.moments {
		at := x.at(m.at)
		p.group("rule", "", func() {
			p.line(at, marginTop, at, bottom, "ruled")
			p.figure("path", fmt.Sprintf(`d="M%s %dl-4 -7h8z" class="pt moment"`, coord(at), marginTop), m.tip)
			if half := 3.3 * float64(len(m.label)); at-half > end+2 {
				p.text(at, marginTop-9, "middle", "rule-label", m.label)
				end = at + half
			}
		})
	}
}

func (c lineChart) rule(p *picture, r rule, x, y scale, bottom float64) {
	class := "rule"
	if r.series != "" {
		class += " series " + r.style.class()
	}
	p.group(class, r.series, func() {
		if r.vertical {
			p.line(x.at(r.at), marginTop, x.at(r.at), bottom, "ruled")
			return
		}
		p.line(marginLeft, y.at(r.at), chartWidth-marginRight, y.at(r.at), "ruled")
		p.text(marginLeft+4, y.at(r.at)-4, "start", "rule-label", r.label)
	})
}

func (c lineChart) curve(p *picture, s curve, x, y scale, bottom float64) {
	points := c.shown(s.points)
	if len(points) == 0 {
		return
	}
	path := "M" + coord(x.at(points[0].x)) + " " + coord(y.at(points[0].y))
	for _, q := range points[1:] {
		if s.step {
			path += "V" + coord(y.at(q.y)) + "H" + coord(x.at(q.x))
		} else {
			path += "L" + coord(x.at(q.x)) + " " + coord(y.at(q.y))
		}
	}
	class, series := "series "+s.style.class(), s.name
	if s.background {
		class, series = "backdrop", ""
	}
	p.group(class, series, func() {
		if s.area {
			p.f(`<path class="area" d="%sV%sH%sz"/>`, path, coord(bottom), coord(x.at(points[0].x)))
		}
		if s.path {
			p.f(`<path class="curve" d="%s"/>`, path)
		}
		if s.dots {
			dots := ""
			for _, q := range points {
				dots += "M" + coord(x.at(q.x)) + " " + coord(y.at(q.y)) + "h0"
			}
			p.f(`<path class="dots" d="%s"/>`, dots)
		}
		for _, q := range points {
			at := x.at(q.x)
			if q.bounded() && !c.y.lacks(q.lo) && !c.y.lacks(q.hi) {
				p.line(at, y.at(q.lo), at, y.at(q.hi), "whisker")
			}
			if q.mark {
				p.figure("path", `d="`+markPath(at, y.at(q.y), s.style)+`" class="pt"`, s.name+": "+q.tip)
			}
		}
	})
}

// ticks draws the grid lines and the labels of a horizontal axis. A label that would
// overlap the previous one is omitted.
func (p *picture) ticks(x scale, ticks []tick, top, bottom, below float64) {
	lastEnd := math.Inf(-1)
	for _, t := range ticks {
		at := x.at(t.at)
		p.line(at, top, at, bottom, "grid")
		half := 3.3 * float64(len([]rune(t.label))) // an estimate
		mid := max(min(at, chartWidth-2-half), 2+half)
		if mid-half > lastEnd+5 {
			p.text(mid, bottom+below, "middle", "tick", t.label)
			lastEnd = mid + half
		}
	}
}

// table lists the points with marks.
func (c lineChart) table() table {
	t := newTable("", []string{"series"}, c.x.label, c.y.label)
	intervals := slices.ContainsFunc(c.curves, func(s curve) bool {
		return slices.ContainsFunc(s.points, func(q point) bool { return q.mark && q.bounded() })
	})
	if intervals {
		t.figures("from", "to")
	}
	for _, s := range c.curves {
		for _, q := range c.shown(s.points) {
			if !q.mark {
				continue
			}
			line := []string{s.name, c.x.text(q.x), c.y.text(q.y)}
			if intervals {
				line = append(line, c.y.text(q.lo), c.y.text(q.hi))
			}
			t.add(line...)
		}
	}
	return t
}
