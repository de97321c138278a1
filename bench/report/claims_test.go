package report_test

import (
	"bytes"
	"strings"
	"testing"

	"watchlab/bench/report"
	"watchlab/bench/stats"
)

// TestClaims: the table has each claim once, with its ratio or its figure, in all forms.
func TestClaims(t *testing.T) {
	o, broken := fixture(), fixture()
	o.Name = "mine"
	o.Claims = []stats.Claim{
		{Says: "A | ratio.", Unit: "events/s", Variant: "impl=ring", Baseline: "impl=cond", Relation: stats.AtLeast, Bound: 2, Answer: stats.Confirmed, Value: 3.1, Lo: 2.9, Hi: 3.4},
		{Says: "A figure.", Unit: "p99-ns", Variant: "impl=ring", Relation: stats.AtMost, Bound: 1e6, Answer: stats.Refuted, Value: 2e6, Lo: 1.5e6, Hi: 3e6},
		{Says: "No figures.", Unit: "B/op", Variant: "impl=ring", Baseline: "impl=cond", Relation: stats.AtMost, Bound: 1, Answer: stats.NotAnswered, Why: "unplayed"},
	}
	broken.Interrupted, broken.Claims = true, nil
	all := []report.Claimed{{Name: "mine", Question: "Is it?", Outcome: o}, {Name: "half", Question: "And?", Outcome: broken}, {Name: "later", Question: "When?"}}
	rows := []string{
		`| mine | 1 | confirmed | 3.1× | 2.9×–3.4× | at least 2× | events/s | impl=ring | impl=cond | A \| ratio. |`,
		"| mine | 2 | refuted | 2ms | 1.50ms–3ms | at most 1ms | p99-ns | impl=ring | - | A figure. |",
		"| mine | 3 | not answered: unplayed | - | - | at most 1× | B/op | impl=ring | impl=cond | No figures. |",
	}
	for form, want := range map[string][]string{
		"page":     append(rows, "- [mine](mine/report.md): Is it? 6 rounds.", "- [half](half/report.md): And? Interrupted: ", "- later: When? Not played."),
		"text":     {"mine        1  confirmed", "mine        3  not answered: unplayed", "A figure."},
		"markdown": append(rows, "## Claims"),
		"html":     {`id="claims"`, "A | ratio."},
	} {
		var b bytes.Buffer
		var err error
		switch form {
		case "page":
			err = report.ClaimsPage(&b, all)
		case "text":
			err = report.Claims(&b, all)
		case "markdown":
			err = report.Markdown(&b, o)
		case "html":
			err = report.HTML(&b, o)
		}
		for _, w := range want {
			if err != nil || !strings.Contains(b.String(), w) {
				t.Errorf("%s lacks %q (%v):\n%.4000s", form, w, err, b.String())
			}
		}
	}
}
