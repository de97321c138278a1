package chart

import (
	"html/template"
	"strconv"
)

// Shares shows wholes and their parts. Every whole has the full width of the chart; its
// sum is written at the right.
type Shares struct {
	// Name and Description are the accessible name and description of the picture.
	Name, Description string
	// Unit names the figures; Format writes one.
	Unit   string
	Format func(float64) string
	// Parts name the parts of each whole, in order.
	Parts []string
	// Rows are the wholes, from top to bottom.
	Rows []Share
}

// Share is one whole.
type Share struct {
	// Name is written above the whole. Style is that of its series.
	Name  string
	Style Style
	// Values are the parts in the order of Parts; 0 for a missing part.
	Values []float64
	// Note is written at the right.
	Note string
}

func (s Share) sum() float64 {
	sum := 0.0
	for _, v := range s.Values {
		sum += v
	}
	return sum
}

// Empty reports whether all values are 0.
func (c Shares) Empty() bool {
	for _, r := range c.Rows {
		if r.sum() > 0 {
			return false
		}
	}
	return true
}

// SVG draws the chart.
func (c Shares) SVG(id string) template.HTML {
	height := float64(8 + rowHeight*len(c.Rows))
	p := open(id, c.Name, c.Description, height)
	for i, r := range c.Rows {
		top := float64(4 + rowHeight*i)
		p.f(`<g class="row series %s" data-series="%s">`, r.Style.class(), esc(r.Name))
		p.text(rowsLeft, top+12, "start", "row-label", shorten(r.Name, 34))
		p.text(Width-rowsRight, top+12, "end", "row-note", r.Note)
		c.row(p, r, top+barTop)
		p.f(`</g>`)
	}
	return p.close()
}

func (c Shares) row(p *picture, r Share, y float64) {
	sum := r.sum()
	if sum <= 0 {
		return
	}
	at := float64(rowsLeft)
	for j, v := range r.Values {
		if v <= 0 {
			continue
		}
		wide := v / sum * (Width - rowsLeft - rowsRight)
		tip := r.Name + ", " + c.Parts[j] + ": " + c.Format(v) + ", " + sharePercent(v/sum)
		p.f(`<rect class="part s%d pt" x="%s" y="%s" width="%s" height="%d" data-tip="%s"><title>%s</title></rect>`,
			c.slot(j), n(at), n(y), n(max(wide-1, 0.5)), barHeight, esc(tip), esc(tip))
		at += wide
	}
}

// slot returns the slot of a part's colour. Slots count from the end, so that parts
// differ from the first series.
func (c Shares) slot(j int) int { return Slots - 1 - j%Slots }

// Part is an entry of the legend.
type Part struct {
	// Name of the part.
	Name string
	// Slot of its colour.
	Slot int
}

// Keys returns the legend of the parts. It does not switch series.
func (c Shares) Keys() []Part {
	var out []Part
	for j, name := range c.Parts {
		out = append(out, Part{name, c.slot(j)})
	}
	return out
}

func sharePercent(v float64) string {
	return strconv.FormatFloat(v*100, 'f', 1, 64) + " %"
}

// Table lists the parts of each whole.
func (c Shares) Table() Table {
	t := Table{Header: append([]string{""}, c.Parts...)}
	for i := range c.Parts {
		t.Header[i+1] += ", " + c.Unit
	}
	t.Header = append(t.Header, "sum")
	for _, r := range c.Rows {
		row := []string{r.Name}
		for j := range c.Parts {
			cell := "-"
			if j < len(r.Values) && r.Values[j] > 0 {
				cell = c.Format(r.Values[j]) + " (" + sharePercent(r.Values[j]/r.sum()) + ")"
			}
			row = append(row, cell)
		}
		t.Rows = append(t.Rows, append(row, c.Format(r.sum())))
	}
	return t
}
