package report

import (
	"fmt"
	"strings"

	"watchlab/bench/chart"
	"watchlab/bench/lab"
)

// clusterNotes is the prefix of notes about the watched cluster. All cells of a round share one
// watch and have the same notes. The report therefore shows them once per round.
const clusterNotes = "cluster-"

// clusterRound holds the cluster notes of one round, without the prefix.
type clusterRound struct {
	round int
	notes map[string]float64
}

// clusterRounds returns the rounds that watched a cluster, of any cell with rounds.
func clusterRounds(c *lab.ComparisonResult) (out []clusterRound) {
	for _, cl := range c.Cells {
		for _, round := range cl.Rounds {
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
			break
		}
	}
	return out
}

// clusterTexts describe the notes about a broken watch, and about delayed or refused writes.
var clusterTexts = []struct{ note, text string }{
	{"resumes", "watch resumed"}, {"relists", "watch relisted"}, {"gap-ns", "without a watch"},
	{"found", "events from relists, without the versions between"}, {"retried", "writes retried"},
	{"outage-ns", "longest delay of a write"}, {"refused", "writes refused"}, {"unwritten", "events not written before the round ended"},
}

// watchBreaks has a line for each round with a broken watch, or delayed or refused writes.
func watchBreaks(c *lab.ComparisonResult) []string {
	var lines []string
	for _, r := range clusterRounds(c) {
		var parts []string
		for _, n := range clusterTexts {
			if v := r.notes[n.note]; v > 0 {
				format := trimmed
				if strings.HasSuffix(n.note, "-ns") {
					format = chart.Nanoseconds
				}
				parts = append(parts, n.text+": "+format(v))
			}
		}
		if len(parts) > 0 {
			lines = append(lines, fmt.Sprintf("round %d: %s", r.round, strings.Join(parts, "; ")))
		}
	}
	return lines
}

// watchRemarks describes the watched cluster of a comparison.
func watchRemarks(c *lab.ComparisonResult) []string {
	rounds := clusterRounds(c)
	if len(rounds) == 0 {
		return nil
	}
	lines := watchBreaks(c)
	written, breaks := 0.0, 0.0
	for _, r := range rounds {
		written += r.notes["written"]
		breaks += r.notes["relists"] + r.notes["resumes"]
	}
	if breaks == 0 {
		lines = append(lines, "the cluster's watch was unbroken in all rounds")
	}
	if written > 0 {
		lines = append(lines, fmt.Sprintf("%s written into the cluster, in %s", lab.Plural(int(written), "event"), lab.Plural(len(rounds), "round")))
	}
	return lines
}
