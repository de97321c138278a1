package report

import (
	"fmt"
	"slices"

	"watchlab/bench/stats"
)

// Layout of a [rowChart]. Names are above the bars, so that narrow screens show them completely.
const (
	rowHeight, barTop, barHeight = 36, 17, 12
	rowsLeft, rowsRight          = 4, 10
	rulerHeight                  = 34
)

// rowChart shows a row per variant: [barRow], [quantileRow] or [shareRow].
type rowChart struct {
	axis    axis     // below the rows; shares have none, and no label
	columns []string // of the table, after the name
	rows    []chartRow
}

// chartRow is a row with its name at the left and its note at the right.
type chartRow struct {
	name, note string
	style      style
	values     []float64                              // that the axis includes
	draw       func(p *picture, x scale, top float64) // draws the bar below top; nil without figures
	cells      []string                               // of the table
}

func (c rowChart) bottom() float64 { return float64(8 + rowHeight*len(c.rows)) }

func (c rowChart) height() float64 {
	if c.axis.label == "" {
		return c.bottom()
	}
	return c.bottom() + rulerHeight
}

func (c rowChart) plot(p *picture) {
	var values []float64
	for _, r := range c.rows {
		values = append(values, r.values...)
	}
	inset := 0.0
	if c.axis.log {
		inset = 6 // room for the marks at the ends
	}
	x, ticks := newScale(c.axis, values, rowsLeft+inset, chartWidth-rowsRight-inset, 6)
	if c.axis.label != "" {
		p.ticks(x, ticks, 4, c.bottom(), 14)
		p.text(chartWidth-rowsRight, c.height()-4, "end", "axis-label", c.axis.label)
	}
	for i, r := range c.rows {
		p.group("row series "+r.style.class(), r.name, func() {
			top := float64(4 + rowHeight*i)
			p.text(rowsLeft, top+12, "start", "row-label", shorten(r.name, 34))
			p.text(chartWidth-rowsRight, top+12, "end", "row-note", r.note)
			if r.draw != nil {
				r.draw(p, x, top+barTop)
			}
		})
	}
}

func (c rowChart) table() table {
	t := newTable("", []string{""}, c.columns...)
	for _, r := range c.rows {
		t.add(append([]string{r.name}, r.cells...)...)
	}
	return t
}

// barColumns are the table's columns for rows of [barRow].
func barColumns(a axis) []string { return []string{a.label, "from", "to", "rounds", "note"} }

// barRow shows the median of rounds as a bar from zero, so that lengths are proportional
// to the values, with its interval and the rounds. The axis starts at zero. A row without
// rounds shows only its note.
func barRow(r chartRow, a axis, rounds []float64, tip string) chartRow {
	s := stats.Summarize(rounds)
	r.values, r.cells = rounds, []string{none, none, none, fmt.Sprint(s.N), r.note}
	if s.N == 0 {
		return r
	}
	r.cells[0] = a.text(s.Median)
	if s.Lo != nil {
		r.values = append(slices.Clone(rounds), *s.Lo, *s.Hi)
		r.cells[1], r.cells[2] = a.text(*s.Lo), a.text(*s.Hi)
	}
	r.draw = func(p *picture, x scale, y float64) {
		p.figure("path", fmt.Sprintf(`class="bar pt" d="M%d %sH%sV%sH%dz"`,
			rowsLeft, coord(y), coord(x.at(s.Median)), coord(y+barHeight), rowsLeft), r.name+": "+tip)
		mid := y + barHeight/2
		if s.Lo != nil {
			lo, hi := x.at(*s.Lo), x.at(*s.Hi)
			p.line(lo, mid, hi, mid, "interval")
			p.line(lo, mid-4, lo, mid+4, "interval")
			p.line(hi, mid-4, hi, mid+4, "interval")
		}
		for _, v := range rounds {
			p.f(`<circle class="round" cx="%s" cy="%s" r="2"/>`, coord(x.at(v)), coord(mid))
		}
	}
	return r
}

// quantileRow shows a distribution: a line from the smallest to the largest quantile with
// a mark for each. The names are in ascending order ("p50", "p99", "max"). A quantile with
// too few events is missing at the end, or NaN.
func quantileRow(r chartRow, a axis, names []string, values []float64) chartRow {
	r.values, r.cells = values, slices.Repeat([]string{none}, len(names))
	shown := slices.DeleteFunc(slices.Clone(values), a.lacks)
	if len(shown) == 0 {
		return r
	}
	for i, v := range values {
		if !a.lacks(v) {
			r.cells[i] = a.text(v)
		}
	}
	r.draw = func(p *picture, x scale, top float64) {
		y := top + barHeight/2
		p.line(x.at(shown[0]), y, x.at(shown[len(shown)-1]), y, "span")
		for i, v := range values {
			if a.lacks(v) {
				continue
			}
			// Marks grow towards the tail. The maximum is hollow, because it is a single event.
			size, class := 2.6+float64(i)*0.8, "quantile pt"
			if names[i] == "max" {
				size, class = 3.4, "quantile last pt"
			}
			p.figure("circle", fmt.Sprintf(`class="%s" cx="%s" cy="%s" r="%s"`, class, coord(x.at(v)), coord(y), coord(size)),
				r.name+", "+names[i]+": "+a.text(v))
		}
	}
	return r
}

// shareRow shows a whole of the full width and its parts. The values have the order of the
// parts; 0 stands for a missing part.
func shareRow(r chartRow, parts []string, values []float64, format func(float64) string) chartRow {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	for _, v := range values {
		text := none
		if v > 0 {
			text = fmt.Sprintf("%s (%.1f %%)", format(v), v/sum*100)
		}
		r.cells = append(r.cells, text)
	}
	r.cells = append(r.cells, format(sum))
	if sum > 0 {
		r.note = format(sum)
	}
	r.draw = func(p *picture, _ scale, y float64) {
		at := float64(rowsLeft)
		for i, v := range values {
			if v <= 0 {
				continue
			}
			wide := v / sum * (chartWidth - rowsLeft - rowsRight)
			p.figure("rect", fmt.Sprintf(`class="part s%d pt" x="%s" y="%s" width="%s" height="%d"`,
				partSlot(i), coord(at), coord(y), coord(max(wide-1, 0.5)), barHeight),
				fmt.Sprintf("%s, %s: %s, %.1f %%", r.name, parts[i], format(v), v/sum*100))
			at += wide
		}
	}
	return r
}

// partSlot returns the slot of a part's colour. Slots count from the end, so that parts
// differ from the first series.
func partSlot(j int) int { return slots - 1 - j%slots }
