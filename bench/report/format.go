package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/perf/benchunit"

	"watchlab/bench/stats"
)

// none replaces a missing figure.
const none = "-"

// number writes a non-negative figure with three significant digits, and without
// decimals from 100 on.
func number(v float64) string {
	switch {
	case v == math.Trunc(v) && v < 1e6:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case v < 0.001:
		// Such a small figure comes from the machine, not from the variant.
		return "<0.001"
	case v >= 1e6:
		return benchunit.Scale(v, benchunit.Decimal)
	case v >= 99.95:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case v >= 0.9995:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}

// median writes the median of a unit, or none.
func median(s stats.Samples, unit string, format func(float64) string) string {
	if len(s[unit]) == 0 {
		return none
	}
	return format(stats.Median(s[unit]))
}

// perSecond writes the throughput and the spread of its rounds.
func perSecond(s stats.Samples) string {
	values := s[stats.UnitEventsPerSec]
	if len(values) == 0 {
		return none
	}
	sum := stats.Summarize(values)
	spread := "  ?"
	if sum.Spread != nil {
		spread = fmt.Sprintf("%2.0f%%", *sum.Spread*100)
	}
	return benchunit.Scale(sum.Median, benchunit.Decimal) + " ±" + spread
}

func bytesCount(v float64) string {
	if v < 1024 {
		return number(v)
	}
	return benchunit.Scale(v, benchunit.Binary)
}

// nanoseconds writes a duration in a suitable unit.
func nanoseconds(v float64) string {
	for _, u := range []struct {
		unit  time.Duration
		name  string
		below float64
	}{
		{time.Nanosecond, "ns", 1e3}, {time.Microsecond, "µs", 1e6}, {time.Millisecond, "ms", 1e9},
	} {
		// Compare the rounded figure, so that 999.7 µs becomes 1 ms.
		if math.Round(v*1000/u.below) < 1000 {
			return number(v/float64(u.unit)) + u.name
		}
	}
	return number(v/float64(time.Second)) + "s"
}

// ratio writes the ratio to the baseline, or "no difference" if it is not significant.
func ratio(c stats.Comparison) string {
	switch {
	case !c.Testable:
		return times(c.Ratio) + "?"
	case !c.Significant:
		return "no difference"
	}
	return times(c.Ratio)
}

// seen writes the smallest change that the rounds of both sides detect.
func seen(base, values []float64) string {
	share, ok := stats.MinDetectable(base, values)
	if !ok {
		return none
	}
	digits := 0
	if share < 0.0995 {
		digits = 1
	}
	return strconv.FormatFloat(share*100, 'f', digits, 64) + " %"
}

// interval writes the confidence interval of the median throughput, or none.
func interval(s stats.Samples) string {
	sum := stats.Summarize(s[stats.UnitEventsPerSec])
	if sum.Lo == nil {
		return none
	}
	return benchunit.Scale(*sum.Lo, benchunit.Decimal) + "–" + benchunit.Scale(*sum.Hi, benchunit.Decimal)
}

// decimal writes a figure with a decimal prefix.
func decimal(v float64) string { return benchunit.Scale(v, benchunit.Decimal) }

// estimate writes a figure with its confidence interval.
func estimate(e stats.Estimate, format func(float64) string) string {
	if e.Lo == e.Hi {
		return format(e.Value)
	}
	return fmt.Sprintf("%s [%s, %s]", format(e.Value), format(e.Lo), format(e.Hi))
}

// coefficient writes a figure that may be much smaller than 1.
func coefficient(v float64) string {
	if v == 0 {
		return "0"
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}

// unitFormat returns the format of a unit of bench.txt.
func unitFormat(unit string) func(float64) string {
	switch {
	case strings.HasSuffix(unit, "-ns") || strings.HasPrefix(unit, "ns/"):
		return nanoseconds
	case strings.HasPrefix(unit, "B/") || strings.HasSuffix(unit, "-B"):
		return bytesCount
	case unit == stats.UnitEventsPerSec:
		return axisCount
	}
	return number
}

func times(v float64) string {
	digits := 2
	switch {
	case v < 0.0995:
		digits = 4
	case v >= 99.95:
		digits = 0
	case v >= 9.995:
		digits = 1
	}
	return strconv.FormatFloat(v, 'f', digits, 64) + "×"
}

// Plural writes a count with its noun: "1 share", "2 shares".
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// table is a grid with its title, shared labels and legend.
type table struct {
	title, shared string
	grid          grid
	legend        []string
}

// grid is a table without layout.
type grid struct {
	header []string
	// left marks columns of words, aligned left; figures are aligned right.
	left []bool
	rows [][]string
	// labels is the number of label columns after the first. They distinguish rows with
	// equal names.
	labels int
}

func (g *grid) column(name string, left bool) {
	g.header = append(g.header, name)
	g.left = append(g.left, left)
}

// text formats the table in columns, with a rule below the header.
func (g *grid) text(indent string) string {
	rule := make([]string, len(g.header))
	for i, w := range g.widths() {
		rule[i] = strings.Repeat("-", w)
	}
	ruled := grid{header: g.header, left: g.left, rows: append([][]string{rule}, g.rows...)}
	return strings.Join(ruled.lines(indent, math.MaxInt), "\n") + "\n"
}

// widths returns the column widths in characters, not bytes.
func (g *grid) widths() []int {
	width := make([]int, len(g.header))
	for _, r := range append([][]string{g.header}, g.rows...) {
		for i, s := range r {
			width[i] = max(width[i], utf8.RuneCountInString(s))
		}
	}
	return width
}

// lines formats the table in at most most columns of characters. It truncates the
// widest column of words as far as necessary.
func (g *grid) lines(indent string, most int) []string {
	width := g.widths()
	all := utf8.RuneCountInString(indent) + 2*(len(width)-1)
	for _, w := range width {
		all += w
	}
	for ; all > most; all-- {
		widest := -1
		for i, w := range width {
			if g.left[i] && w > 3 && (widest < 0 || w > width[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		width[widest]--
	}
	var out []string
	for _, r := range append([][]string{g.header}, g.rows...) {
		line := indent
		for i, s := range r {
			if runes := []rune(s); len(runes) > width[i] {
				s = string(runes[:width[i]-1]) + "…"
			}
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(s))
			if g.left[i] {
				line += s + pad
			} else {
				line += pad + s
			}
			line += "  "
		}
		out = append(out, strings.TrimRight(line, " "))
	}
	return out
}

// fitted formats the table like text. If it is wider than most, the labels become
// headings above their rows. If that does not suffice, further blocks continue the
// columns and repeat the first column.
func (g *grid) fitted(indent string, most int) string {
	wide := func(g *grid, from, to int) int {
		sum := utf8.RuneCountInString(indent)
		for i, w := range g.widths() {
			if i == 0 || i >= from && i < to {
				sum += w + 2
			}
		}
		return sum - 2
	}
	if len(g.rows) == 0 || wide(g, 1, len(g.header)) <= most {
		return g.text(indent)
	}
	first := 1 + g.labels
	var b strings.Builder
	for from := first; from < len(g.header); {
		to := from + 1
		for to < len(g.header) && wide(g, from, to+1) <= most {
			to++
		}
		if from > first {
			b.WriteString("\n")
		}
		block := grid{header: pick(g.header, from, to), left: pick(g.left, from, to)}
		for _, r := range g.rows {
			block.rows = append(block.rows, pick(r, from, to))
		}
		before := ""
		for i, line := range strings.SplitAfter(block.text(indent), "\n")[:len(g.rows)+2] {
			if i >= 2 {
				if heading := g.heading(g.rows[i-2]); heading != before {
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
func pick[T any](row []T, from, to int) []T { return append(slices.Clone(row[:1]), row[from:to]...) }

// heading joins the labels of a row.
func (g *grid) heading(row []string) string {
	var parts []string
	for i := 1; i <= g.labels; i++ {
		if row[i] != none {
			parts = append(parts, g.header[i]+"="+row[i])
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
func (g *grid) markdown() string {
	var b strings.Builder
	line := func(cells []string) {
		b.WriteString("|")
		for _, s := range cells {
			b.WriteString(" " + Escape(s) + " |")
		}
		b.WriteString("\n")
	}
	line(g.header)
	rule := make([]string, len(g.header))
	for i := range rule {
		rule[i] = "---:"
		if g.left[i] {
			rule[i] = ":---"
		}
	}
	line(rule)
	for _, r := range g.rows {
		line(r)
	}
	return b.String()
}

// Escape escapes Markdown syntax.
func Escape(s string) string {
	return strings.NewReplacer("|", `\|`, "<", `\<`, "*", `\*`, "_", `\_`, "`", "\\`", "~", `\~`, "\n", " ").Replace(s)
}
