package compare

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"strings"
)

// CSV writes the tables as comma-separated values in benchstat's form, with unrounded
// figures. Warnings and refused cells go to the warnings writer, one line each. Each
// warning starts with its cell in spreadsheet notation.
func (t *Tables) CSV(w, warnings io.Writer) error {
	out := sheet{csv: csv.NewWriter(w), warnings: warnings}
	t.heads(func(line string) { out.write([]string{line}) }, out.table)
	t.refusals(func(line string) {
		if line != "" {
			fmt.Fprintln(warnings, line)
		}
	})
	out.csv.Flush()
	return out.csv.Error()
}

// sheet writes rows and counts them.
type sheet struct {
	csv      *csv.Writer
	warnings io.Writer
	rows     int
}

func (s *sheet) write(cells []string) {
	s.rows++
	// csv.Writer keeps its error; CSV returns it.
	_ = s.csv.Write(cells)
}

// warn writes the warnings of the next cell in the row.
func (s *sheet) warn(column int, lists ...[]error) {
	for _, list := range lists {
		for _, err := range list {
			fmt.Fprintf(s.warnings, "%s%d: %s\n", letters(column), s.rows+1, strings.ReplaceAll(err.Error(), "\n", " "))
		}
	}
}

// letters names a column: A to Z, AA, AB …
func letters(column int) string {
	name := ""
	for n := column + 1; n > 0; n = (n - 1) / 26 {
		name = string(rune('A'+(n-1)%26)) + name
	}
	return name
}

// start is the first field of a column. The first column has a figure and an interval;
// the others also have the difference and its test.
func start(column int) int { return max(1, 4*column-1) }

func (s *sheet) table(t *Table) {
	end := start(len(t.Cols))
	for _, f := range t.Cols[0].Projection().FlattenedFields() {
		line := make([]string, end)
		for i, col := range t.Cols {
			line[start(i)] = col.Get(f)
		}
		s.write(line)
	}
	line := make([]string, end)
	for i := range t.Cols {
		at := start(i)
		line[at], line[at+1] = t.Unit, "CI"
		if i > 0 {
			line[at+2], line[at+3] = "vs base", "P"
		}
	}
	s.write(line)
	for _, row := range t.Rows {
		// Like benchstat, omit empty fields after the last figure.
		line := []string{row.StringValues()}
		for i, col := range t.Cols {
			c := t.Cells[Place{row, col}]
			if c == nil {
				continue
			}
			for len(line) < start(i) {
				line = append(line, "")
			}
			s.warn(len(line), c.Sample.Warnings, c.Warnings, c.Summary.Warnings)
			line = append(line, fmt.Sprint(c.Summary.Center), c.Summary.PctRangeString())
			if c.Base != nil {
				s.warn(len(line), c.Test.Warnings)
				line = append(line, c.Test.FormatDelta(c.Base.Summary.Center, c.Summary.Center), c.Test.String())
			}
		}
		s.write(line)
	}
	line = make([]string, end)
	line[0] = geomeanLabel
	for i, sum := range t.Sums {
		at := start(i)
		s.warn(at, sum.Warnings)
		if !math.IsNaN(sum.Mean) {
			line[at] = fmt.Sprint(sum.Mean)
		}
		if i > 0 {
			line[at+2] = sum.ratio()
		}
	}
	s.write(line)
}
