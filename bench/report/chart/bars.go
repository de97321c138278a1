package chart

import (
	"html/template"
	"math"
	"strconv"
)

// Bars is a bar chart. Each bar starts at zero and shows its interval and the values of
// its rounds. A zero origin keeps the lengths proportional to the values; there is no
// other option.
type Bars struct {
	// Name and Description are the accessible name and description of the picture.
	Name, Description string
	// Axis is the horizontal axis. It is always linear and starts at zero.
	Axis Axis
	// Rows are drawn from top to bottom.
	Rows []Bar
}

// Bar is one value. A bar without a value shows only its note.
type Bar struct {
	// Name is written above the bar.
	Name  string
	Style Style
	// Value is nil if unknown.
	Value *float64
	// Lo and Hi bound the interval; nil if there is none.
	Lo, Hi *float64
	// Rounds are the values whose median is Value.
	Rounds []float64
	// Note is written at the right, such as the ratio. Tip is the tooltip of the bar.
	Note, Tip string
}

// Height of a row, and position of the bar within it.
const (
	rowHeight, barTop, barHeight = 36, 17, 12
	rowsLeft, rowsRight          = 4, 10
)

// Empty reports whether no bar has a value.
func (c Bars) Empty() bool {
	for _, r := range c.Rows {
		if r.Value != nil {
			return false
		}
	}
	return true
}

// SVG draws the chart.
func (c Bars) SVG(id string) template.HTML {
	height := float64(8 + rowHeight*len(c.Rows) + 34)
	p := open(id, c.Name, c.Description, height)
	var values []float64
	for _, r := range c.Rows {
		values = append(values, r.Rounds...)
		for _, v := range []*float64{r.Value, r.Lo, r.Hi} {
			if v != nil {
				values = append(values, *v)
			}
		}
	}
	axis := c.Axis
	axis.Log, axis.Zero = false, true
	x, ticks := scaleOf(axis, values, rowsLeft, Width-rowsRight).widen(5)
	bottom := height - 34
	ruler(p, x, ticks, 4, bottom)
	p.text(Width-rowsRight, height-4, "end", "axis-label", c.Axis.Label)
	for i, r := range c.Rows {
		top := p.row(i, r.Style, r.Name, r.Note)
		if r.Value != nil {
			y := top + barTop
			p.f(`<path class="bar pt" d="M%d %sH%sV%sH%dz" data-tip="%s"><title>%s</title></path>`,
				rowsLeft, n(y), n(x.at(*r.Value)), n(y+barHeight), rowsLeft, esc(r.Name+": "+r.Tip), esc(r.Name+": "+r.Tip))
			mid := y + barHeight/2
			if r.Lo != nil && r.Hi != nil {
				p.line(x.at(*r.Lo), mid, x.at(*r.Hi), mid, "interval")
				for _, end := range []*float64{r.Lo, r.Hi} {
					p.line(x.at(*end), mid-4, x.at(*end), mid+4, "interval")
				}
			}
			for _, v := range r.Rounds {
				p.f(`<circle class="round" cx="%s" cy="%s" r="2"/>`, n(x.at(v)), n(mid))
			}
		}
		p.f(`</g>`)
	}
	return p.close()
}

// row opens the group of a row, writes its texts, and returns its top edge.
func (p *picture) row(i int, style Style, name, note string) (top float64) {
	top = float64(4 + rowHeight*i)
	p.f(`<g class="row series %s" data-series="%s">`, style.class(), esc(name))
	p.text(rowsLeft, top+12, "start", "row-label", shorten(name, 34))
	p.text(Width-rowsRight, top+12, "end", "row-note", note)
	return top
}

// ruler draws a horizontal axis below the rows.
func ruler(p *picture, x scale, ticks []Tick, top, bottom float64) {
	lastEnd := math.Inf(-1)
	for _, t := range ticks {
		at := x.at(t.At)
		p.line(at, top, at, bottom, "grid")
		half := labelWidth(t.Label) / 2
		mid := max(min(at, Width-2-half), 2+half)
		if mid-half > lastEnd+5 {
			p.text(mid, bottom+14, "middle", "tick", t.Label)
			lastEnd = mid + half
		}
	}
}

// Table lists the bars.
func (c Bars) Table() Table {
	t := Table{Header: []string{"", c.Axis.Label, "from", "to", "rounds", "note"}}
	for _, r := range c.Rows {
		row := []string{r.Name, "-", "-", "-", strconv.Itoa(len(r.Rounds)), r.Note}
		for i, v := range []*float64{r.Value, r.Lo, r.Hi} {
			if v != nil {
				row[i+1] = c.Axis.format(*v)
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}
