package fidelity

import (
	"fmt"
	"strings"
)

const (
	// mostDifferences is the number of differences shown for a question.
	mostDifferences = 6
	// longest is the number of runes shown of a value.
	longest = 90
)

// Page returns the results as Markdown: counts, differences with their reasons,
// and all questions. The text is the same in every run.
func Page(results []*Result, theirs, ours string) string {
	var b strings.Builder
	summary(&b, results)
	fmt.Fprintf(&b, "\n### What differs\n\n")
	for _, r := range results {
		if len(r.Differences) == 0 {
			continue
		}
		fmt.Fprintf(&b, "**%s: %s.** %s.\n\n", r.Area, r.Title, sentence(r.Why))
		fmt.Fprintf(&b, "| call | where | %s | %s |\n|---|---|---|---|\n", theirs, ours)
		for i, d := range r.Differences {
			if i == mostDifferences {
				fmt.Fprintf(&b, "| … | and %d more | | |\n", len(r.Differences)-i)
				break
			}
			theirs, ours := apart(d.Theirs, d.Ours)
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", code(d.Call), code(d.Path), code(theirs), code(ours))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// summary writes a table with one row per area.
func summary(b *strings.Builder, results []*Result) {
	type count struct{ questions, answers, same int }
	var order []string
	areas := map[string]*count{}
	var all count
	for _, r := range results {
		c := areas[r.Area]
		if c == nil {
			c = &count{}
			areas[r.Area] = c
			order = append(order, r.Area)
		}
		for _, c := range []*count{c, &all} {
			c.questions++
			c.answers += r.Answers
			if len(r.Differences) == 0 {
				c.same++
			}
		}
	}
	fmt.Fprintf(b, "| area | questions | answers | equal answers |\n|---|---|---|---|\n")
	for _, name := range order {
		c := areas[name]
		fmt.Fprintf(b, "| %s | %d | %d | %d |\n", name, c.questions, c.answers, c.same)
	}
	fmt.Fprintf(b, "| **all** | **%d** | **%d** | **%d** |\n", all.questions, all.answers, all.same)
}

// sentence capitalises a reason.
func sentence(s string) string {
	if s == "" {
		return "No reason is given"
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// apart removes the common prefix of two long texts.
func apart(a, b string) (string, string) {
	x, y := []rune(a), []rune(b)
	n := 0
	for n < min(len(x), len(y)) && x[n] == y[n] {
		n++
	}
	const shown = 20
	if n <= 2*shown || len(x) <= longest && len(y) <= longest {
		return a, b
	}
	return "…" + string(x[n-shown:]), "…" + string(y[n-shown:])
}

// code shows a value in a cell of a table.
func code(s string) string {
	if s == "" || s == Nothing {
		return s
	}
	if r := []rune(s); len(r) > longest {
		s = string(r[:longest]) + "…"
	}
	s = strings.NewReplacer("|", "\\|", "\n", " ").Replace(s)
	if strings.Contains(s, "`") {
		return "`` " + s + " ``"
	}
	return "`" + s + "`"
}
