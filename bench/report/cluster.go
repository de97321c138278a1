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

// The notes about the cluster.
const (
	noteRelists   = clusterNotes + "relists"
	noteResumes   = clusterNotes + "resumes"
	noteGap       = clusterNotes + "gap-ns"
	noteFound     = clusterNotes + "found"
	noteWritten   = clusterNotes + "written"
	noteRefused   = clusterNotes + "refused"
	noteUnwritten = clusterNotes + "unwritten"
	noteRetried   = clusterNotes + "retried"
	noteOutage    = clusterNotes + "outage-ns"
)

// clusterRound holds the cluster notes of one round.
type clusterRound struct {
	round int
	notes map[string]float64
}

// clusterRounds returns the rounds that watched a cluster; none for other comparisons.
func clusterRounds(c *lab.ComparisonResult) []clusterRound {
	var out []clusterRound
	for i := range c.Cells {
		for _, round := range c.Cells[i].Rounds {
			r := clusterRound{round.Round, map[string]float64{}}
			for _, n := range round.Result.Notes {
				if strings.HasPrefix(n.Unit, clusterNotes) {
					r.notes[n.Unit] = n.Value
				}
			}
			if _, ok := r.notes[noteRelists]; ok {
				out = append(out, r)
			}
		}
		// All cells of a round have the same notes, so one cell with rounds suffices.
		if len(out) > 0 {
			break
		}
	}
	return out
}

// breaks describes broken watches and delayed or refused writes, one line per affected
// round.
func breaks(c *lab.ComparisonResult) []string {
	var lines []string
	for _, r := range clusterRounds(c) {
		var parts []string
		if r.has(noteRelists) || r.has(noteResumes) {
			text := "the cluster's watch was"
			if r.has(noteResumes) {
				text += " resumed " + timesOf(r.notes[noteResumes])
			}
			if r.has(noteRelists) {
				if r.has(noteResumes) {
					text += " and"
				}
				text += " listed again " + timesOf(r.notes[noteRelists])
			}
			text += fmt.Sprintf(", %s without it", nanoseconds(r.notes[noteGap]))
			if r.has(noteRelists) {
				text += fmt.Sprintf("; %s for what changed meanwhile, and versions between were not seen", eventsStand(r.notes[noteFound]))
			}
			parts = append(parts, text)
		}
		if r.has(noteRetried) {
			parts = append(parts, fmt.Sprintf("%s had to be written again, over %s at the longest", Plural(int(r.notes[noteRetried]), "event"), nanoseconds(r.notes[noteOutage])))
		}
		if r.has(noteRefused) {
			parts = append(parts, Plural(int(r.notes[noteRefused]), "event")+" the cluster refused")
		}
		if r.has(noteUnwritten) {
			parts = append(parts, Plural(int(r.notes[noteUnwritten]), "event")+" had not been written when the window closed")
		}
		if len(parts) > 0 {
			lines = append(lines, fmt.Sprintf("round %d: %s", r.round, strings.Join(parts, "; ")))
		}
	}
	return lines
}

func (r clusterRound) has(note string) bool { return r.notes[note] > 0 }

func eventsStand(n float64) string {
	if n == 1 {
		return "1 event stands"
	}
	return fmt.Sprintf("%.0f events stand", n)
}

func timesOf(n float64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%.0f times", n)
}

// listened describes the watched cluster of a comparison.
func listened(c *lab.ComparisonResult) []string {
	rounds := clusterRounds(c)
	if len(rounds) == 0 {
		return nil
	}
	lines := breaks(c)
	lost := false
	for _, r := range rounds {
		lost = lost || r.has(noteRelists) || r.has(noteResumes)
	}
	if !lost {
		lines = append(lines, "the cluster's watch stood in all rounds")
	}
	if _, ok := rounds[0].notes[noteWritten]; ok {
		var written float64
		for _, r := range rounds {
			written += r.notes[noteWritten]
		}
		lines = append(lines, fmt.Sprintf("%s written into the cluster, in %s", Plural(int(written), "event"), Plural(len(rounds), "round")))
	}
	return lines
}
