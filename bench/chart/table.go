package chart

import (
	"cmp"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// Table holds figures as text, without layout. It is the only renderer of tables: a terminal, Markdown
// and the page of a report show the same ones.
type Table struct {
	Title   string
	Columns []Column
	Rows    [][]string
	Legend  []string // remarks below the table
	// Labels is the number of columns after the first that name a row.
	Labels int
	// Gap is the number of spaces between columns (default 2).
	Gap int
}

// Column is the head of a column. Words are aligned left, figures right.
type Column struct {
	Name  string
	Words bool
}

// NewTable returns a table with columns of words and then of figures.
func NewTable(title string, words []string, figures ...string) *Table {
	t := &Table{Title: title}
	t.Words(words...)
	t.Figures(figures...)
	return t
}

// Words adds columns of words.
func (t *Table) Words(names ...string) {
	for _, name := range names {
		t.Columns = append(t.Columns, Column{name, true})
	}
}

// Figures adds columns of figures.
func (t *Table) Figures(names ...string) {
	for _, name := range names {
		t.Columns = append(t.Columns, Column{name, false})
	}
}

// Add adds a row, a text for each column.
func (t *Table) Add(row ...string) { t.Rows = append(t.Rows, row) }

// DropEmpty removes the columns after the labels in which no row has a figure.
func (t *Table) DropEmpty() {
	for i := len(t.Columns) - 1; i > t.Labels; i-- {
		if !slices.ContainsFunc(t.Rows, func(row []string) bool { return row[i] != None }) {
			t.Drop(i)
		}
	}
}

// Drop removes a column.
func (t *Table) Drop(column int) {
	if column <= t.Labels {
		t.Labels--
	}
	t.Columns = slices.Delete(t.Columns, column, column+1)
	for j := range t.Rows {
		t.Rows[j] = slices.Delete(t.Rows[j], column, column+1)
	}
}

// all returns the header, unless no column has a name, and the rows.
func (t *Table) all() [][]string {
	header := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		header[i] = c.Name
	}
	if strings.Join(header, "") == "" {
		return t.Rows
	}
	return slices.Concat([][]string{header}, t.Rows)
}

// widths returns the column widths in characters, not bytes.
func (t *Table) widths() []int {
	width := make([]int, len(t.Columns))
	for _, r := range t.all() {
		for i, s := range r {
			width[i] = max(width[i], utf8.RuneCountInString(s))
		}
	}
	return width
}

// Lines formats the table in aligned columns, without its title and its legend.
func (t *Table) Lines() []string {
	width, gap := t.widths(), strings.Repeat(" ", cmp.Or(t.Gap, 2))
	var lines []string
	for _, r := range t.all() {
		var line strings.Builder
		for i, s := range r {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(s))
			if t.Columns[i].Words {
				line.WriteString(s + pad + gap)
			} else {
				line.WriteString(pad + s + gap)
			}
		}
		lines = append(lines, strings.TrimRight(line.String(), " "))
	}
	return lines
}

// Text writes the lines of the table.
func (t *Table) Text(w io.Writer) error {
	_, err := io.WriteString(w, strings.Join(t.Lines(), "\n")+"\n")
	return err
}

// Blocks splits a table that is wider than most characters. Each block repeats the columns that
// name a row, and the further ones continue the title.
func (t *Table) Blocks(most int) (blocks []*Table) {
	width, fixed := t.widths(), 1+t.Labels
	fits := func(from, to int) bool {
		sum := -2
		for _, w := range slices.Concat(width[:fixed], width[from:to]) {
			sum += w + 2
		}
		return sum <= most
	}
	for from := fixed; from < len(width) || len(blocks) == 0; {
		to := min(from+1, len(width))
		for to < len(width) && fits(from, to+1) {
			to++
		}
		block := &Table{Title: t.Title, Columns: slices.Concat(t.Columns[:fixed], t.Columns[from:to]), Labels: t.Labels}
		if from > fixed {
			block.Title += ", continued"
		}
		for _, r := range t.Rows {
			block.Add(slices.Concat(r[:fixed], r[from:to])...)
		}
		blocks = append(blocks, block)
		from = to
	}
	return blocks
}

// Fitted formats the blocks of the table, each line with an indent.
func (t *Table) Fitted(indent string, most int) string {
	var blocks []string
	for _, b := range t.Blocks(most - len(indent)) {
		blocks = append(blocks, indent+strings.Join(b.Lines(), "\n"+indent)+"\n")
	}
	return strings.Join(blocks, "\n")
}

// Markdown formats the table with pipes.
func (t *Table) Markdown() string {
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
