package profile

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Text writes the table's first n rows; 0 means all rows.
func (t *Table) Text(w io.Writer, n int) error {
	var b strings.Builder
	if t.Before == nil {
		fmt.Fprintf(&b, "%s of %s\n%s\n\n", t.Kind, t.After.Name, t.After.line(t.Unit))
	} else {
		fmt.Fprintf(&b, "%s\nbefore: %s, %s\nafter:  %s, %s\n\n", t.Kind,
			t.Before.Name, t.Before.line(t.Unit), t.After.Name, t.After.line(t.Unit))
	}
	rows := t.Rows
	if n > 0 {
		rows = rows[:min(n, len(rows))]
	}
	chance := t.columns(&b, rows)
	if left := len(t.Rows) - len(rows); left > 0 {
		fmt.Fprintf(&b, "and %d more\n", left)
	}
	if chance {
		b.WriteString("~ within sampling error (3 standard errors)\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (t Total) line(unit string) string {
	line := figure(t.Value) + " " + unit
	if t.Samples > 0 {
		line += fmt.Sprintf(" in %.0f samples", t.Samples)
	}
	return line
}

// columns writes the rows and reports whether the change of any may be chance.
func (t *Table) columns(w io.Writer, rows []Row) (chance bool) {
	// tabwriter aligns cells that end with a tab to the right. The name has no tab.
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	heads := []string{"flat", "cum"}
	if t.By != "" {
		heads = []string{t.Unit} // Flat and cumulative values are equal for labels.
	}
	for _, head := range heads {
		if t.Before == nil {
			fmt.Fprintf(tw, "%s\t", head)
		} else {
			fmt.Fprintf(tw, "%s before\tafter\tchange\t \t", head)
		}
	}
	fmt.Fprintf(tw, "  %s\n", cmp.Or(t.By, "function"))
	for _, r := range rows {
		for _, p := range []Pair{r.Flat, r.Cum}[:len(heads)] {
			if t.Before == nil {
				fmt.Fprintf(tw, "%s\t", figure(p.After))
				continue
			}
			mark := " "
			if p.Chance {
				mark, chance = "~", true
			}
			fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t", figure(p.Before), figure(p.After), signed(p.Change()), mark)
		}
		fmt.Fprintf(tw, "  %s\n", short(r.Name))
	}
	_ = tw.Flush() // It writes into memory.
	return chance
}

// figure writes a value with three significant digits.
func figure(v float64) string {
	switch a := math.Abs(v); {
	case a == 0:
		return "0"
	case a >= 99.95:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 0.01:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}

// signed writes a change with its sign.
func signed(v float64) string {
	if v > 0 {
		return "+" + figure(v)
	}
	return figure(v)
}
