package report

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"watchlab/bench/chart"
	"watchlab/bench/lab"
)

const claimsIntro = "A claim is confirmed if the whole 95 % interval of its ratio fulfils the bound, refuted if none of it does, else not answered."

// Claimed is an experiment with claims.
type Claimed struct {
	Name, Question string
	Outcome        *lab.Outcome // nil if it was not played
}

// Claims writes the answers to all claims as text, without the cells.
func Claims(w io.Writer, all []Claimed) error {
	t := claimTable(all)
	for range 3 {
		t.Drop(claimBound + 1)
	}
	_, err := io.WriteString(w, t.Fitted("", textWidth))
	return err
}

// ClaimsFile is the page of all claims in a results folder.
const ClaimsFile = "README.md"

// WriteClaims writes [ClaimsPage] into a results folder.
func WriteClaims(dir string, all []Claimed) error {
	return lab.ReplaceFile(filepath.Join(dir, ClaimsFile), func(w io.Writer) error { return ClaimsPage(w, all) })
}

// ClaimsPage writes the questions and the answers to all claims as Markdown. Each question links to the report in
// the folder of its experiment.
func ClaimsPage(w io.Writer, all []Claimed) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Claims\n\n%s\n\n%s\n", claimsIntro, claimTable(all).Markdown())
	for _, c := range all {
		name, state := c.Name, "Not played."
		if o := c.Outcome; o != nil {
			name, state = fmt.Sprintf("[%s](%s/%s)", c.Name, c.Name, lab.ReportFile), o.RoundsText()+"."
			if o.Interrupted {
				state = interrupted(o)
			}
		}
		fmt.Fprintf(&b, "- %s: %s %s\n", name, chart.Escape(c.Question), state)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// claimBound is the column of the bound; unit, variant, baseline and claim follow.
const claimBound = 5

func claimTable(all []Claimed) *chart.Table {
	t := chart.NewTable("Claims", []string{"experiment", "#", "answer"}, "ratio", "interval", "bound")
	t.Words("unit", "variant", "baseline", "claim")
	t.Labels = 1
	for _, e := range all {
		if e.Outcome == nil {
			continue
		}
		for i, c := range e.Outcome.Claims {
			format, value, interval := chart.Ratio, chart.None, chart.None
			if c.Baseline == "" {
				format = unitFormat(c.Unit)
			}
			if c.Value > 0 {
				value = format(c.Value)
			}
			if c.Hi > 0 {
				interval = format(c.Lo) + "–" + format(c.Hi)
			}
			answer := string(c.Answer)
			if c.Why != "" {
				answer += ": " + c.Why
			}
			t.Add(e.Name, fmt.Sprint(i+1), answer, value, interval, string(c.Relation)+" "+format(c.Bound), c.Unit, c.Variant, cmp.Or(c.Baseline, chart.None), c.Says)
		}
	}
	return t
}
