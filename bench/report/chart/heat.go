package chart

import (
	"html/template"
	"math"
	"slices"
)

// Heat is a heat map of a figure over two parameters. Larger figures are darker in the
// light theme. Maps with equal Low and High are comparable.
type Heat struct {
	// Name and Description are the accessible name and description of the picture.
	Name, Description string
	// X and Y name the columns and the rows; Xs and Ys are their values.
	X, Y   string
	Xs, Ys []string
	// Unit names the figure; Format writes one.
	Unit   string
	Format func(float64) string
	// Values are indexed by y, then x. NaN means no figure; Missing gives the reason.
	Values  [][]float64
	Missing string
	// Low and High are the ends of the colour scale. The scale is logarithmic if both
	// are above 0 and at least a factor of ten apart.
	Low, High float64
	// Style is that of the series; the colours of the map do not depend on it.
	Style Style
}

// Empty reports whether the chart has no figure.
func (c Heat) Empty() bool {
	return !slices.ContainsFunc(c.Values, func(row []float64) bool {
		return slices.ContainsFunc(row, func(v float64) bool { return !math.IsNaN(v) })
	})
}

// The two used ranges of the colour scale. Text is not readable on the colours between
// them, neither dark nor light.
const coldTo, hotFrom = 0.42, 0.78

// warmth returns the position of a figure between Low and High, from 0 to 1.
func (c Heat) warmth(v float64) float64 {
	lo, hi := c.Low, c.High
	if lo > 0 && hi/lo >= 10 {
		lo, hi, v = math.Log(lo), math.Log(hi), math.Log(v)
	}
	if hi <= lo {
		return 0.5
	}
	return max(0, min(1, (v-lo)/(hi-lo)))
}

// SVG draws the map.
func (c Heat) SVG(id string) template.HTML {
	const left, top, cellHeight = 60, 40, 34
	height := float64(top + cellHeight*len(c.Ys) + 6)
	p := open(id, c.Name, c.Description, height)
	wide := float64(Width-left-4) / float64(max(1, len(c.Xs)))
	p.text(Width-4, 12, "end", "axis-label", c.X+" →")
	p.text(2, 12, "start", "axis-label", c.Y+" ↓")
	for i, label := range c.Xs {
		p.text(left+wide*(float64(i)+0.5), 30, "middle", "tick", shorten(label, max(3, int(wide/7))))
	}
	for j, label := range c.Ys {
		y := float64(top + cellHeight*j)
		p.text(left-6, y+cellHeight/2+4, "end", "tick", shorten(label, 8))
		for i := range c.Xs {
			v := math.NaN()
			if j < len(c.Values) && i < len(c.Values[j]) {
				v = c.Values[j][i]
			}
			c.cell(p, left+wide*float64(i), y, wide, cellHeight, v, c.X+" "+c.Xs[i]+", "+c.Y+" "+label)
		}
	}
	return p.close()
}

func (c Heat) cell(p *picture, x, y, wide, high, v float64, at string) {
	if math.IsNaN(v) {
		tip := at + ": " + c.Missing
		p.f(`<g class="cell missing"><rect class="pt" x="%s" y="%s" width="%s" height="%s" data-tip="%s"><title>%s</title></rect>`,
			n(x+1), n(y+1), n(wide-2), n(high-2), esc(tip), esc(tip))
		p.text(x+wide/2, y+high/2+4, "middle", "cell-label", "–")
		p.f(`</g>`)
		return
	}
	tip := at + ": " + c.Format(v) + " " + c.Unit
	w := c.warmth(v)
	// The text colour changes at the middle, where the colour scale has its gap.
	class := "cold"
	mix := w * 2 * coldTo
	if w >= 0.5 {
		class = "hot"
		mix = hotFrom + (w-0.5)*2*(1-hotFrom)
	}
	p.f(`<g class="cell %s"><rect class="pt" style="--w:%s%%" x="%s" y="%s" width="%s" height="%s" data-tip="%s"><title>%s</title></rect>`,
		class, n(mix*100), n(x+1), n(y+1), n(wide-2), n(high-2), esc(tip), esc(tip))
	p.text(x+wide/2, y+high/2+4, "middle", "cell-label", shorten(c.Format(v), max(3, int(wide/6.4))))
	p.f(`</g>`)
}

// Table lists the figures by row and column.
func (c Heat) Table() Table {
	t := Table{Header: []string{c.Y + " \\ " + c.X}}
	t.Header = append(t.Header, c.Xs...)
	for j, label := range c.Ys {
		row := []string{label}
		for i := range c.Xs {
			if j < len(c.Values) && i < len(c.Values[j]) && !math.IsNaN(c.Values[j][i]) {
				row = append(row, c.Format(c.Values[j][i]))
			} else {
				row = append(row, c.Missing)
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}
