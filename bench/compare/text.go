package compare

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"

	"golang.org/x/perf/benchproc"
	"golang.org/x/perf/benchunit"
)

// geomeanLabel names the last row, as in benchstat.
const geomeanLabel = "geomean"

// shown is a cell as text. Each part is aligned within its column.
type shown struct{ center, spread, marks, delta, test, testMarks string }

// notes numbers the warnings of a table. Equal texts share a number.
type notes struct {
	texts []string
}

// marks returns the superscript numbers of the warnings.
func (n *notes) marks(lists ...[]error) string {
	var out []string
	for _, list := range lists {
		for _, err := range list {
			i := 0
			for i < len(n.texts) && n.texts[i] != err.Error() {
				i++
			}
			if i == len(n.texts) {
				n.texts = append(n.texts, err.Error())
			}
			out = append(out, superscript(i+1))
		}
	}
	return strings.Join(out, " ")
}

func superscript(n int) string {
	const digits = "⁰¹²³⁴⁵⁶⁷⁸⁹"
	runes := []rune(digits)
	var b strings.Builder
	for _, d := range fmt.Sprint(n) {
		b.WriteRune(runes[d-'0'])
	}
	return b.String()
}

// lines returns the rows of a table as text, the geometric means last, and the notes
// behind the marks. A table with one row has no geometric means: they would repeat it.
func (t *Table) lines() (labels []string, rows [][]shown, n notes) {
	class := benchunit.ClassOf(t.Unit)
	for _, row := range t.Rows {
		scale := t.scaler(row)
		line := make([]shown, len(t.Cols))
		for i, col := range t.Cols {
			c := t.Cells[Place{row, col}]
			if c == nil {
				continue
			}
			line[i] = shown{
				center: scale.Format(c.Summary.Center), spread: c.Summary.PctRangeString(),
				marks: n.marks(c.Sample.Warnings, c.Warnings, c.Summary.Warnings),
			}
			if c.Base != nil {
				line[i].delta = c.Test.FormatDelta(c.Base.Summary.Center, c.Summary.Center)
				line[i].test = "(" + c.Test.String() + ")"
				line[i].testMarks = n.marks(c.Test.Warnings)
			}
		}
		labels, rows = append(labels, row.StringValues()), append(rows, line)
	}
	if len(t.Rows) < 2 {
		return labels, rows, n
	}
	line := make([]shown, len(t.Cols))
	for i, s := range t.Sums {
		if !math.IsNaN(s.Mean) {
			line[i].center = benchunit.Scale(s.Mean, class)
		}
		if i > 0 {
			line[i].delta = s.ratio()
			line[i].testMarks = n.marks(s.Warnings)
		} else {
			line[i].marks = n.marks(s.Warnings)
		}
	}
	return append(labels, geomeanLabel), append(rows, line), n
}

// ratio formats the change of the geometric mean.
func (s Sum) ratio() string {
	if math.IsNaN(s.Ratio) {
		return "?"
	}
	return fmt.Sprintf("%+.2f%%", (s.Ratio-1)*100)
}

