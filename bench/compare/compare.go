// Package compare compares runs: results folders and benchfmt files.
//
//  1. [OpenRun] reads a run.
//  2. [Compare] makes one table of all runs. golang.org/x/perf/benchmath computes medians,
//     intervals and tests, with the figures of golang.org/x/perf/cmd/benchstat.
//  3. The gate ([Gate]) decides whether a new run regressed; see gate.go.
//
// Projections, filters and other forms are benchstat's. bench.txt has the guarantees and the
// verdict of each benchmark as keys, so benchstat separates what is not comparable.
package compare

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/perf/benchmath"
	"golang.org/x/perf/benchunit"

	"watchlab/bench/chart"
	"watchlab/bench/stats"
)

// ErrInput is wrapped by the errors for unreadable runs.
var ErrInput = errors.New("not a benchmark file or results folder")

// Table is the result of [Compare].
type Table struct {
	Columns []string // names of the runs; the first is the base
	Rows    []Row    // by unit, then by benchmark, each in order of appearance
	Refused []string // cells with invalid figures, with their verdicts
	// Warnings are about the runs as wholes.
	Warnings []string
	// CannotTell: there are differences, and all have too few rounds for a test.
	CannotTell bool
}

// Row is one figure of one benchmark.
type Row struct {
	Unit, Name string
	Cells      []*Cell // one per column; nil if the run lacks the figure
}

// Cell is the figure in one run.
type Cell struct {
	Values  []float64 // of all rounds
	Summary benchmath.Summary
	// VsBase compares the cell with the base; nil in the first column, without a base, and for
	// unequal guarantees. Then Unequal names both.
	VsBase  *benchmath.Comparison
	Unequal string
}

// Significant reports whether the figure differs from the base's.
func (c *Cell) Significant() bool { return c.VsBase != nil && c.VsBase.P < c.VsBase.Alpha }

// Compare compares the runs with the first one.
func Compare(runs []*Run) *Table {
	t := &Table{}
	var single, units, names []string
	for _, r := range runs {
		t.Columns = append(t.Columns, r.name)
		if r.single {
			single = append(single, r.name)
		}
		if differs := runs[0].machineDiffers(r); differs != "" {
			t.Warnings = append(t.Warnings, fmt.Sprintf("%s and %s are of different machines: %s", runs[0].name, r.name, differs))
		}
		for _, c := range r.cells {
			if !c.usable() {
				t.Refused = append(t.Refused, fmt.Sprintf("%s: %s: %s", r.name, c.name, c.verdict))
			}
			if !slices.Contains(names, c.name) {
				names = append(names, c.name)
			}
			for _, unit := range c.samples.Units() {
				if !slices.Contains(units, unit) {
					units = append(units, unit)
				}
			}
		}
	}
	if single != nil {
		t.Warnings = append(t.Warnings, oneProcess(single))
	}
	compared, testable := false, false
	for _, unit := range units {
		for _, name := range names {
			row := Row{Unit: unit, Name: name, Cells: make([]*Cell, len(runs))}
			for i, r := range runs {
				c := newCell(unit, runs[0].byName[name], r.byName[name])
				if row.Cells[i] = c; c != nil && c.VsBase != nil {
					compared, testable = true, testable || stats.Testable(c.VsBase.N1, c.VsBase.N2, stats.Alpha)
				}
			}
			if slices.ContainsFunc(row.Cells, func(c *Cell) bool { return c != nil }) {
				t.Rows = append(t.Rows, row)
			}
		}
	}
	t.CannotTell = compared && !testable
	return t
}

// newCell returns a figure and its difference to the base's; nil without the figure.
func newCell(unit string, base, c *gateCell) *Cell {
	if c == nil || !c.usable() || len(c.samples[unit]) == 0 {
		return nil
	}
	sample := newSample(unit, c.samples[unit])
	out := &Cell{Values: sample.Values, Summary: benchmath.AssumeNothing.Summary(sample, stats.Confidence)}
	switch {
	case base == nil || base == c || !base.usable() || len(base.samples[unit]) == 0:
	case base.class != "" && c.class != "" && base.class != c.class:
		out.Unequal = base.class + " / " + c.class
	default:
		out.VsBase = new(benchmath.AssumeNothing.Compare(newSample(unit, base.samples[unit]), sample))
	}
	return out
}

// newSample converts the values to the unit of the output, such as ns to sec.
func newSample(unit string, values []float64) *benchmath.Sample {
	factor, _ := benchunit.Tidy(1, unit)
	tidy := make([]float64, len(values))
	for i, v := range values {
		tidy[i] = v * factor
	}
	return benchmath.NewSample(tidy, &benchmath.Thresholds{CompareAlpha: stats.Alpha})
}

// Text writes the table, the reasons for missing intervals and tests, and the refused cells.
func (t *Table) Text(w io.Writer) error {
	out := chart.NewTable("", []string{"unit", "benchmark"})
	for i, name := range t.Columns {
		out.Figures(name)
		if i > 0 {
			out.Words("vs base")
		}
	}
	var notes []string
	note := func(warnings []error) {
		for _, err := range warnings {
			if !slices.Contains(notes, err.Error()) {
				notes = append(notes, err.Error())
			}
		}
	}
	for _, row := range t.Rows {
		_, unit := benchunit.Tidy(1, row.Unit)
		line := []string{unit, row.Name}
		var centers []float64
		for _, c := range row.Cells {
			if c != nil {
				centers = append(centers, c.Summary.Center)
			}
		}
		scale := benchunit.CommonScale(centers, benchunit.ClassOf(unit))
		for i, c := range row.Cells {
			figure, difference := "", ""
			if c != nil {
				figure, difference = scale.Format(c.Summary.Center)+" ± "+c.Summary.PctRangeString(), c.difference(row.Cells[0])
				note(c.Summary.Warnings)
				if c.VsBase != nil {
					note(c.VsBase.Warnings)
				}
			}
			if line = append(line, figure); i > 0 {
				line = append(line, difference)
			}
		}
		out.Add(line...)
	}
	if t.Refused != nil {
		notes = append(notes, "", "Not compared, as the figures are invalid:\n  "+strings.Join(t.Refused, "\n  "))
	}
	_, err := io.WriteString(w, strings.Join(slices.Concat(out.Lines(), notes), "\n")+"\n")
	return err
}

// difference formats the change in benchstat's form, so that its readers' patterns match. Without a significant
// change the confidence interval, in which the change may be, follows.
func (c *Cell) difference(base *Cell) string {
	switch {
	case c.Unequal != "":
		return "unequal guarantees: " + c.Unequal
	case c.VsBase == nil:
		return ""
	}
	within := ""
	if r := stats.Compare(base.Values, c.Values); 0 < r.Lo && r.Lo < r.Hi && !c.Significant() {
		within = fmt.Sprintf(" %+.1f%% to %+.1f%%", (r.Lo-1)*100, (r.Hi-1)*100)
	}
	return fmt.Sprintf("%s (%s)%s", c.VsBase.FormatDelta(base.Summary.Center, c.Summary.Center), c.VsBase, within)
}

func oneProcess(names []string) string {
	return "one process played all rounds of " + strings.Join(names, " and of ") +
		": no interval contains what differs between processes (run --processes)"
}
