package compare

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/perf/benchproc"
	"golang.org/x/perf/benchunit"

	"watchlab/bench/lab"
)

// geomeanLabel names the last row, as in benchstat.
const geomeanLabel = "geomean"

// parts is a cell as text. Each part is aligned within its column.
type parts [6]string

// The indexes of [parts]. Marks are the numbers of notes.
const (
	center = iota
	spread
	marks
	delta
	test
	testMarks
)

// layout is a table as text: the geometric means are the last row. A table with one row
// has no geometric means: they would repeat it.
type layout struct {
	labels []string
	rows   [][]parts
	notes  []string // behind the marks
}

// mark returns the superscript numbers of the warnings. Equal texts share a number.
func (l *layout) mark(warnings []error) string {
	var out []string
	for _, err := range warnings {
		i := slices.Index(l.notes, err.Error())
		if i < 0 {
			i = len(l.notes)
			l.notes = append(l.notes, err.Error())
		}
		out = append(out, superscript(i+1))
	}
	return strings.Join(out, " ")
}

func superscript(n int) string {
	digits := []rune("⁰¹²³⁴⁵⁶⁷⁸⁹")
	return strings.Map(func(d rune) rune { return digits[d-'0'] }, fmt.Sprint(n))
}

func (t *Table) layout() *layout {
	l := &layout{}
	class := benchunit.ClassOf(t.Unit)
	for _, row := range t.Rows {
		var values []float64
		for _, c := range row.Cells {
			if c != nil {
				values = append(values, c.Center)
			}
		}
		scale := benchunit.CommonScale(values, class)
		line := make([]parts, len(row.Cells))
		for i, c := range row.Cells {
			if c == nil {
				continue
			}
			line[i] = parts{center: scale.Format(c.Center), spread: c.summary.PctRangeString(), marks: l.mark(c.notes)}
			if d := c.VsBase; d != nil {
				line[i][delta], line[i][test], line[i][testMarks] = d.delta, "("+d.test.String()+")", l.mark(d.test.Warnings)
			}
		}
		l.labels, l.rows = append(l.labels, row.Name), append(l.rows, line)
	}
	if len(t.Rows) < 2 {
		return l
	}
	line := make([]parts, len(t.Geomean))
	for i, s := range t.Geomean {
		if s.Mean != nil {
			line[i][center] = benchunit.Scale(*s.Mean, class)
		}
		if i > 0 {
			line[i][delta], line[i][testMarks] = s.change(), l.mark(s.notes)
		} else {
			line[i][marks] = l.mark(s.notes)
		}
	}
	l.labels, l.rows = append(l.labels, geomeanLabel), append(l.rows, line)
	return l
}

// change formats the change of the geometric mean.
func (s Sum) change() string {
	if s.Change == nil {
		return "?"
	}
	return fmt.Sprintf("%+.2f%%", *s.Change*100)
}

// heads calls head with each heading line, then table. Headings are the changed keys;
// an empty line separates the tables.
func (t *Tables) heads(head func(string), table func(*Table)) {
	before := map[string]string{}
	for i, tab := range t.Tables {
		if i > 0 {
			head("")
		}
		for _, kv := range tab.Keys {
			if had, ok := before[kv.Key]; !ok || had != kv.Value {
				head(kv.Key + ": " + kv.Value)
			}
			before[kv.Key] = kv.Value
		}
		table(tab)
	}
}

// refusals returns the lines about refused cells, after an empty one.
func (t *Tables) refusals() []string {
	if len(t.Refused) == 0 {
		return nil
	}
	lines := []string{"", "Not compared, as the figures are invalid:"}
	for _, r := range t.Refused {
		lines = append(lines, "  "+r)
	}
	return lines
}

// JSON writes the tables with all their values.
func (t *Tables) JSON(w io.Writer) error { return encode(w, t) }

