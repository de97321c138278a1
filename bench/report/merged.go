package report

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/duration"

	"watchlab/bench/chart"
	"watchlab/bench/lab"
)

// mostShares is the maximum number of shares in the table.
const mostShares = 32

// partial returns " (3 of 4 shares)" for an incomplete run, and "" otherwise. It
// follows every title, because every figure is incomplete.
func partial(o *lab.Outcome) string {
	if o.Merged == nil || len(o.Merged.Missing) == 0 {
		return ""
	}
	return " (" + o.Merged.String() + ")"
}

// shares returns the section of the shares of a merged run.
func shares(m *lab.Merged) section {
	var nodes []string
	for _, s := range m.Shares {
		nodes = append(nodes, s.Node)
	}
	intro := "Merged from " + m.String()
	if nodes = distinct(nodes); len(nodes) > 0 {
		intro += " on " + lab.Plural(len(nodes), "node")
	}
	intro += ": counts and distributions are those of all events; events/s are all events over the time of the slowest share."
	shown := m.Shares
	if len(shown) > mostShares {
		shown = slices.SortedStableFunc(slices.Values(shown), func(a, b lab.MergedShare) int { return cmp.Compare(b.Late, a.Late) })[:mostShares]
	}
	t := shareTable(shown)
	if n := len(m.Shares); len(shown) < n {
		t.Legend = append(t.Legend, fmt.Sprintf("Of %d shares, the %d latest are shown; the others are in %s.", n, len(shown), lab.RunFile))
	}
	t.Legend = append(t.Legend, "together: plays that started at a barrier, and those of them without all shares; latest: the largest delay after the common start, by the share's clock.")
	return section{ID: "shares", Heading: "Shares", Intro: intro, Tables: []*chart.Table{t}}
}

func shareTable(shares []lab.MergedShare) *chart.Table {
	t := chart.NewTable("Shares of the run", nil, "share")
	t.Words("pod", "node")
	t.Figures("attempt", "took", "together", "latest", "steal")
	t.Words("ended")
	for _, s := range shares {
		together, late, steal, ended := chart.None, chart.None, chart.None, "completely"
		if s.Starts > 0 {
			together, late = fmt.Sprint(s.Starts), chart.Nanoseconds(float64(s.Late.Nanoseconds()))
			if s.Alone > 0 {
				together += fmt.Sprintf(" (%d without some)", s.Alone)
			}
		}
		if s.StealShare != nil {
			steal = fmt.Sprintf("%.1f %%", *s.StealShare*100)
		}
		if s.Interrupted {
			ended = "interrupted"
		}
		t.Add(fmt.Sprint(s.Index), cmp.Or(s.Pod, chart.None), cmp.Or(s.Node, chart.None), fmt.Sprint(s.Attempt), duration.HumanDuration(s.Spent), together, late, steal, ended)
	}
	return t
}

// shareNotes returns the verdict's notes about missing and interrupted shares.
func shareNotes(m *lab.Merged) []note {
	if m == nil {
		return nil
	}
	var out []note
	if len(m.Missing) > 0 {
		out = append(out, note{Text: "Missing: " + lab.ShareNumbers(m.Missing) + "; all figures are without them", Class: "warn"})
	}
	for _, s := range m.Shares {
		if s.Interrupted {
			out = append(out, note{Text: fmt.Sprintf("share %d was interrupted", s.Index), Class: "warn"})
		}
	}
	return out
}
