package report

import (
	"fmt"
	"math"

	"watchlab/bench/stats"
)

// heatMap draws a surface. Larger figures are darker in the light theme.
type heatMap struct {
	*stats.Surface
	// low and high are the ends of the colour scale. Maps with equal ends are comparable. The scale
	// is logarithmic if both ends are above 0 and at least a factor of ten apart.
	low, high float64
}

const (
	heatLeft, heatTop, heatRow = 60, 40, 34
	// coldTo and hotFrom bound the unused part of the colour scale. Neither dark nor
	// light text is readable on its colours.
	coldTo, hotFrom = 0.42, 0.78
)

func (c heatMap) height() float64 { return float64(heatTop + heatRow*len(c.Ys) + 6) }

// warmth returns the position of a figure between low and high, from 0 to 1.
func (c heatMap) warmth(v float64) float64 {
	lo, hi := c.low, c.high
	if lo > 0 && hi/lo >= 10 {
		lo, hi, v = math.Log(lo), math.Log(hi), math.Log(v)
	}
	if hi <= lo {
		return 0.5
	}
	return max(0, min(1, (v-lo)/(hi-lo)))
}

func (c heatMap) plot(p *picture) {
	wide := float64(chartWidth-heatLeft-4) / float64(max(1, len(c.Xs)))
	p.text(chartWidth-4, 12, "end", "axis-label", c.X+" →")
	p.text(2, 12, "start", "axis-label", c.Y+" ↓")
	for i, label := range c.Xs {
		p.text(heatLeft+wide*(float64(i)+0.5), 30, "middle", "tick", shorten(label, max(3, int(wide/7))))
	}
	for j, label := range c.Ys {
		y := float64(heatTop + heatRow*j)
		p.text(heatLeft-6, y+heatRow/2+4, "end", "tick", shorten(label, 8))
		for i := range c.Xs {
			c.field(p, heatLeft+wide*float64(i), y, wide, c.Points[j][i], c.X+" "+c.Xs[i]+", "+c.Y+" "+label)
		}
	}
}

func (c heatMap) field(p *picture, x, y, wide float64, s *stats.Summary, at string) {
	frame := fmt.Sprintf(`x="%s" y="%s" width="%s" height="%s"`, coord(x+1), coord(y+1), coord(wide-2), coord(heatRow-2))
	label := func(s string) { p.text(x+wide/2, y+heatRow/2+4, "middle", "cell-label", s) }
	if s == nil {
		p.group("cell missing", "", func() {
			p.figure("rect", `class="pt" `+frame, at+": no figure, invalid or not played")
			p.figures--
			label("–")
		})
		return
	}
	text := unitFormat(c.Unit)(s.Median)
	// The text colour changes at the middle, where the colour scale has its gap.
	w := c.warmth(s.Median)
	class, mix := "cold", w*2*coldTo
	if w >= 0.5 {
		class, mix = "hot", hotFrom+(w-0.5)*2*(1-hotFrom)
	}
	p.group("cell "+class, "", func() {
		p.figure("rect", fmt.Sprintf(`class="pt" style="--w:%s%%" %s`, coord(mix*100), frame), at+": "+text+" "+c.Unit)
		label(shorten(text, max(3, int(wide/6.4))))
	})
}

func (c heatMap) table() table { return surfaceTable(c.Surface) }