func encode(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// Text writes the tables as plain text, then the refused cells.
func (t *Tables) Text(w io.Writer) error {
	var b bytes.Buffer
	t.heads(func(line string) { fmt.Fprintln(&b, line) }, func(tab *Table) { tab.text(&b) })
	for _, line := range t.refusals() {
		fmt.Fprintln(&b, line)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// rule separates the columns of the header.
const rule = " │ "

func (t *Table) text(b *bytes.Buffer) {
	l := t.layout()
	label := 0
	for _, s := range l.labels {
		label = max(label, width(s))
	}
	columns := make([]widths, len(t.cols))
	whole := make([]int, len(t.cols))
	for i := range columns {
		w := &columns[i]
		for _, row := range l.rows {
			for j, s := range row[i] {
				w[j] = max(w[j], width(s))
			}
		}
		if i > 0 {
			w[delta] = max(w[delta], width("vs base")-1-w[test])
		}
		whole[i] = max(width(w.join(parts{})), width(t.Unit)+2)
	}
	line := func(label string, blocks []string) {
		b.WriteString(strings.TrimRight(label+strings.Join(blocks, ""), " ") + "\n")
	}
	head := benchproc.NewKeyHeader(t.cols)
	fit(head.Top, whole)
	for nodes := head.Top; len(nodes) > 0; nodes = children(nodes) {
		var blocks []string
		for _, node := range nodes {
			blocks = append(blocks, rule+centre(node.Value, span(node, whole)))
		}
		line(pad("", label), append(blocks, rule))
	}
	var blocks []string
	for i, w := range columns {
		figure := widths{center: w[center], spread: w[spread], marks: w[marks]}
		block := centre(t.Unit, width(figure.join(parts{})))
		if i > 0 {
			block += "  vs base"
		}
		blocks = append(blocks, rule+pad(block, whole[i]))
	}
	line(pad("", label), append(blocks, rule))
	for j, row := range l.rows {
		blocks = blocks[:0]
		for i, w := range columns {
			blocks = append(blocks, pad("", width(rule))+pad(w.join(row[i]), whole[i]))
		}
		line(pad(l.labels[j], label), blocks)
	}
	for i, text := range l.notes {
		fmt.Fprintf(b, "%s %s\n", superscript(i+1), text)
	}
}

// widths are the widths of the parts of one column.
type widths [6]int

// join aligns the parts of a cell and concatenates them.
func (w widths) join(s parts) string {
	text := lead(s[center], w[center])
	if s[spread] != "" {
		text += " ± " + lead(s[spread], w[spread])
	}
	text = pad(text, w[center]+width(" ± ")+w[spread])
	if w[marks] > 0 {
		text += " " + pad(s[marks], w[marks])
	}
	if w[delta]+w[test]+w[testMarks] == 0 {
		return text
	}
	text += "  " + lead(s[delta], w[delta]) + " " + pad(s[test], w[test])
	if w[testMarks] > 0 {
		text += " " + pad(s[testMarks], w[testMarks])
	}
	return text
}

// fit widens columns so that their headings fit.
func fit(nodes []*benchproc.KeyHeaderNode, whole []int) {
	for ; len(nodes) > 0; nodes = children(nodes) {
		for _, node := range nodes {
			if lack := width(node.Value) - span(node, whole); lack > 0 {
				whole[node.Start+node.Len-1] += lack
			}
		}
	}
}

func children(nodes []*benchproc.KeyHeaderNode) (next []*benchproc.KeyHeaderNode) {
	for _, node := range nodes {
		next = append(next, node.Children...)
	}
	return next
}

// span is the total width of the columns below a heading.
func span(node *benchproc.KeyHeaderNode, whole []int) int {
	sum := width(rule) * (node.Len - 1)
	for _, w := range whole[node.Start : node.Start+node.Len] {
		sum += w
	}
	return sum
}

func width(s string) int { return utf8.RuneCountInString(s) }

func pad(s string, to int) string { return s + strings.Repeat(" ", max(0, to-width(s))) }

func lead(s string, to int) string { return strings.Repeat(" ", max(0, to-width(s))) + s }

func centre(s string, to int) string { return pad(lead(s, width(s)+max(0, to-width(s))/2), to) }

// Markdown writes the tables with pipes. The figures are those of [Tables.Text]. A cell
// without a significant difference also shows the smallest detectable change.
func (t *Tables) Markdown(w io.Writer) error {
	var b bytes.Buffer
	keys := false
	t.heads(func(line string) {
		if line != "" {
			fmt.Fprintf(&b, "%s  \n", lab.Escape(line))
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
	for _, line := range t.refusals() {
		fmt.Fprintln(&b, lab.Escape(line))
	}
	_, err := w.Write(b.Bytes())
	return err
}

func (t *Table) markdown(b *bytes.Buffer) {
	l := t.layout()
	head, under := "| |", "|:---|"
	for i, col := range t.Columns {
		head += " " + lab.Escape(col) + ", " + lab.Escape(t.Unit) + " |"
		under += "---:|"
		if i > 0 {
			head += " vs base |"
			under += "---:|"
		}
	}
	fmt.Fprintf(b, "%s\n%s\n", head, under)
	for j, row := range l.rows {
		fmt.Fprintf(b, "| %s |", lab.Escape(l.labels[j]))
		for i, s := range row {
			figure := s[center]
			if s[spread] != "" {
				figure += " ± " + s[spread]
			}
			fmt.Fprintf(b, " %s |", lab.Escape(strings.TrimSpace(figure+" "+s[marks])))
			if i > 0 {
				difference := strings.Join(strings.Fields(strings.Join(s[delta:], " ")), " ")
				fmt.Fprintf(b, " %s |", lab.Escape(difference+t.wouldSee(j, i)))
			}
		}
		b.WriteString("\n")
	}
	if len(l.notes) > 0 {
		b.WriteString("\n")
	}
	for i, text := range l.notes {
		fmt.Fprintf(b, "- %s %s\n", superscript(i+1), lab.Escape(text))
	}
}

// wouldSee returns the smallest detectable change of a cell without a significant difference.
func (t *Table) wouldSee(row, col int) string {
	if row >= len(t.Rows) || t.Rows[row].Cells[col] == nil {
		return ""
	}
	d := t.Rows[row].Cells[col].VsBase
	if d == nil || d.P < d.test.Alpha || d.MinDetectable <= 0 {
		return ""
	}
	return fmt.Sprintf(", would see %.1f%% in normal noise", d.MinDetectable*100)
}
