package report

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"watchlab/bench/chart"
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
	// judged colours passed and failed, better and worse, in the columns of words after the labels.
	judged bool
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
		if !slices.ContainsFunc(t.Rows, func(row []string) bool { return row[i] != chart.None }) {
			t.drop(i)
		}
	}
}

func (t *table) drop(column int) {
	t.Columns = slices.Delete(t.Columns, column, column+1)
	for j := range t.Rows {
		t.Rows[j] = slices.Delete(t.Rows[j], column, column+1)
	}
}

// Class returns the CSS class of a cell. The colour of a verdict repeats its text.
func (t table) Class(i int, text string) string {
	switch {
	case !t.Columns[i].Words:
		return "figure"
	case t.judged && i > t.labels:
		word, _, _ := strings.Cut(text, " ")
		return strings.TrimSpace("word " + map[string]string{"passed": "good", "better": "good", "failed": "bad", "worse": "bad"}[word])
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
			s = chart.Shorten(s, width[i])
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

// fitted formats the table like text. If it is wider than most, further blocks continue
// the columns. Each block repeats the columns that name the row.
func (t table) fitted(indent string, most int) string {
	width, fixed := t.widths(), 1+t.labels
	fits := func(from, to int) bool {
		sum := utf8.RuneCountInString(indent) - 2
		for _, w := range slices.Concat(width[:fixed], width[from:to]) {
			sum += w + 2
		}
		return sum <= most
	}
	var blocks []string
	for from := fixed; from < len(width) || len(blocks) == 0; {
		to := min(from+1, len(width))
		for to < len(width) && fits(from, to+1) {
			to++
		}
		block := table{Columns: slices.Concat(t.Columns[:fixed], t.Columns[from:to])}
		for _, r := range t.Rows {
			block.add(slices.Concat(r[:fixed], r[from:to])...)
		}
		blocks = append(blocks, block.text(indent))
		from = to
	}
	return strings.Join(blocks, "\n")
}

// pageColumns is the number of columns that a page of 1200 px shows in full.
const pageColumns = 8

// multiple is a unit that a cell may have.
type multiple struct {
	suffix string
	size   float64
}

// scales are the units of times and sizes, from the smallest.
var scales = [][]multiple{
	{{"ns", 1}, {"µs", 1e3}, {"ms", 1e6}, {"s", 1e9}},
	{{"", 1}, {"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}},
}

// parseFigure returns the figure of a cell in the smallest unit, and the index of its own; -1 for another text.
func parseFigure(cell string, units []multiple) (v float64, unit int) {
	number := strings.TrimRight(cell, "nµmsKiMG")
	v, err := strconv.ParseFloat(number, 64)
	unit = slices.IndexFunc(units, func(m multiple) bool { return number+m.suffix == cell })
	if err != nil || unit < 0 {
		return 0, -1
	}
	return v * units[unit].size, unit
}

// oneUnit writes the figures of a column in the unit of the smallest one, which its head names. A column
// with other texts, or with a figure of more than five digits in that unit, stays as it is.
func (t *table) oneUnit(column int, units []multiple) {
	smallest, largest, all := len(units)-1, 0, 0.0
	values := make([]float64, len(t.Rows))
	for i, r := range t.Rows {
		v, unit := parseFigure(r[column], units)
		switch {
		case r[column] == chart.None:
			v = math.NaN()
		case unit < 0:
			return
		case v > 0:
			smallest, largest, all = min(smallest, unit), max(largest, unit), max(all, v)
		}
		values[i] = v
	}
	u := units[smallest]
	if all == 0 || all >= 1e5*u.size || u.suffix == "" && largest == 0 {
		return
	}
	if u.suffix != "" {
		t.Columns[column].Name += ", " + u.suffix
	}
	for i, v := range values {
		t.Rows[i] = slices.Clone(t.Rows[i])
		t.Rows[i][column] = chart.Number(v / u.size)
	}
}

// Pages splits the table for the page: the labels of a row in one column, and further tables continue
// the columns. Columns of times and sizes have one unit.
func (t table) Pages() []table {
	t.Columns, t.Rows = slices.Clone(t.Columns), slices.Clone(t.Rows)
	for i, c := range t.Columns {
		for _, units := range scales {
			if !c.Words {
				t.oneUnit(i, units)
			}
		}
	}
	if len(t.Columns) <= pageColumns {
		return []table{t}
	}
	first := 1 + t.labels
	head := t.Columns[:1:1]
	if t.labels > 0 {
		head = append(head, column{"setting", true})
	}
	room := pageColumns - len(head)
	tables := (len(t.Columns) - first + room - 1) / room
	var out []table
	for i := range tables {
		from, to := first+i*(len(t.Columns)-first)/tables, first+(i+1)*(len(t.Columns)-first)/tables
		page := table{Title: t.Title, Columns: slices.Concat(head, t.Columns[from:to]), labels: len(head) - 1, judged: t.judged}
		if i > 0 {
			page.Title += ", continued"
		}
		for _, r := range t.Rows {
			line := r[:1:1]
			if t.labels > 0 {
				line = append(line, strings.Join(slices.DeleteFunc(slices.Clone(r[1:first]), func(s string) bool { return s == chart.None }), ", "))
			}
			page.add(append(line, r[from:to]...)...)
		}
		out = append(out, page)
	}
	return out
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

// Markdown formats the table with pipes.
func (t table) Markdown() string {
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
			b.WriteString(" " + lab.Escape(s) + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}
