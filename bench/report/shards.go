package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"watchlab/bench/lab"
)

// mostShards is how many shards are shown one by one.
const mostShards = 32

// partial is " (3 of 4 shards)" for a run that lacks some, to be put behind every title:
// no figure of it is that of the whole.
func partial(o *lab.Outcome) string {
	if o.Merged == nil || len(o.Merged.Missing) == 0 {
		return ""
	}
	return " (" + o.Merged.String() + ")"
}

// shards tells what a run was merged of; the table of a run of one process has no rows.
func shards(o *lab.Outcome) table {
	m := o.Merged
	if m == nil {
		return table{}
	}
	var nodes, kinds []string
	for _, s := range m.Shards {
		if s.Node != "" && !slices.Contains(nodes, s.Node) {
			nodes = append(nodes, s.Node)
		}
		kind := fmt.Sprintf("%s, %s, GOMAXPROCS %d", orNone(s.CPU), Plural(s.Cores, "core"), s.GOMAXPROCS)
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	t := table{title: "Shards"}
	line := "Merged of " + m.String()
	if len(nodes) > 0 {
		line += " on " + Plural(len(nodes), "node")
	}
	t.legend = append(t.legend, line+": counts and distributions are those of all events; events/s are all events over the time of the shard that took longest; memory is that of all processes.")
	if n := len(m.Missing); n > 0 {
		what := "so no figure is shown"
		if m.Partial {
			what = "and all figures are without what they would have measured"
		}
		t.legend = append(t.legend, fmt.Sprintf("Missing: %s; %s.", shardNumbers(m.Missing), what))
	}
	if len(kinds) > 1 {
		t.legend = append(t.legend, fmt.Sprintf("The shards ran on %d kinds of machines: %s.", len(kinds), strings.Join(kinds[:min(len(kinds), 4)], "; ")))
	}
	shown := shownShards(m.Shards)
	if n := len(m.Shards); len(shown) < n {
		t.legend = append(t.legend, fmt.Sprintf("Of %d shards, those %d are shown that were interrupted, begun again, came late, or were robbed of most CPU time; the others are in %s.", n, len(shown), lab.RunFile))
	}
	for _, s := range m.PassedOver {
		t.legend = append(t.legend, fmt.Sprintf("Shard %d, attempt %d%s, is not in it: another attempt of it is.", s.Index, s.Attempt, inPod(s.Pod)))
	}
	if slices.ContainsFunc(m.Shards, func(s lab.MergedShard) bool { return s.Starts > 0 }) {
		t.legend = append(t.legend, "together: plays that the shard was to begin with all others, of which some were not waited for; latest: how long after the common start it began at most, by its own clock.")
	} else if m.Of > 1 {
		t.legend = append(t.legend, "The shards did not wait for each other: what they measured was not measured at the same time.")
	}
	t.grid = shardGrid(shown)
	return t
}

func inPod(pod string) string {
	if pod == "" {
		return ""
	}
	return " (pod " + pod + ")"
}

func shardNumbers(indexes []int) string {
	var out []string
	for _, i := range indexes[:min(len(indexes), mostShards)] {
		out = append(out, fmt.Sprint(i))
	}
	text := Plural(len(indexes), "shard") + " (" + strings.Join(out, ", ")
	if n := len(indexes) - len(out); n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text + ")"
}

// shownShards are all, or the most conspicuous of many, by index.
func shownShards(all []lab.MergedShard) []lab.MergedShard {
	if len(all) <= mostShards {
		return all
	}
	steal := func(s lab.MergedShard) float64 {
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
	slices.SortStableFunc(shown, func(a, b lab.MergedShard) int {
		return cmp.Or(first(a.Interrupted, b.Interrupted), cmp.Compare(b.Attempt, a.Attempt), cmp.Compare(b.Late, a.Late), cmp.Compare(steal(b), steal(a)))
	})
	shown = shown[:mostShards]
	slices.SortFunc(shown, func(a, b lab.MergedShard) int { return a.Index - b.Index })
	return shown
}

func shardGrid(shards []lab.MergedShard) grid {
	var g grid
	for _, c := range []struct {
		name string
		left bool
	}{{"shard", false}, {"pod", true}, {"node", true}, {"attempt", false}, {"took", false}, {"together", false}, {"latest", false}, {"stolen", false}, {"ended", true}} {
		g.column(c.name, c.left)
	}
	for _, s := range shards {
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

// shardNotes are what the page says of shards before anything is believed.
func shardNotes(o *lab.Outcome) []note {
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
		out = append(out, note{Text: fmt.Sprintf("%s: missing %s", m, shardNumbers(m.Missing)), Class: class})
	}
	for _, s := range m.Shards {
		if s.Interrupted {
			out = append(out, note{Text: fmt.Sprintf("shard %d ended before its time", s.Index), Class: "warn"})
		}
	}
	return out
}
