package report

import (
	"fmt"
	"slices"

	"watchlab/bench/stats"
)

// Layout of charts with a row per variant. Names are above the bars, so that narrow
// screens show them completely.
const (
	rowHeight, barTop, barHeight = 36, 17, 12
	rowsLeft, rowsRight          = 4, 10
	rulerHeight                  = 34
)

// rowLabel is the text of a row: its name at the left, its note at the right.
type rowLabel struct {
	name  string
	style style
	note  string
}

// row writes the texts of row i and calls draw with the top of its bar.
func (p *picture) row(i int, l rowLabel, draw func(top float64)) {
	p.group("row series "+l.style.class(), l.name, func() {
		top := float64(4 + rowHeight*i)
		p.text(rowsLeft, top+12, "start", "row-label", shorten(l.name, 34))
		p.text(chartWidth-rowsRight, top+12, "end", "row-note", l.note)
		draw(top + barTop)
	})
}

func rulerBottom(rows int) float64 { return float64(8 + rowHeight*rows) }

// ruler draws an axis below the rows and returns its scale.
func (p *picture) ruler(a axis, values []float64, rows int, inset float64, about int) scale {
	x, ticks := scaleOf(a, values, rowsLeft+inset, chartWidth-rowsRight-inset).widen(about)
	bottom := rulerBottom(rows)
	p.ticks(x, ticks, 4, bottom, 14)
	p.text(chartWidth-rowsRight, bottom+rulerHeight-4, "end", "axis-label", a.label)
	return x
}

// barChart shows medians as bars with their intervals and rounds. Bars start at zero,
// so that lengths are proportional to the values.
type barChart struct {
	axis axis // always linear
	rows []bar
}

// bar is the median of rounds. A bar without rounds shows only its note.
type bar struct {
	rowLabel
	rounds []float64
	tip    string
}

func (c barChart) height() float64 { return rulerBottom(len(c.rows)) + rulerHeight }

func (c barChart) plot(p *picture) {
	var values []float64
	sums := make([]stats.Summary, len(c.rows))
	for i, r := range c.rows {
		sums[i] = stats.Summarize(r.rounds)
		values = append(values, r.rounds...)
		if sums[i].Lo != nil {
			values = append(values, *sums[i].Lo, *sums[i].Hi)
		}
	}
	a := c.axis
	a.log, a.zero = false, true
	x := p.ruler(a, values, len(c.rows), 0, 5)
	for i, r := range c.rows {
		p.row(i, r.rowLabel, func(y float64) {
			if len(r.rounds) == 0 {
				return
			}
			p.figure("path", fmt.Sprintf(`class="bar pt" d="M%d %sH%sV%sH%dz"`,
				rowsLeft, coord(y), coord(x.at(sums[i].Median)), coord(y+barHeight), rowsLeft), r.name+": "+r.tip)
			mid := y + barHeight/2
			if sums[i].Lo != nil {
				lo, hi := x.at(*sums[i].Lo), x.at(*sums[i].Hi)
				p.line(lo, mid, hi, mid, "interval")
				p.line(lo, mid-4, lo, mid+4, "interval")
				p.line(hi, mid-4, hi, mid+4, "interval")
			}
			for _, v := range r.rounds {
				p.f(`<circle class="round" cx="%s" cy="%s" r="2"/>`, coord(x.at(v)), coord(mid))
			}
		})
	}
}

func (c barChart) table() table {
	t := newTable("", []string{""}, c.axis.label, "from", "to", "rounds", "note")
	for _, r := range c.rows {
		median, from, to := none, none, none
		if len(r.rounds) > 0 {
			s := stats.Summarize(r.rounds)
			median = c.axis.text(s.Median)
			if s.Lo != nil {
				from, to = c.axis.text(*s.Lo), c.axis.text(*s.Hi)
			}
		}
		t.add(r.name, median, from, to, fmt.Sprint(len(r.rounds)), r.note)
	}
	return t
}

