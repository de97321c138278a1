package main

import (
	"fmt"
	"html"
	"io"
	"strings"

	"watchlab/bench/clientgo/round"
	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// metrics are the compared figures. Less is better.
var metrics = []struct {
	name, unit string
	paced      bool
}{
	{"CPU", stats.UnitPricedCPU, false},
	{"allocations", stats.UnitAllocsPerOp, false},
	{"bytes", stats.UnitBytesPerOp, false},
	{"peak heap", stats.UnitHeapGrowth, false},
	{"p99", stats.UnitP99, true},
}

// figure is one metric under one storm: a column.
type figure struct{ storm, metric string }

// step is a change from one baseline to the next with its effects: a row.
type step struct {
	from, to string
	effects  map[figure]stats.Comparison // without those that were not measured
	figures  []figure
}

// stepsOf compares each baseline with the one before, the newest client-go with the oldest, and
// the two cells of the A/A pairs.
func stepsOf(o *lab.Outcome, baselines []baseline) (steps []step) {
	newestOf := baselines[0]
	for i, b := range baselines {
		if i > 0 {
			steps = append(steps, compareAll(o, baselines[i-1].String(), b.String(), false))
		}
		if b.minor != ours {
			newestOf = b
		}
	}
	first := baselines[0].String()
	return append(steps, compareAll(o, first, newestOf.String(), false), compareAll(o, first, first, true))
}

func compareAll(o *lab.Outcome, from, to string, again bool) step {
	s := step{from: from, to: to, effects: map[figure]stats.Comparison{}}
	if again {
		s.to = "the same again (A/A)"
	}
	for _, c := range o.Comparisons {
		storm := c.Cells[0].Label("storm")
		for _, m := range metrics {
			f := figure{storm, m.name}
			rate, played := rateOf(c, m.paced)
			if !played {
				continue
			}
			s.figures = append(s.figures, f)
			base, values := samples(c, from, rate, false)[m.unit], samples(c, to, rate, again)[m.unit]
			if len(base) > 0 && len(values) > 0 {
				s.effects[f] = stats.Compare(base, values)
			}
		}
	}
	return s
}

// rateOf returns the rate of a comparison's paced or unpaced cells.
func rateOf(c lab.ComparisonResult, paced bool) (rate string, ok bool) {
	for _, cl := range c.Cells {
		if _, is := cl.Rate(); is == paced {
			return cl.Label("rate"), true
		}
	}
	return "", false
}

// samples returns the figures of a baseline's cell; nil if it is invalid or was not played.
func samples(c lab.ComparisonResult, name, rate string, again bool) stats.Samples {
	label := strings.ReplaceAll(name, "/", ":")
	for _, cl := range c.Cells {
		impl := cl.Label("impl")
		if again == (cl.Repeats != "") && cl.Label("rate") == rate && (impl == label || again && strings.HasPrefix(impl, label+"-")) {
			return cl.Samples(round.Handled)
		}
	}
	return nil
}

// writeTable writes the steps as Markdown: ratios with intervals, in bold where significant.
func writeTable(w io.Writer, steps []step) error {
	var b strings.Builder
	b.WriteString("| from | to |")
	for _, f := range steps[0].figures {
		fmt.Fprintf(&b, " %s, %s |", f.storm, f.metric)
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---|", len(steps[0].figures)) + "\n")
	for _, s := range steps {
		fmt.Fprintf(&b, "| %s | %s |", s.from, s.to)
		for _, f := range s.figures {
			switch c, ok := s.effects[f]; {
			case !ok:
				b.WriteString(" – |")
			case c.Significant:
				fmt.Fprintf(&b, " **%.2f×** (%.2f–%.2f) |", c.Ratio, c.Lo, c.Hi)
			default:
				fmt.Fprintf(&b, " %.2f× (%.2f–%.2f) |", c.Ratio, c.Lo, c.Hi)
			}
		}
		b.WriteString("\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Sizes of the picture in pixels.
const (
	nameWidth, cellWidth, cellHeight, headHeight = 470, 78, 26, 76
)

// writePicture writes the steps as SVG: a row for each step, a column for each figure.
func writePicture(w io.Writer, steps []step) error {
	figures := steps[0].figures
	width, height := nameWidth+cellWidth*len(figures)+10, headHeight+cellHeight*len(steps)+34
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", width, height)
	text := func(x, y int, attributes, content string) {
		fmt.Fprintf(&b, `<text x="%d" y="%d" %s>%s</text>`+"\n", x, y, attributes, html.EscapeString(content))
	}
	text(10, 20, `font-size="15" font-weight="bold"`, "What each change of client-go's informers gained and lost: after over before, less is better")
	for i, f := range figures {
		x := nameWidth + i*cellWidth
		if i == 0 || figures[i-1].storm != f.storm {
			text(x+4, 46, `font-weight="bold"`, f.storm)
		}
		text(x+cellWidth/2, 66, `text-anchor="middle"`, f.metric)
	}
	for i, s := range steps {
		y := headHeight + i*cellHeight
		text(10, y+17, "", s.from+" → "+strings.TrimPrefix(s.to, "clientgo@"))
		for j, f := range figures {
			c, ok := s.effects[f]
			fill, ratio := "#f4f4f4", "–"
			if ok {
				fill, ratio = colour(c), fmt.Sprintf("%.2f×", c.Ratio)
			}
			x := nameWidth + j*cellWidth
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" fill="%s"/>`+"\n", x+1, y+1, cellWidth-2, cellHeight-2, fill)
			text(x+cellWidth/2, y+17, `text-anchor="middle"`, ratio)
		}
	}
	text(10, height-10, `fill="#555"`, "green: less, red: more, pale: by less than 10 %, grey: no significant difference. CPU, allocations, allocated bytes and peak heap of unpaced rounds, p99 of paced ones.")
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// colour is grey for no significant difference, and pale for one below 10 %.
func colour(c stats.Comparison) string {
	switch {
	case !c.Significant:
		return "#eeeeee"
	case c.Ratio < 0.9:
		return "#8fd19e"
	case c.Ratio < 1:
		return "#d3eeda"
	case c.Ratio <= 1.1:
		return "#f7d6d6"
	}
	return "#ee9a9a"
}
