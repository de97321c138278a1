package report_test

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"watchlab/bench/lab"
	"watchlab/bench/report"
)

// mergedOf returns the fixture as a merged run.
func mergedOf(m lab.Merged) *lab.Outcome {
	o := fixture()
	o.Merged = &m
	return o
}

// all writes a run in every human-readable form.
func all(t *testing.T, o *lab.Outcome) map[string]string {
	t.Helper()
	out := map[string]string{}
	for name, write := range map[string]func(io.Writer, *lab.Outcome) error{"table": report.Table, "markdown": report.Markdown, "html": report.HTML} {
		var b bytes.Buffer
		if err := write(&b, o); err != nil {
			t.Fatal(err)
		}
		out[name] = b.String()
	}
	return out
}

// TestMergedRuns checks that every report describes the shares: their number,
// nodes, late starts, restarts and absences. Every title of a partial run mentions it.
func TestMergedRuns(t *testing.T) {
	steal := 0.125
	whole := lab.Merged{Of: 4}
	for i := range 4 {
		whole.Shares = append(whole.Shares, lab.MergedShare{
			Index: i, Pod: fmt.Sprintf("mine-%d-abc", i), Node: fmt.Sprintf("node-%d", i%2), Spent: 90 * time.Second,
			Starts: 12, Late: time.Duration(i) * 7 * time.Millisecond,
		})
	}
	whole.Shares[3].Alone, whole.Shares[2].StealShare, whole.Shares[2].Attempt = 2, &steal, 1
	lacking := whole
	lacking.Missing, lacking.Shares = []int{1}, append(whole.Shares[:1:1], whole.Shares[2:]...)
	for name, tc := range map[string]struct {
		merged  lab.Merged
		says    []string
		nowhere []string
		titles  int
	}{
		"whole": {whole, []string{
			"Merged from 4 shares on 2 nodes", "mine-3-abc", "node-1", "12 (2 without some)", "21ms", "12.5 %",
		}, []string{"Missing"}, 0},
		"lacking": {lacking, []string{"Merged from 3 of 4 shares on 2 nodes", "Missing: share 1; all figures are without them"}, []string{"mine-1-abc"}, 3},
		"no waiting": {lab.Merged{Of: 2, Shares: []lab.MergedShare{{Index: 0}, {Index: 1, Interrupted: true}}},
			[]string{"Merged from 2 shares:", "interrupted"}, nil, 0},
	} {
		for form, text := range all(t, mergedOf(tc.merged)) {
			unwrapped := strings.Join(strings.Fields(strings.ReplaceAll(text, `\_`, "_")), " ")
			for _, s := range tc.says {
				if !strings.Contains(unwrapped, s) {
					t.Errorf("%s: %s doesn't say %q", name, form, s)
				}
			}
			for _, s := range tc.nowhere {
				if strings.Contains(text, s) {
					t.Errorf("%s: %s says %q", name, form, s)
				}
			}
			// Two comparisons, and the title of every form but the table.
			want := tc.titles
			if form == "table" && want > 0 {
				want--
			}
			if n := strings.Count(text, "(3 of 4 shares)"); n < want || want == 0 && n > 0 {
				t.Errorf("%s: %s has %d marks of a partial run, want %d", name, form, n, want)
			}
		}
	}
	for form, text := range all(t, fixture()) {
		if strings.Contains(text, "shares") {
			t.Errorf("%s of a run of one process mentions shares", form)
		}
	}
}

// TestManyPods checks that only the latest of 1,000 shares are shown.
func TestManyPods(t *testing.T) {
	m := lab.Merged{Of: 1000}
	for i := range 1000 {
		m.Shares = append(m.Shares, lab.MergedShare{Index: i, Pod: fmt.Sprintf("pod-%d-x", i), Starts: 1})
	}
	m.Shares[17].Late, m.Shares[999].Late = time.Second, time.Millisecond
	for form, text := range all(t, mergedOf(m)) {
		for _, want := range []string{"pod-17-x", "pod-999-x", "Of 1000 shares, the 32 latest are shown"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %q", form, want)
			}
		}
		if n := strings.Count(text, "pod-"); n < 32 || n > 40 {
			t.Errorf("%s shows %d pods", form, n)
		}
	}
}
