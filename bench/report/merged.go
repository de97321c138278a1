package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

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

// shares returns the table of the shares of a merged run. For a run of one process it
// has no rows.
func shares(o *lab.Outcome) table {
	m := o.Merged
	if m == nil {
		return table{}
	}
	var nodes, kinds []string
	for _, s := range m.Shares {
		if s.Node != "" && !slices.Contains(nodes, s.Node) {
			nodes = append(nodes, s.Node)
		}
		kind := fmt.Sprintf("%s, %s, GOMAXPROCS %d", orNone(s.CPU), Plural(s.Cores, "core"), s.GOMAXPROCS)
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	t := table{title: "Shares"}
	line := "Merged of " + m.String()
	if len(nodes) > 0 {
		line += " on " + Plural(len(nodes), "node")
	}
	t.legend = append(t.legend, line+": counts and distributions are those of all events; events/s are all events over the time of the share that took longest; memory is that of all processes.")
	if n := len(m.Missing); n > 0 {
		what := "so no figure is shown"
		if m.Partial {
			what = "and all figures are without what they would have measured"
		}
		t.legend = append(t.legend, fmt.Sprintf("Missing: %s; %s.", shareNumbers(m.Missing), what))
	}
	if len(kinds) > 1 {
		t.legend = append(t.legend, fmt.Sprintf("The shares ran on %d kinds of machines: %s.", len(kinds), strings.Join(kinds[:min(len(kinds), 4)], "; ")))
	}
	shown := shownShares(m.Shares)
	if n := len(m.Shares); len(shown) < n {
		t.legend = append(t.legend, fmt.Sprintf("Of %d shares, those %d are shown that were interrupted, begun again, came late, or were robbed of most CPU time; the others are in %s.", n, len(shown), lab.RunFile))
	}
	for _, s := range m.Superseded {
		t.legend = append(t.legend, fmt.Sprintf("Share %d, attempt %d%s, is not in it: another attempt of it is.", s.Index, s.Attempt, inPod(s.Pod)))
	}
	if slices.ContainsFunc(m.Shares, func(s lab.MergedShare) bool { return s.Starts > 0 }) {
		t.legend = append(t.legend, "together: plays that the share was to begin with all others, of which some were not waited for; latest: how long after the common start it began at most, by its own clock.")
	} else if m.Of > 1 {
		t.legend = append(t.legend, "The shares did not wait for each other: what they measured was not measured at the same time.")
	}
	t.grid = shareGrid(shown)
	return t
}

func inPod(pod string) string {
	if pod == "" {
		return ""
	}
	return " (pod " + pod + ")"
}

func shareNumbers(indexes []int) string {
	var out []string
	for _, i := range indexes[:min(len(indexes), mostShares)] {
		out = append(out, fmt.Sprint(i))
	}
	text := Plural(len(indexes), "share") + " (" + strings.Join(out, ", ")
	if n := len(indexes) - len(out); n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text + ")"
}

// shownShares returns all shares, or the mostShares most conspicuous ones, by index.
func shownShares(all []lab.MergedShare) []lab.MergedShare {
	if len(all) <= mostShares {
		return all
	}
	steal := func(s lab.MergedShare) float64 {
		if s.StealShare == nil {
			return 0
		}
		return *s.StealShare
	}
	first := func(a, b bool) int {
		switch {
		case a == b:
			return 0
		case a:
			return -1
		}
		return 1
	}
	shown := slices.Clone(all)
	slices.SortStableFunc(shown, func(a, b lab.MergedShare) int {
		return cmp.Or(first(a.Interrupted, b.Interrupted), cmp.Compare(b.Attempt, a.Attempt), cmp.Compare(b.Late, a.Late), cmp.Compare(steal(b), steal(a)))
	})
	shown = shown[:mostShares]
	slices.SortFunc(shown, func(a, b lab.MergedShare) int { return a.Index - b.Index })
	return shown
}

func shareGrid(shares []lab.MergedShare) grid {
	var g grid
	for _, c := range []struct {
		name string
		left bool
	}{{"share", false}, {"pod", true}, {"node", true}, {"attempt", false}, {"took", false}, {"together", false}, {"latest", false}, {"stolen", false}, {"ended", true}} {
		g.column(c.name, c.left)
	}
	for _, s := range shares {
		together, late, stolen, ended := none, none, none, "itself"
		if s.Starts > 0 {
			together, late = fmt.Sprint(s.Starts), nanoseconds(float64(s.Late.Nanoseconds()))
			if s.Alone > 0 {
				together += fmt.Sprintf(" (%d without some)", s.Alone)
			}
		}
		if s.StealShare != nil {
			stolen = fmt.Sprintf("%.1f %%", *s.StealShare*100)
		}
		if s.Interrupted {
			ended = "before its time"
		}
		g.rows = append(g.rows, []string{
			fmt.Sprint(s.Index), orNone(s.Pod), orNone(s.Node), fmt.Sprint(s.Attempt), wallTime(s.Spent), together, late, stolen, ended,
		})
	}
	return g
}

// shareNotes returns the page's notes about incomplete and interrupted shares.
func shareNotes(o *lab.Outcome) []note {
	m := o.Merged
	if m == nil {
		return nil
	}
	var out []note
	if len(m.Missing) > 0 {
		class := "bad"
		if m.Partial {
			class = "warn"
		}
		out = append(out, note{Text: fmt.Sprintf("%s: missing %s", m, shareNumbers(m.Missing)), Class: class})
	}
	for _, s := range m.Shares {
		if s.Interrupted {
			out = append(out, note{Text: fmt.Sprintf("share %d ended before its time", s.Index), Class: "warn"})
		}
	}
	return out
}
