package report

import (
	"fmt"
	"slices"
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

// watchBreaks lists broken watches and delayed or refused writes, one line per affected
// round.
func watchBreaks(c *lab.ComparisonResult) []string {
	var lines []string
	for _, r := range clusterRounds(c) {
		var parts []string
		for _, n := range []struct{ note, text string }{
			{"resumes", "watch resumed"}, {"relists", "watch relisted"}, {"gap-ns", "without a watch"}, {"found", "events from relists, without the versions between"},
			{"retried", "writes retried"}, {"outage-ns", "longest delay of a write"}, {"refused", "writes refused"}, {"unwritten", "events not written before the round ended"},
		} {
			v := r.notes[n.note]
			switch {
			case v <= 0:
			case strings.HasSuffix(n.note, "-ns"):
				parts = append(parts, n.text+": "+nanoseconds(v))
			default:
				parts = append(parts, n.text+": "+trimmed(v))
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
	written := 0.0
	for _, r := range rounds {
		written += r.notes["written"]
	}
	if !slices.ContainsFunc(rounds, clusterRound.watchLost) {
		lines = append(lines, "the cluster's watch was unbroken in all rounds")
	}
	if written > 0 {
		lines = append(lines, fmt.Sprintf("%s written into the cluster, in %s", Plural(int(written), "event"), Plural(len(rounds), "round")))
	}
	return lines
}
