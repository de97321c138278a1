package chart

import "fmt"

// Layout of [Rows]. Names are above the bars, so that narrow screens show them completely.
const (
	rowHeight, barTop, barHeight = 36, 17, 12
	rowsLeft, rowsRight          = 4, 10
	rulerHeight                  = 34
)

// Rows shows a row per variant: [Interval] or [Shares].
type Rows struct {
	Axis    Axis     // below the rows
	Columns []string // of the table, after the name
	Rows    []Row
	Rule    float64 // draws a line through all rows at this value, where the bars of intervals begin; 0 for none
}

// Row has its name at the left and its note at the right.
type Row struct {
	Name, Note string
	Style      Style

	values []float64                              // that the axis includes
	end    float64                                // of the bar of an interval; 0 for none
	draw   func(p *picture, x scale, top float64) // draws the bar below top; nil without figures
	cells  []string                               // of the table
}

func (c Rows) bottom() float64 { return float64(8 + rowHeight*len(c.Rows)) }

// Height of the chart.
func (c Rows) Height() float64 { return c.bottom() + rulerHeight }

func (c Rows) plot(p *picture) {
	var values []float64
	for _, r := range c.Rows {
		values = append(values, r.values...)
	}
	if c.Rule != 0 {
		values = append(values, c.Rule)
	}
	inset := 0.0
	if !c.Axis.Zero {
		inset = 6 // room for the marks at the ends
	}
	x, ticks := newScale(c.Axis, values, rowsLeft+inset, Width-rowsRight-inset, 6)
	p.ticks(x, ticks, 4, c.bottom(), 14)
	p.text(Width-rowsRight, c.Height()-4, "end", "axis-label", c.Axis.Label)
	for i, r := range c.Rows {
		p.group("row series "+r.Style.class(), r.Name, func() {
			top := float64(4 + rowHeight*i)
			p.text(rowsLeft, top+12, "start", "row-label", shorten(r.Name, 34))
			p.text(Width-rowsRight, top+12, "end", "row-note", r.Note)
			if c.Rule != 0 {
				if r.end != 0 {
					p.f(`<path class="bar" d="M%s %sH%sV%sH%[1]sz"/>`, coord(x.at(c.Rule)), coord(top+barTop), coord(x.at(r.end)), coord(top+barTop+barHeight))
				}
				p.line(x.at(c.Rule), top+barTop-2, x.at(c.Rule), top+rowHeight-2, "ruled one")
			}
			if r.draw != nil {
				r.draw(p, x, top+barTop)
			}
		})
	}
}

// Table lists the rows.
func (c Rows) Table() *Table {
	t := NewTable("", []string{""}, c.Columns...)
	for _, r := range c.Rows {
		t.Add(append([]string{r.Name}, r.cells...)...)
	}
	return t
}

// IntervalColumns are the table's columns for rows of [Interval].
func IntervalColumns(a Axis) []string { return []string{a.Label, "from", "to", "note"} }

// Interval shows a figure as a mark, which may be hollow, and its interval as a line. In [Rows] with a
// Rule a bar goes from there to the mark. A row whose figure the axis lacks has its note alone.
func Interval(r Row, a Axis, q Point, hollow bool) Row {
	r.cells = []string{None, None, None, r.Note}
	if a.lacks(q.Y) || q.Y == 0 {
		return r
	}
	r.values, r.end, r.cells[0] = []float64{q.Y}, q.Y, a.Format(q.Y)
	if q.bounded() {
		r.values = append(r.values, q.Lo, q.Hi)
		r.cells[1], r.cells[2] = a.Format(q.Lo), a.Format(q.Hi)
	}
	class := "mark pt"
	if hollow {
		class = "mark hollow pt"
	}
	r.draw = func(p *picture, x scale, y float64) {
		mid := y + barHeight/2
		if q.bounded() { // The interval has a line at each end.
			p.f(`<path class="interval" d="M%s %sH%sM%[1]s %[4]sv8M%[3]s %[4]sv8"/>`, coord(x.at(q.Lo)), coord(mid), coord(x.at(q.Hi)), coord(mid-4))
		}
		p.figure("path", fmt.Sprintf(`d="%s" class="%s"`, markPath(x.at(q.Y), mid, 0), class), r.Name+": "+q.Tip)
	}
	return r
}

// Shares shows the parts of a whole, on an axis from 0 to 1. The values have the order of the
// parts; 0 stands for a missing part.
func Shares(r Row, parts []string, values []float64, format func(float64) string) Row {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	for _, v := range values {
		text := None
		if v > 0 {
			text = fmt.Sprintf("%s (%.1f %%)", format(v), v/sum*100)
		}
		r.cells = append(r.cells, text)
	}
	r.cells = append(r.cells, format(sum))
	if sum > 0 {
		r.Note = format(sum)
	}
	r.values = []float64{0, 1}
	r.draw = func(p *picture, x scale, y float64) {
		at := 0.0
		for i, v := range values {
			if v <= 0 {
				continue
			}
			wide := x.at(v/sum) - x.at(0)
			p.figure("rect", fmt.Sprintf(`class="part s%d pt" x="%s" y="%s" width="%s" height="%d"`,
				Part(i).Colour, coord(x.at(at)), coord(y), coord(max(wide-1, 0.5)), barHeight),
				fmt.Sprintf("%s, %s: %s, %.1f %%", r.Name, parts[i], format(v), v/sum*100))
			at += v / sum
		}
	}
	return r
}

// Part returns the style of the i-th part of [Shares].
func Part(i int) Style { return Nth(len(colours) - 1 - i%len(colours)) }
