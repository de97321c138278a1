package compare

import (
	"encoding/csv"
	"fmt"
	"io"
	"strings"
)

// CSV writes the tables as comma-separated values in benchstat's form, with unrounded
// figures. Warnings and refused cells go to the warnings writer, one line each. Each
// warning starts with its cell in spreadsheet notation.
func (t *Tables) CSV(w, warnings io.Writer) error {
	s := sheet{Writer: csv.NewWriter(w), warnings: warnings}
	t.heads(func(line string) { s.add([]string{line}) }, s.table)
	if lines := t.refusals(); len(lines) > 0 {
		fmt.Fprintln(warnings, strings.Join(lines[1:], "\n"))
	}
	s.Flush()
	return s.Error()
}

// sheet writes rows and counts them.
type sheet struct {
	*csv.Writer
	warnings io.Writer
	rows     int
}

func (s *sheet) add(cells []string) {
	s.rows++
	_ = s.Write(cells) // csv.Writer keeps its error.
}

// warn writes the warnings of a cell in the next row. Columns are A to Z, AA, AB …
func (s *sheet) warn(column int, warnings []error) {
	letters := ""
	for n := column + 1; n > 0; n = (n - 1) / 26 {
		letters = string(rune('A'+(n-1)%26)) + letters
	}
	for _, err := range warnings {
		fmt.Fprintf(s.warnings, "%s%d: %s\n", letters, s.rows+1, strings.ReplaceAll(err.Error(), "\n", " "))
	}
}

// table writes a table. The first column has a figure and an interval; the others also
// have the difference and its test.
func (s *sheet) table(t *Table) {
	start := func(col int) int { return max(1, 4*col-1) } // field of a column
	blank := func() []string { return make([]string, start(len(t.cols))) }
	for _, f := range t.cols[0].Projection().FlattenedFields() {
		line := blank()
		for i, col := range t.cols {
			line[start(i)] = col.Get(f)
		}
		s.add(line)
	}
	line := blank()
	for i := range t.cols {
		copy(line[start(i):], []string{t.Unit, "CI", "vs base", "P"})
	}
	s.add(line)
	for _, row := range t.Rows {
		// Like benchstat, omit empty fields after the last figure.
		line := []string{row.Name}
		for i, c := range row.Cells {
			if c == nil {
				continue
			}
			line = append(line, make([]string, max(0, start(i)-len(line)))...)
			s.warn(len(line), c.notes)
			line = append(line, fmt.Sprint(c.Center), c.summary.PctRangeString())
			if d := c.VsBase; d != nil {
				s.warn(len(line), d.test.Warnings)
				line = append(line, d.delta, d.test.String())
			}
		}
		s.add(line)
	}
	line = blank()
	line[0] = geomeanLabel
	for i, sum := range t.Geomean {
		s.warn(start(i), sum.notes)
		if sum.Mean != nil {
			line[start(i)] = fmt.Sprint(*sum.Mean)
		}
		if i > 0 {
			line[start(i)+2] = sum.change()
		}
	}
	s.add(line)
}
