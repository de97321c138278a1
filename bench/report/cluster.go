package report

import (
	"fmt"
	"strings"

	"watchlab/bench/lab"
)

// clusterNotes is the prefix of notes about the watched cluster. All cells of a round
// share one watch and have the same notes. The report therefore shows them once per
// round.
const clusterNotes = "cluster-"

// clusterRound holds the cluster notes of one round, without the prefix.
type clusterRound struct {
	round int
	notes map[string]float64
}

// clusterRounds returns the rounds that watched a cluster; none for other comparisons.
// All cells of a round have the same notes, so one cell with rounds suffices.
func clusterRounds(c *lab.ComparisonResult) []clusterRound {
	for i := range c.Cells {
		var out []clusterRound
		for _, round := range c.Cells[i].Rounds {
			r := clusterRound{round.Round, map[string]float64{}}
			for _, n := range round.Result.Notes {
				if name, ok := strings.CutPrefix(n.Unit, clusterNotes); ok {
					r.notes[name] = n.Value
				}
			}
			if _, ok := r.notes["relists"]; ok {
				out = append(out, r)
			}
		}
		if len(out) > 0 {
			return out
		}
	}
	return nil
}

func (r clusterRound) watchLost() bool { return r.notes["relists"] > 0 || r.notes["resumes"] > 0 }

// watchBreaks describes broken watches and delayed or refused writes, one line per
// affected round.
func watchBreaks(c *lab.ComparisonResult) []string {
	var lines []string
	for _, r := range clusterRounds(c) {
		var parts []string
		count := func(note string) string { return Plural(int(r.notes[note]), "event") }
		if r.watchLost() {
			var how []string
			if n := r.notes["resumes"]; n > 0 {
				how = append(how, "resumed "+timesOf(n))
			}
			if n := r.notes["relists"]; n > 0 {
				how = append(how, "relisted "+timesOf(n))
			}
			parts = append(parts, fmt.Sprintf("the watch was %s, with a gap of %s", strings.Join(how, " and "), nanoseconds(r.notes["gap-ns"])))
		}
		if r.notes["relists"] > 0 {
			parts = append(parts, count("found")+" from the relist; versions between were not seen")
		}
		if r.notes["retried"] > 0 {
			parts = append(parts, fmt.Sprintf("writes of %s retried, for up to %s", count("retried"), nanoseconds(r.notes["outage-ns"])))
		}
		if r.notes["refused"] > 0 {
			parts = append(parts, count("refused")+" refused by the cluster")
		}
		if r.notes["unwritten"] > 0 {
			parts = append(parts, count("unwritten")+" not written before the round ended")
		}
		if len(parts) > 0 {
			lines = append(lines, fmt.Sprintf("round %d: %s", r.round, strings.Join(parts, "; ")))
		}
	}
	return lines
}

func timesOf(n float64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%.0f times", n)
}

// watchRemarks describes the watched cluster of a comparison.
func watchRemarks(c *lab.ComparisonResult) []string {
	rounds := clusterRounds(c)
	if len(rounds) == 0 {
		return nil
	}
	lines := watchBreaks(c)
	unbroken, wrote, written := true, false, 0.0
	for _, r := range rounds {
		unbroken = unbroken && !r.watchLost()
		n, ok := r.notes["written"]
		wrote, written = wrote || ok, written+n
	}
	if unbroken {
		lines = append(lines, "the cluster's watch was unbroken in all rounds")
	}
	if wrote {
		lines = append(lines, fmt.Sprintf("%s written into the cluster, in %s", Plural(int(written), "event"), Plural(len(rounds), "round")))
	}
	return lines
}
