package study

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"watchlab/bench/lab"
	"watchlab/bench/report"
	"watchlab/bench/stats"
)

// PageFile is the name of a page in its folder.
const PageFile = "README.md"

// Page writes a question's page: the question, the answer and how sure it is, and
// each part with its command, its figures and a link to its report. Parts that
// weren't played are named.
func Page(w io.Writer, q Question, found Found) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s\n\n%s\n\n## Answer\n\n", q.Asks, q.About)
	answer := q.Answer(found)
	report.List(&b, answer.Short)
	report.List(&b, answer.More)
	b.WriteString("## How sure\n\n")
	report.List(&b, sure(q, found))
	for _, p := range q.Parts {
		part(&b, p, found[p.Name])
	}
	_, err := w.Write(b.Bytes())
	return err
}

// Answer puts what was found into words; where nothing was, it says so.
func (q Question) Answer(found Found) Answer {
	a := q.Tell(found)
	if len(a.Short)+len(a.More) > 0 {
		return a
	}
	return Answer{Short: []string{"There are no figures to answer it by: " + strings.Join(missing(q, found), "; ") + "."}}
}

// missing says why there is nothing to tell.
func missing(q Question, found Found) []string {
	var out []string
	for _, p := range q.Parts {
		o := found[p.Name]
		if o == nil {
			out = append(out, p.Name+" was not played")
			continue
		}
		out = append(out, fmt.Sprintf("%s: %s", p.Name, verdicts(o)))
	}
	return out
}

// sure says what the answer rests on.
func sure(q Question, found Found) []string {
	var out []string
	for _, p := range q.Parts {
		o := found[p.Name]
		if o == nil {
			out = append(out, p.Name+": not played.")
			continue
		}
		line := fmt.Sprintf("%s: %s of each cell; %s.", p.Name, rounds(o), verdicts(o))
		if o.Interrupted {
			line += " It was interrupted."
		}
		out = append(out, line)
		for i := range o.Comparisons {
			out = append(out, chance(p.Name, &o.Comparisons[i])...)
		}
	}
	return out
}

// rounds says how many were played.
func rounds(o *lab.Outcome) string {
	least, most := -1, 0
	for _, c := range o.Comparisons {
		for _, cl := range c.Cells {
			if n := len(cl.Rounds); n > 0 {
				if least < 0 || n < least {
					least = n
				}
				most = max(most, n)
			}
		}
	}
	switch {
	case most == 0:
		return "no round"
	case most == 1:
		return "1 round"
	case least == most:
		return fmt.Sprintf("%d rounds", most)
	}
	return fmt.Sprintf("%d to %d rounds", least, most)
}

// verdicts counts them, and names the cells that are neither valid nor noisy.
func verdicts(o *lab.Outcome) string {
	var order []string
	count := map[string]int{}
	var bad []string
	for _, c := range o.Comparisons {
		for _, cl := range c.Cells {
			word := cl.Verdict.Short()
			if count[word] == 0 {
				order = append(order, word)
			}
			count[word]++
			// A search looks for the rates that the generator can't keep.
			if cl.Verdict.Status == lab.Invalid && cl.Verdict.Cause != lab.CauseGenerator {
				bad = append(bad, fmt.Sprintf("%s: %s", cl.BenchName(), cl.Verdict))
			}
		}
	}
	parts := make([]string, 0, len(order))
	for _, word := range order {
		parts = append(parts, fmt.Sprintf("%d %s", count[word], word))
	}
	line := strings.Join(parts, ", ")
	if len(bad) > 0 {
		line += " (" + strings.Join(bad, "; ") + ")"
	}
	return line
}

// chance says what came of playing one cell twice.
func chance(part string, c *lab.ComparisonResult) []string {
	var out []string
	for _, again := range c.Cells {
		if again.Repeats == "" {
			continue
		}
		at := slices.IndexFunc(c.Cells, func(cl lab.CellResult) bool { return cl.BenchName() == again.Repeats })
		if at < 0 || len(c.Cells[at].Rounds) == 0 || len(again.Rounds) == 0 {
			continue
		}
		unit := stats.UnitEventsPerSec
		of, twin := figure{&c.Cells[at], c.Cells[at].Samples(c.Latency)}, figure{&again, again.Samples(c.Latency)}
		d := twin.beside(of, unit)
		line := fmt.Sprintf("%s: %s beside itself (A/A): %s.", part, of.BenchName(), d)
		if d.told() {
			line += " That is chance or the machine: smaller differences here mean nothing."
		}
		out = append(out, line)
	}
	return out
}

