package main

import (
	"fmt"
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
