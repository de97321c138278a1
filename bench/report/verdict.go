package report

import (
	"fmt"
	"slices"
	"strings"

	"watchlab/bench/chart"
	"watchlab/bench/lab"
)

// tooFew marks a comparison that cannot be tested.
const tooFew = "too few rounds to tell"

// verdict is how reliable the run is.
type verdict struct {
	Count string       // such as "12 of 14 cells valid"
	Table *chart.Table // verdicts of a controller
	Notes []note       // about the figures
}

// note is a line with the cells concerned. Unless Open is set, a page folds the list of cells and text omits it.
type note struct {
	Text, Class string
	Cells       []string
	Open        bool
}

func newVerdict(o run) verdict {
	var v verdict
	var others []*lab.CellResult // that are not valid
	all := 0
	for _, c := range o.Cells() {
		if all++; c.Verdict.Status != lab.Valid {
			others = append(others, c)
		}
	}
	v.Count = fmt.Sprintf("%d of %s valid", all-len(others), lab.Plural(all, "cell"))
	if o.Interrupted {
		v.Notes = append(v.Notes, note{Text: interrupted(o.Outcome), Class: "warn"})
	}
	v.Notes = slices.Concat(v.Notes, shareNotes(o.Merged), cellNotes(others))
	for _, c := range o.comparisons {
		for i := range c.Cells {
			first := c.Against(&c.Cells[i])
			if c.Cells[i].Repeats == "" || first == nil {
				continue
			}
			n := pair(first, &c.Cells[i])
			if len(o.comparisons) > 1 {
				n.Text = c.Family + ", " + c.Title + ": " + n.Text
			}
			v.Notes = append(v.Notes, n)
		}
	}
	return v
}

// cellNotes returns a note for each verdict of cells that are not valid. A disturbance by the machine is
// only a warning, because no variant causes it.
func cellNotes(cells []*lab.CellResult) []note {
	var out []note
	for _, set := range lab.GroupBy(cells, func(c *lab.CellResult) string { return c.Verdict.Short() }) {
		v := set[0].Verdict
		n := note{Text: lab.Plural(len(set), "cell") + " " + v.Short(), Class: "warn", Open: v.Status != lab.Noisy}
		if v.Failed() {
			n.Class = "bad"
		}
		for _, c := range set {
			line := c.BenchName()
			if c.Verdict.Detail != "" {
				line += ": " + c.Verdict.Detail
			}
			n.Cells = append(n.Cells, line)
		}
		out = append(out, n)
	}
	return out
}

// wordClasses holds the CSS class of each status, and of each judgement of a controller.
var wordClasses = map[string]string{
	"valid": "good", "noisy": "warn", "invalid": "bad", "unplayed": "warn", "passed": "good", "better": "good", "failed": "bad", "worse": "bad",
}

// classOf returns the CSS class of a cell of a table. The colour of a verdict repeats its text.
func classOf(t *chart.Table, i int, text string) string {
	switch {
	case !t.Columns[i].Words:
		return "figure"
	case i <= t.Labels:
		return "word"
	}
	word, _, _ := strings.Cut(text, " ")
	word = strings.TrimSuffix(word, ":")
	return strings.TrimSpace("word " + wordClasses[word])
}
