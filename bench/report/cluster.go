package report

import (
	"fmt"
	"strings"

	"watchlab/bench/lab"
)

// clusterPrefix is that of notes about the watched cluster. All cells of a round share one
// watch and have the same notes, so the verdicts describe them once per round.
const clusterPrefix = "cluster-"

// clusterTexts describe the notes about a broken watch, and about delayed or refused writes.
var clusterTexts = []struct{ note, text string }{
	{"resumes", "watch resumed"}, {"relists", "watch relisted"}, {"gap-ns", "without a watch"},
	{"found", "events from relists, without the versions between"}, {"retried", "writes retried"},
	{"outage-ns", "longest delay of a write"}, {"refused", "writes refused"}, {"unwritten", "events not written before the round ended"},
}

// clusterNotes describes the watched cluster of a comparison: the rounds with a broken watch, or with delayed or
// refused writes, and all writes.
func clusterNotes(c *lab.ComparisonResult) (notes []note) {
	rounds, written, breaks := 0, 0.0, 0.0
	for _, cl := range c.Cells {
		for _, round := range cl.Rounds {
			values := map[string]float64{}
			for _, n := range round.Result.Notes {
				if name, ok := strings.CutPrefix(n.Unit, clusterPrefix); ok {
					values[name] = n.Value
				}
			}
			if _, ok := values["relists"]; !ok {
				continue
			}
			rounds, written, breaks = rounds+1, written+values["written"], breaks+values["relists"]+values["resumes"]
			var parts []string
			for _, n := range clusterTexts {
				if v := values[n.note]; v > 0 {
					parts = append(parts, n.text+": "+unitFormat(n.note)(v))
				}
			}
			if len(parts) > 0 {
				notes = append(notes, note{Text: fmt.Sprintf("round %d: %s", round.Round, strings.Join(parts, "; ")), Class: "warn"})
			}
		}
		if rounds > 0 {
			break
		}
	}
	if rounds > 0 && breaks == 0 {
		notes = append(notes, note{Text: "the cluster's watch was unbroken in all rounds", Class: "good"})
	}
	if written > 0 {
		notes = append(notes, note{Text: fmt.Sprintf("%s written into the cluster, in %s", lab.Plural(int(written), "event"), lab.Plural(rounds, "round"))})
	}
	return notes
}
