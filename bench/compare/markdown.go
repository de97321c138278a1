package compare

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

// Markdown writes the tables with pipes. The figures are those of [Tables.Text]. A cell
// without a significant difference also shows the smallest detectable change.
func (t *Tables) Markdown(w io.Writer) error {
	var b bytes.Buffer
	keys := false
	t.heads(func(line string) {
		if line != "" {
			fmt.Fprintf(&b, "%s  \n", escape(line))
			keys = true
		}
	}, func(tab *Table) {
		if keys {
			b.WriteString("\n")
		}
		keys = false
		tab.markdown(&b)
		b.WriteString("\n")
	})
	t.refusals(func(line string) { fmt.Fprintln(&b, escape(line)) })
	_, err := w.Write(b.Bytes())
	return err
}

func (t *Table) markdown(b *bytes.Buffer) {
	labels, rows, n := t.lines()
	head, under := "| |", "|:---|"
	for i, col := range t.Cols {
		head += " " + escape(col.StringValues()) + ", " + escape(t.Unit) + " |"
		under += "---:|"
		if i > 0 {
			head += " vs base |"
			under += "---:|"
		}
	}
	fmt.Fprintf(b, "%s\n%s\n", head, under)
	for j, row := range rows {
		fmt.Fprintf(b, "| %s |", escape(labels[j]))
		for i, s := range row {
			figure := strings.TrimSpace(s.center + spread(s.spread) + " " + s.marks)
			fmt.Fprintf(b, " %s |", escape(figure))
			if i > 0 {
				difference := strings.Join(strings.Fields(s.delta+" "+s.test+" "+s.testMarks), " ")
				fmt.Fprintf(b, " %s |", escape(difference+t.seen(j, i)))
			}
		}
		b.WriteString("\n")
	}
	if len(n.texts) > 0 {
		b.WriteString("\n")
	}
	for i, text := range n.texts {
		fmt.Fprintf(b, "- %s %s\n", superscript(i+1), escape(text))
	}
}

func spread(s string) string {
	if s == "" {
		return ""
	}
	return " ± " + s
}

// seen returns the smallest detectable change of a cell without a significant
// difference.
func (t *Table) seen(row, col int) string {
	if row >= len(t.Rows) {
		return ""
	}
	c := t.Cells[Place{t.Rows[row], t.Cols[col]}]
	if c == nil || c.Base == nil || c.Test.P < c.Test.Alpha || c.MinDetectable <= 0 {
		return ""
	}
	return fmt.Sprintf(", would see %.1f%%", c.MinDetectable*100)
}

func escape(s string) string {
	return strings.NewReplacer("|", `\|`, "<", `\<`, "*", `\*`, "_", `\_`, "`", "\\`", "~", `\~`).Replace(s)
}