// part writes what one run measured.
func part(b *bytes.Buffer, p Part, o *lab.Outcome) {
	fmt.Fprintf(b, "## %s\n\n%s.\n\n    watchlab %s\n\n", capital(p.Name), capital(p.Shows), strings.Join(commandOf(p, o), " "))
	if o == nil {
		return
	}
	for i := range o.Comparisons {
		c := &o.Comparisons[i]
		if len(o.Comparisons) > 1 {
			fmt.Fprintf(b, "%s:\n\n", report.Escape(capital(c.Title)))
		}
		table(b, c, p.Columns)
	}
	fmt.Fprintf(b, "Medians of %s. Everything that was measured: [report](%s/report.html), [tables](%s/%s), [rounds](%s/%s).\n\n",
		rounds(o), p.Name, p.Name, lab.ReportFile, p.Name, lab.BenchFile)
	fmt.Fprintf(b, "%s\n\n", report.Escape(where(o)))
}

// commandOf is the command as it was given, or as it would be.
func commandOf(p Part, o *lab.Outcome) []string {
	args := p.Args
	if o != nil && len(o.Env.Args) > 0 {
		args = o.Env.Args
	}
	out := make([]string, len(args))
	for i, a := range args {
		if strings.ContainsAny(a, " ;&|<>()$'\"") {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		out[i] = a
	}
	return out
}

// where says on what machine it was, in one line.
func where(o *lab.Outcome) string {
	e := o.Env
	parts := []string{o.Started.UTC().Format("2006-01-02 15:04 MST")}
	if e.CPU != "" {
		parts = append(parts, e.CPU)
	}
	parts = append(parts, fmt.Sprintf("%d cores, GOMAXPROCS %d", e.Cores, e.GOMAXPROCS), fmt.Sprintf("%s %s/%s", e.GoVersion, e.GOOS, e.GOARCH))
	if e.Commit != "" {
		commit := "commit " + e.Commit
		if e.Dirty {
			commit += " with changes"
		}
		parts = append(parts, commit)
	}
	if o.Ended != nil {
		parts = append(parts, fmt.Sprintf("%v in all", o.Ended.Sub(o.Started).Round(time.Second)))
	}
	return strings.Join(parts, ", ") + "."
}

// table writes the figures of the cells: the labels that differ, and the columns
// that any cell has.
func table(b *bytes.Buffer, c *lab.ComparisonResult, columns []string) {
	var cells figures
	for i := range c.Cells {
		if cl := &c.Cells[i]; cl.Repeats == "" {
			cells = append(cells, figure{cl, cl.Samples(c.Latency)})
		}
	}
	var labels []string
	for _, cl := range cells {
		for _, l := range cl.Labels {
			if l.Key != "impl" && !slices.Contains(labels, l.Key) {
				labels = append(labels, l.Key)
			}
		}
	}
	labels = slices.DeleteFunc(labels, func(key string) bool {
		return !slices.ContainsFunc(cells, func(cl figure) bool { return cl.Label(key) != cells[0].Label(key) })
	})
	columns = slices.DeleteFunc(slices.Clone(columns), func(unit string) bool { return len(cells.measured(unit)) == 0 })

	head := append(append([]string{"variant"}, labels...), columns...)
	head = append(head, "verdict")
	row(b, head)
	b.WriteString("|" + strings.Repeat("---|", 1+len(labels)) + strings.Repeat("---:|", len(columns)) + "---|\n")
	for _, cl := range cells {
		line := []string{cl.impl()}
		for _, key := range labels {
			line = append(line, dash(cl.Label(key)))
		}
		for _, unit := range columns {
			line = append(line, cl.entry(unit))
		}
		row(b, append(line, cl.Verdict.Short()))
	}
	b.WriteString("\n")
}

// entry is a median with the spread of its rounds.
func (c figure) entry(unit string) string {
	values := c.samples[unit]
	if len(values) == 0 {
		return "-"
	}
	s := stats.Summarize(values)
	text := digits(s.Median)
	if strings.HasSuffix(unit, "-ns") || strings.HasSuffix(unit, "-B") || unit == stats.UnitEventsPerSec {
		text, _, _ = strings.Cut(show(s.Median, unit), " ")
	}
	if s.Spread != nil {
		text += fmt.Sprintf(" ± %.0f %%", *s.Spread*100)
	}
	return text
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func row(b *bytes.Buffer, entries []string) {
	b.WriteString("|")
	for _, e := range entries {
		fmt.Fprintf(b, " %s |", report.Escape(e))
	}
	b.WriteString("\n")
}
