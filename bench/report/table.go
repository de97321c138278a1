package report

import (
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"watchlab/bench/lab"
)

// table is a table without layout. Text, Markdown and HTML show the same tables.
type table struct {
	Title   string
	Columns []column
	Rows    [][]string
	Legend  []string // remarks below the table
	// labels is the number of label columns after the first. They distinguish rows with
	// equal names.
	labels int
}

// column is the head of a column. Words are aligned left, figures right.
type column struct {
	Name  string
	Words bool
}

func newTable(title string, words []string, figures ...string) table {
	t := table{Title: title}
	t.words(words...)
	t.figures(figures...)
	return t
}

func (t *table) words(names ...string) {
	for _, name := range names {
		t.Columns = append(t.Columns, column{name, true})
	}
}

func (t *table) figures(names ...string) {
	for _, name := range names {
		t.Columns = append(t.Columns, column{name, false})
	}
}

func (t *table) add(cells ...string) { t.Rows = append(t.Rows, cells) }

// dropEmpty removes the columns of figures that have none.
func (t *table) dropEmpty() {
	for i := len(t.Columns) - 1; i > t.labels; i-- {
		if slices.ContainsFunc(t.Rows, func(row []string) bool { return row[i] != none }) {
			continue
		}
		t.Columns = slices.Delete(t.Columns, i, i+1)
		for j := range t.Rows {
			t.Rows[j] = slices.Delete(t.Rows[j], i, i+1)
		}
	}
}

// Class returns the CSS class of a cell. The colour of a verdict repeats its text.
func (t table) Class(i int, text string) string {
	switch {
	case !t.Columns[i].Words:
		return "figure"
	case t.Columns[i].Name == "verdict":
		for status, class := range statusClass {
			if strings.HasPrefix(text, string(status)) {
				return "word " + class
			}
		}
	}
	return "word"
}

// statusClass holds the CSS class of each status.
var statusClass = map[lab.Status]string{lab.Valid: "good", lab.Noisy: "warn", lab.Invalid: "bad", lab.Unplayed: "warn"}

// text formats the table in columns, with a rule below the header.
func (t table) text(indent string) string {
	rule := make([]string, len(t.Columns))
	for i, w := range t.widths() {
		rule[i] = strings.Repeat("-", w)
	}
	t.Rows = slices.Concat([][]string{rule}, t.Rows)
	return strings.Join(t.lines(indent, math.MaxInt), "\n") + "\n"
}

// all returns the header and the rows.
func (t table) all() [][]string {
	header := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		header[i] = c.Name
	}
	return slices.Concat([][]string{header}, t.Rows)
}

// widths returns the column widths in characters, not bytes.
func (t table) widths() []int {
	width := make([]int, len(t.Columns))
	for _, r := range t.all() {
		for i, s := range r {
			width[i] = max(width[i], utf8.RuneCountInString(s))
		}
	}
	return width
}

// lines formats the table in at most most characters per line. It truncates the widest
// column of words as far as necessary.
func (t table) lines(indent string, most int) []string {
	width := t.widths()
	all := utf8.RuneCountInString(indent) + 2*(len(width)-1)
	for _, w := range width {
		all += w
	}
	for ; all > most; all-- {
		widest := -1
		for i, w := range width {
			if t.Columns[i].Words && w > 3 && (widest < 0 || w > width[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		width[widest]--
	}
	var out []string
	for _, r := range t.all() {
		line := indent
		for i, s := range r {
			s = shorten(s, width[i])
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(s))
			if t.Columns[i].Words {
				line += s + pad + "  "
			} else {
				line += pad + s + "  "
			}
		}
		out = append(out, strings.TrimRight(line, " "))
	}
	return out
}

// fitted formats the table like text. If it is wider than most, the labels become
// headings above their rows. If that does not suffice, further blocks continue the
// columns and repeat the first column.
func (t table) fitted(indent string, most int) string {
	width := t.widths()
	fits := func(from, to int) bool {
		sum := utf8.RuneCountInString(indent) + width[0]
		for _, w := range width[from:to] {
			sum += 2 + w
		}
		return sum <= most
	}
	if len(t.Rows) == 0 || fits(1, len(width)) {
		return t.text(indent)
	}
	first := 1 + t.labels
	var b strings.Builder
	for from := first; from < len(width); {
		to := from + 1
		for to < len(width) && fits(from, to+1) {
			to++
		}
		if from > first {
			b.WriteString("\n")
		}
		block := table{Columns: pick(t.Columns, from, to)}
		for _, r := range t.Rows {
			block.add(pick(r, from, to)...)
		}
		before := ""
		for i, line := range strings.SplitAfter(block.text(indent), "\n")[:len(t.Rows)+2] {
			if i >= 2 {
				if heading := t.heading(t.Rows[i-2]); heading != before {
					before = heading
					b.WriteString(indent + heading + "\n")
				}
			}
			b.WriteString(line)
		}
		from = to
	}
	return b.String()
}

// pick returns the first element and those in [from, to).
func pick[T any](row []T, from, to int) []T { return slices.Concat(row[:1], row[from:to]) }

// heading joins the labels of a row.
func (t table) heading(row []string) string {
	var parts []string
	for i := 1; i <= t.labels; i++ {
		if row[i] != none {
			parts = append(parts, t.Columns[i].Name+"="+row[i])
		}
	}
	return strings.Join(parts, ", ")
}

// wrap breaks a text into lines at spaces.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines = append(lines, line)
			line = ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return append(lines, line)
}

// markdown formats the table with pipes.
func (t table) markdown() string {
	rule := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		rule[i] = "---:"
		if c.Words {
			rule[i] = ":---"
		}
	}
	var b strings.Builder
	for _, row := range slices.Insert(t.all(), 1, rule) {
		b.WriteString("|")
		for _, s := range row {
			b.WriteString(" " + Escape(s) + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}

var markdownEscapes = strings.NewReplacer("|", `\|`, "<", `\<`, "*", `\*`, "_", `\_`, "`", "\\`", "~", `\~`, "\n", " ")

// Escape escapes Markdown syntax.
func Escape(s string) string { return markdownEscapes.Replace(s) }
