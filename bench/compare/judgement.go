package compare

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"golang.org/x/perf/benchunit"
)

// Text writes one line per finding. Held and improved figures are only counted.
func (v *Judgement) Text(w io.Writer) error {
	var b bytes.Buffer
	counts := map[FindingKind]int{}
	for i := range v.Findings {
		f := &v.Findings[i]
		counts[f.Kind]++
		if f.Kind != Held && f.Kind != Improved {
			fmt.Fprintf(&b, "%s: %s\n", f.Kind, f.line(v.Rules))
		}
	}
	for _, note := range v.Notes {
		fmt.Fprintf(&b, "note: %s\n", note)
	}
	var sums []string
	for _, k := range kinds {
		if counts[k] > 0 {
			sums = append(sums, fmt.Sprintf("%d %s", counts[k], k))
		}
	}
	outcome := "passed"
	switch {
	case v.Failed:
		outcome = "failed"
	case counts[Undecided] == len(v.Findings):
		outcome = "undecided"
	}
	fmt.Fprintf(&b, "gate %s: of %d figures, %s (%s against %s)\n", outcome, len(v.Findings), strings.Join(sums, ", "), v.New, v.Old)
	_, err := w.Write(b.Bytes())
	return err
}

// line writes a finding: cell, figure, both medians, the allowed change and the reason.
func (f *Finding) line(rules string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", f.Cell, f.rule)
	if f.P != nil {
		fmt.Fprintf(&b, " %s → %s", figureOf(f.Old, f.Metric, f.PerBaseline), figureOf(f.New, f.Metric, f.PerBaseline))
		if f.Change != nil {
			fmt.Fprintf(&b, ", %+.1f %%", *f.Change*100)
		}
		if f.Lo != nil {
			fmt.Fprintf(&b, " (%+.1f to %+.1f %%)", *f.Lo*100, *f.Hi*100)
		}
		fmt.Fprintf(&b, ", allowed %s, p=%.3g", f.rule.allows(), *f.P)
		if f.Adjusted != nil {
			fmt.Fprintf(&b, ", corrected %.2g", *f.Adjusted)
		}
	}
	if f.Why != "" {
		fmt.Fprintf(&b, "; %s", f.Why)
	}
	if f.Kind == Regressed {
		fmt.Fprintf(&b, "; because %s (%s:%d)", f.Because, rules, f.Line)
	}
	return b.String()
}

// figureOf writes a figure with its unit and prefix, or as a multiple of the baseline.
func figureOf(v float64, metric string, perBaseline bool) string {
	if perBaseline {
		return fmt.Sprintf("%.3g×", v)
	}
	tidy, unit := benchunit.Tidy(v, metric)
	return benchunit.Scale(tidy, benchunit.ClassOf(unit))
}

// JSON writes all findings.
func (v *Judgement) JSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