// rangeChart shows distributions: lines from the smallest to the largest quantile with
// a mark for each.
type rangeChart struct {
	axis  axis
	marks []string // names of the quantiles in ascending order: "p50", "p99", "max"
	rows  []quantileRow
}

// quantileRow is one distribution. A quantile with too few events is missing at the
// end, or NaN.
type quantileRow struct {
	rowLabel
	values []float64
}

func (c rangeChart) height() float64 { return rulerBottom(len(c.rows)) + rulerHeight }

func (c rangeChart) plot(p *picture) {
	var values []float64
	for _, r := range c.rows {
		values = append(values, r.values...)
	}
	x := p.ruler(c.axis, values, len(c.rows), 6, 6)
	for i, r := range c.rows {
		p.row(i, r.rowLabel, func(top float64) {
			y := top + barHeight/2
			if shown := slices.DeleteFunc(slices.Clone(r.values), c.axis.lacks); len(shown) > 0 {
				p.line(x.at(shown[0]), y, x.at(shown[len(shown)-1]), y, "span")
			}
			for j, v := range r.values {
				if c.axis.lacks(v) {
					continue
				}
				// Marks grow towards the tail. The maximum is hollow, because it is a
				// single event.
				size, class := 2.6+float64(j)*0.8, "quantile pt"
				if c.marks[j] == "max" {
					size, class = 3.4, "quantile last pt"
				}
				p.figure("circle", fmt.Sprintf(`class="%s" cx="%s" cy="%s" r="%s"`, class, coord(x.at(v)), coord(y), coord(size)),
					r.name+", "+c.marks[j]+": "+c.axis.text(v))
			}
		})
	}
}

func (c rangeChart) table() table {
	t := newTable("", []string{""}, c.marks...)
	for _, r := range c.rows {
		line := []string{r.name}
		for j := range c.marks {
			if j < len(r.values) && !c.axis.lacks(r.values[j]) {
				line = append(line, c.axis.text(r.values[j]))
			} else {
				line = append(line, none)
			}
		}
		t.add(line...)
	}
	return t
}

// shareChart shows wholes of equal width and their parts.
type shareChart struct {
	unit   string // of the figures
	format func(float64) string
	parts  []string // names, in order
	rows   []whole
}

// whole has its values in the order of the parts; 0 for a missing part.
type whole struct {
	rowLabel
	values []float64
}

func (w whole) sum() (sum float64) {
	for _, v := range w.values {
		sum += v
	}
	return sum
}

func (c shareChart) height() float64 { return rulerBottom(len(c.rows)) }

func (c shareChart) plot(p *picture) {
	for i, r := range c.rows {
		p.row(i, r.rowLabel, func(y float64) {
			at, sum := float64(rowsLeft), r.sum()
			for j, v := range r.values {
				if v <= 0 {
					continue
				}
				wide := v / sum * (chartWidth - rowsLeft - rowsRight)
				p.figure("rect", fmt.Sprintf(`class="part s%d pt" x="%s" y="%s" width="%s" height="%d"`,
					partSlot(j), coord(at), coord(y), coord(max(wide-1, 0.5)), barHeight),
					fmt.Sprintf("%s, %s: %s, %.1f %%", r.name, c.parts[j], c.format(v), v/sum*100))
				at += wide
			}
		})
	}
}

// partSlot returns the slot of a part's colour. Slots count from the end, so that parts
// differ from the first series.
func partSlot(j int) int { return slots - 1 - j%slots }

func (c shareChart) table() table {
	t := newTable("", []string{""})
	for _, part := range c.parts {
		t.figures(part + ", " + c.unit)
	}
	t.figures("sum")
	for _, r := range c.rows {
		line := []string{r.name}
		for _, v := range r.values {
			text := none
			if v > 0 {
				text = fmt.Sprintf("%s (%.1f %%)", c.format(v), v/r.sum()*100)
			}
			line = append(line, text)
		}
		t.add(append(line, c.format(r.sum()))...)
	}
	return t
}
