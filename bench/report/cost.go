package report

import (
	"strings"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// unitLockHold is a workload's note in the table of costs: the longest time that a lock
// was held, in nanoseconds.
const unitLockHold = "lock-hold-max-ns"

// costs returns the table of resource use per row, from the throughput cell. It omits
// columns without figures.
func costs(rows []row, varying []string) grid {
	columns := []struct {
		name, unit string
		format     func(float64) string
	}{
		{"CPU/ev", stats.UnitCPUPerOp, nanoseconds},
		{"allocs/ev", stats.UnitAllocsPerOp, number},
		{"B/ev", stats.UnitBytesPerOp, bytesCount},
		{"deltas/ev", stats.UnitDeltasPerEvent, number},
		{"peak heap", stats.UnitPeakHeap, bytesCount},
		{"of it grown", stats.UnitHeapGrowth, bytesCount},
		{"peak RSS", stats.UnitPeakRSS, bytesCount},
		{"GCs", stats.UnitGCs, number},
		{"longest pause", stats.UnitGCPauseMax, nanoseconds},
		{"lock wait/ev", stats.UnitLockWait, nanoseconds},
		{"longest hold", unitLockHold, nanoseconds},
	}
	g := grid{}
	rowNames(&g, varying)
	lines := make([][]string, 0, len(rows))
	var shown []row
	for _, r := range rows {
		if len(r.fast) > 0 && !sameCell(shown, r) {
			shown = append(shown, r)
			lines = append(lines, rowName(r, varying))
		}
	}
	for _, c := range columns {
		texts, has := make([]string, len(shown)), false
		for i, r := range shown {
			from := r.fast
			if c.unit == unitLockHold {
				from = r.slow // The figure comes from the latency cell.
			}
			texts[i] = median(from, c.unit, c.format)
			has = has || texts[i] != none
		}
		if !has {
			continue
		}
		g.column(c.name, false)
		for i := range lines {
			lines[i] = append(lines[i], texts[i])
		}
	}
	g.rows = lines
	return g
}

// sameCell reports whether an earlier row has the same throughput cell. Rows of several
// rates share one.
func sameCell(shown []row, r row) bool {
	for _, s := range shown {
		if s.throughput == r.throughput {
			return true
		}
	}
	return false
}

// rowNames adds the columns that identify a row; rowName returns their values.
func rowNames(g *grid, varying []string) {
	g.column("variant", true)
	for _, key := range varying {
		g.column(key, true)
	}
	g.labels = len(varying)
}

func rowName(r row, varying []string) []string {
	line := []string{r.variant()}
	for _, key := range varying {
		line = append(line, orNone(r.throughput.Label(key)))
	}
	return line
}

// noted returns the table of the workloads' notes and the processor's counters. Each
// cell with notes has one line with the medians over its rounds.
func noted(rows []row, varying []string) grid {
	g := grid{}
	rowNames(&g, varying)
	g.column("at rate", false)
	g.column("figures", true)
	told := map[*lab.CellResult]bool{}
	for _, r := range rows {
		if r.broken() {
			continue
		}
		for _, c := range r.cells() {
			if told[c] || len(c.Rounds) == 0 {
				continue
			}
			told[c] = true
			if text := notesOf(c); text != "" {
				g.rows = append(g.rows, append(rowName(r, varying), rateOf(c), text))
			}
		}
	}
	return g
}

// notesOf returns a cell's notes and counters in order of first appearance. It omits
// the notes about a cluster (see cluster.go).
func notesOf(c *lab.CellResult) string {
	values := map[string][]float64{}
	var units []string
	for _, round := range c.Rounds {
		for _, list := range [][]cell.Note{round.Result.Notes, round.Result.Counters} {
			for _, n := range list {
				if _, ok := values[n.Unit]; !ok {
					units = append(units, n.Unit)
				}
				values[n.Unit] = append(values[n.Unit], n.Value)
			}
		}
	}
	var out []string
	for _, u := range units {
		if u != unitLockHold && !strings.HasPrefix(u, clusterNotes) {
			out = append(out, noteOf(u, stats.Median(values[u])))
		}
	}
	return strings.Join(out, ", ")
}

// noteOf writes a unit and a figure, times and bytes with a suitable prefix.
func noteOf(unit string, v float64) string {
	name, per, ratio := strings.Cut(unit, "/")
	stem, last := "", name
	if i := strings.LastIndexByte(name, '-'); i >= 0 {
		stem, last = name[:i], name[i+1:]
	}
	if ratio {
		per = "/" + per
	}
	switch {
	case v < 0:
		// Built-in notes are never negative. Others are shown unchanged.
		return unit + " " + trimmed(v)
	case last == "ns":
		return strings.TrimSpace(stem + " " + nanoseconds(v) + per)
	case last == "B":
		return strings.TrimSpace(stem + " " + bytesCount(v) + "B" + per)
	}
	return name + per + " " + number(v)
}
