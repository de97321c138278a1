package chart

import (
	"html/template"
	"slices"
)

// Ranges shows distributions. Each is a line from the smallest to the largest quantile,
// with a mark for each quantile.
type Ranges struct {
	// Name and Description are the accessible name and description of the picture.
	Name, Description string
	// Axis is the horizontal axis.
	Axis Axis
	// Marks name the quantiles in ascending order: "p50", "p99", "max".
	Marks []string
	// Rows are the distributions, from top to bottom.
	Rows []Range
}

// Range is one distribution.
type Range struct {
	// Name is written above the line; Style selects colour and line.
	Name  string
	Style Style
	// Values are the quantiles in the order of Marks. Later ones are missing if there
	// are too few events.
	Values []float64
	// Note is written at the right.
	Note string
}

// Empty reports whether no value is on the axis.
func (c Ranges) Empty() bool {
	return !slices.ContainsFunc(c.Rows, func(r Range) bool { return slices.ContainsFunc(r.Values, c.Axis.has) })
}

// SVG draws the chart.
func (c Ranges) SVG(id string) template.HTML {
	height := float64(8 + rowHeight*len(c.Rows) + 34)
	p := open(id, c.Name, c.Description, height)
	var values []float64
	for _, r := range c.Rows {
		values = append(values, r.Values...)
	}
	x, ticks := scaleOf(c.Axis, values, rowsLeft+6, Width-rowsRight-6).widen(6)
	bottom := height - 34
	ruler(p, x, ticks, 4, bottom)
	p.text(Width-rowsRight, height-4, "end", "axis-label", c.Axis.Label)
	for i, r := range c.Rows {
		top := p.row(i, r.Style, r.Name, r.Note)
		c.row(p, r, x, top+barTop+barHeight/2)
		p.f(`</g>`)
	}
	return p.close()
}

func (c Ranges) row(p *picture, r Range, x scale, y float64) {
	first, last := -1, -1
	for j, v := range r.Values {
		if !c.Axis.has(v) {
			continue
		}
		if first < 0 {
			first = j
		}
		last = j
	}
	if first < 0 {
		return
	}
	p.line(x.at(r.Values[first]), y, x.at(r.Values[last]), y, "span")
	for j, v := range r.Values {
		if !c.Axis.has(v) {
			continue
		}
		tip := r.Name + ", " + c.Marks[j] + ": " + c.Axis.format(v)
		// Marks grow towards the tail. The maximum is hollow, because it is a single
		// event.
		size, class := 2.6+float64(j)*0.8, "quantile pt"
		if c.Marks[j] == "max" {
			size, class = 3.4, "quantile last pt"
		}
		p.f(`<circle class="%s" cx="%s" cy="%s" r="%s" data-tip="%s"><title>%s</title></circle>`, class, n(x.at(v)), n(y), n(size), esc(tip), esc(tip))
	}
}

// Table lists the quantiles.
func (c Ranges) Table() Table {
	t := Table{Header: append([]string{""}, c.Marks...)}
	for _, r := range c.Rows {
		row := []string{r.Name}
		for j := range c.Marks {
			if j < len(r.Values) && c.Axis.has(r.Values[j]) {
				row = append(row, c.Axis.format(r.Values[j]))
			} else {
				row = append(row, "-")
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}
