package report

import (
	"cmp"
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
	Tiles []tile
	Table *chart.Table // verdicts of a controller
	Notes []note       // about the figures
}

// tile is a large count.
type tile struct{ Value, Label, Class string }

// newTile returns the count of some of all; 0 has no class.
func newTile(n int, all, of, class string) tile {
	if n == 0 {
		class = "none"
	}
	return tile{fmt.Sprint(n), "of " + all + " " + of, class}
}

// note is a line with the cells concerned. Unless Open is set, a page folds the list of cells and text omits it.
type note struct {
	Text, Class string
	Cells       []string
	Open        bool
}

func newVerdict(o run) verdict {
	var v verdict
	var cells []lab.CellResult
	for _, c := range o.Cells() {
		cells = append(cells, *c)
	}
	for _, s := range []lab.Status{lab.Valid, lab.Noisy, lab.Invalid, lab.Unplayed} {
		n := 0
		for _, cl := range cells {
			if cl.Verdict.Status == s {
				n++
			}
		}
		if n > 0 || s != lab.Unplayed {
			v.Tiles = append(v.Tiles, newTile(n, lab.Plural(len(cells), "cell"), string(s), statusClass[s]))
		}
	}
	if o.Interrupted {
		v.Notes = append(v.Notes, note{Text: interrupted(o.Outcome), Class: "warn"})
	}
	v.Notes = slices.Concat(v.Notes, shareNotes(o.Merged), cellNotes(cells))
	for _, c := range o.comparisons {
		for _, n := range repeats(c.ComparisonResult) {
			if len(o.comparisons) > 1 {
				n.Text = c.Family + ", " + c.Title + ": " + n.Text
			}
			v.Notes = append(v.Notes, n)
		}
	}
	return v
}

// cellNotes returns a note for each verdict but valid. A disturbance by the machine is
// only a warning, because no variant causes it.
func cellNotes(cells []lab.CellResult) []note {
	cells = slices.DeleteFunc(cells, func(c lab.CellResult) bool { return c.Verdict.Status == lab.Valid })
	var out []note
	for _, set := range together(cells, func(c lab.CellResult) string { return c.Verdict.Short() }) {
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

// statusClass holds the CSS class of each status.
var statusClass = map[lab.Status]string{lab.Valid: "good", lab.Noisy: "warn", lab.Invalid: "bad", lab.Unplayed: "warn"}

// wordClass holds the CSS class of each judgement of a controller.
var wordClass = map[string]string{"passed": "good", "better": "good", "failed": "bad", "worse": "bad"}

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
	return strings.TrimSpace("word " + cmp.Or(statusClass[lab.Status(word)], wordClass[word]))
}
