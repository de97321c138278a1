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
	{"CPU", stats.UnitCPUWithGC, false},
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

// stormsOf returns the figures of each storm, in the order in which they were played.
func stormsOf(steps []step) (storms [][]figure) {
	for _, f := range steps[0].figures {
		if n := len(storms); n > 0 && storms[n-1][0].storm == f.storm {
			storms[n-1] = append(storms[n-1], f)
		} else {
			storms = append(storms, []figure{f})
		}
	}
	return storms
}

// writeTable writes the steps as Markdown, a table for each storm: ratios with intervals, in bold where significant.
func writeTable(w io.Writer, steps []step) error {
	var b strings.Builder
	for i, figures := range stormsOf(steps) {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "| %s, from | to |", figures[0].storm)
		for _, f := range figures {
			fmt.Fprintf(&b, " %s |", f.metric)
		}
		b.WriteString("\n|---|---|" + strings.Repeat("---:|", len(figures)) + "\n")
		for _, s := range steps {
			fmt.Fprintf(&b, "| %s | %s |", s.from, s.to)
			for _, f := range figures {
				b.WriteString(" " + s.effect(f) + " |")
			}
			b.WriteString("\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (s step) effect(f figure) string {
	c, ok := s.effects[f]
	switch {
	case !ok:
		return "–"
	case c.Significant:
		return fmt.Sprintf("**%.2f×** (%.2f–%.2f)", c.Ratio, c.Lo, c.Hi)
	}
	return fmt.Sprintf("%.2f× (%.2f–%.2f)", c.Ratio, c.Lo, c.Hi)
}

// Sizes of the picture in pixels.
const (
	titleHeight, footHeight                      = 34, 34
	nameWidth, cellWidth, cellHeight, headHeight = 370, 90, 24, 44
)

// writePicture writes the steps as SVG, storm below storm: a row for each step, a column for each metric.
func writePicture(w io.Writer, steps []step) error {
	storms := stormsOf(steps)
	blockHeight := headHeight + cellHeight*len(steps)
	width, height := nameWidth+cellWidth*len(metrics)+10, titleHeight+blockHeight*len(storms)+footHeight
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", width, height)
	text := func(x, y int, attributes, content string) {
		fmt.Fprintf(&b, `<text x="%d" y="%d" %s>%s</text>`+"\n", x, y, attributes, html.EscapeString(content))
	}
	text(10, 20, `font-size="15" font-weight="bold"`, "What each change of client-go's informers gained and lost: after over before, less is better")
	for i, figures := range storms {
		top := titleHeight + i*blockHeight
		text(10, top+32, `font-size="14" font-weight="bold"`, figures[0].storm)
		for j, f := range figures {
			text(nameWidth+j*cellWidth+cellWidth/2, top+32, `text-anchor="middle"`, f.metric)
		}
		for k, s := range steps {
			y := top + headHeight + k*cellHeight
			text(10, y+16, "", s.from+" → "+strings.TrimPrefix(s.to, "clientgo@"))
			for j, f := range figures {
				c, ok := s.effects[f]
				fill, ratio := "#f4f4f4", "–"
				if ok {
					fill, ratio = colour(c), fmt.Sprintf("%.2f×", c.Ratio)
				}
				x := nameWidth + j*cellWidth
				fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" fill="%s"/>`+"\n", x+1, y+1, cellWidth-2, cellHeight-2, fill)
				text(x+cellWidth/2, y+16, `text-anchor="middle"`, ratio)
			}
		}
	}
	text(10, height-12, `fill="#555"`, "blue: less, orange: more, pale: by less than 10 %, grey: no significant difference. p99 of paced rounds, all else of unpaced ones.")
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// colour is grey for no significant difference, and pale for one below 10 %. Blue and orange differ for
// people who do not tell red from green.
func colour(c stats.Comparison) string {
	switch {
	case !c.Significant:
		return "#eeeeee"
	case c.Ratio < 0.9:
		return "#7fb8e6"
	case c.Ratio < 1:
		return "#d3e6f5"
	case c.Ratio <= 1.1:
		return "#fbe3cd"
	}
	return "#f2a65a"
}