// scaler returns one unit prefix for all cells of a row.
func (t *Table) scaler(row benchproc.Key) benchunit.Scaler {
	var values []float64
	for _, col := range t.Cols {
		if c := t.Cells[Place{row, col}]; c != nil {
			values = append(values, c.Summary.Center)
		}
	}
	return benchunit.CommonScale(values, benchunit.ClassOf(t.Unit))
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

// Text writes the tables as plain text, then the refused cells.
func (t *Tables) Text(w io.Writer) error {
	var b bytes.Buffer
	t.heads(func(line string) { fmt.Fprintln(&b, line) }, func(tab *Table) { tab.text(&b) })
	t.refusals(func(line string) { fmt.Fprintln(&b, line) })
	_, err := w.Write(b.Bytes())
	return err
}

// refusals calls line for each line about refused cells.
func (t *Tables) refusals(line func(string)) {
	if len(t.Refused) > 0 {
		line("")
		line("Not compared, as the figures may not be believed:")
	}
	for _, r := range t.Refused {
		line("  " + r)
	}
}

// widths are the widths of the parts of one column.
type widths struct{ center, spread, marks, delta, test, testMarks int }

func (t *Table) text(b *bytes.Buffer) {
	labels, rows, n := t.lines()
	label := 0
	for _, l := range labels {
		label = max(label, utf8.RuneCountInString(l))
	}
	parts := make([]widths, len(t.Cols))
	whole := make([]int, len(t.Cols))
	for i := range t.Cols {
		p := &parts[i]
		for _, row := range rows {
			s := row[i]
			p.center, p.spread, p.marks = max(p.center, width(s.center)), max(p.spread, width(s.spread)), max(p.marks, width(s.marks))
			p.delta, p.test, p.testMarks = max(p.delta, width(s.delta)), max(p.test, width(s.test)), max(p.testMarks, width(s.testMarks))
		}
		if i > 0 {
			p.delta = max(p.delta, width("vs base")-1-p.test)
		}
		whole[i] = width(p.join(shown{}))
	}
	head := benchproc.NewKeyHeader(t.Cols)
	fit(head.Top, whole, width(t.Unit)+2)

	line := func(label string, labelWidth int, blocks []string) {
		text := pad(label, labelWidth) + blocks[0]
		for _, block := range blocks[1:] {
			text += block
		}
		b.WriteString(strings.TrimRight(text, " ") + "\n")
	}
	for nodes := head.Top; len(nodes) > 0; {
		var blocks []string
		var next []*benchproc.KeyHeaderNode
		for _, node := range nodes {
			blocks = append(blocks, rule+centre(node.Value, span(node, whole)))
			next = append(next, node.Children...)
		}
		line("", label, append(blocks, rule))
		nodes = next
	}
	var blocks []string
	for i := range t.Cols {
		left := parts[i].left()
		block := centre(t.Unit, left)
		if i > 0 {
			block += "  vs base"
		}
		blocks = append(blocks, rule+pad(block, whole[i]))
	}
	line("", label, append(blocks, rule))
	for j, row := range rows {
		blocks = blocks[:0]
		for i := range t.Cols {
			blocks = append(blocks, strings.Repeat(" ", width(rule))+pad(parts[i].join(row[i]), whole[i]))
		}
		line(labels[j], label, blocks)
	}
	for i, text := range n.texts {
		fmt.Fprintf(b, "%s %s\n", superscript(i+1), text)
	}
}

// rule separates the columns of the header.
const rule = " │ "

// left is the width of the figure with spread and marks.
func (p widths) left() int {
	return p.center + width(" ± ") + p.spread + gap(p.marks)
}

func gap(n int) int {
	if n == 0 {
		return 0
	}
	return n + 1
}

// join aligns the parts of a cell and concatenates them.
func (p widths) join(s shown) string {
	text := lead(s.center, p.center)
	if s.spread != "" {
		text += " ± " + lead(s.spread, p.spread)
	} else {
		text += strings.Repeat(" ", width(" ± ")+p.spread)
	}
	if p.marks > 0 {
		text += " " + pad(s.marks, p.marks)
	}
	if p.delta+p.test+p.testMarks == 0 {
		return text
	}
	text += "  " + lead(s.delta, p.delta) + " " + pad(s.test, p.test)
	if p.testMarks > 0 {
		text += " " + pad(s.testMarks, p.testMarks)
	}
	return text
}

// fit widens columns so that their headings and the unit fit.
func fit(nodes []*benchproc.KeyHeaderNode, whole []int, unit int) {
	for i := range whole {
		whole[i] = max(whole[i], unit)
	}
	for len(nodes) > 0 {
		var next []*benchproc.KeyHeaderNode
		for _, node := range nodes {
			if lack := width(node.Value) - span(node, whole); lack > 0 {
				whole[node.Start+node.Len-1] += lack
			}
			next = append(next, node.Children...)
		}
		nodes = next
	}
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

func centre(s string, to int) string {
	free := max(0, to-width(s))
	return strings.Repeat(" ", free/2) + s + strings.Repeat(" ", free-free/2)
}
