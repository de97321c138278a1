package report_test

import (
	"bytes"
	"strings"
	"testing"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/bench/report"
)

// live returns a comparison that watched a cluster, with the given notes per round.
func live(rounds ...[]cell.Note) *lab.Outcome {
	c := family("deltafifo", "",
		played{impl: "lossy", rate: "live", verdict: lab.Verdict{Status: lab.Invalid, Cause: lab.CauseLost}},
		played{impl: "cond", rate: "live", perSecond: 1e3, rounds: len(rounds)},
		played{impl: "ring", rate: "live", perSecond: 1e3, rounds: len(rounds)},
	)
	for _, cl := range c.Cells {
		for i := range cl.Rounds {
			cl.Rounds[i].Result.Notes = append([]cell.Note{{Unit: "worked", Value: 12345}}, rounds[i]...)
		}
	}
	o := firstRun(c)
	o.Rounds = len(rounds)
	return o
}

func watched(relists, resumes, gap, found float64) []cell.Note {
	return []cell.Note{
		{Unit: "cluster-relists", Value: relists}, {Unit: "cluster-resumes", Value: resumes},
		{Unit: "cluster-gap-ns", Value: gap}, {Unit: "cluster-found", Value: found},
	}
}

func wrote(written, refused, left, retried, outage float64) []cell.Note {
	return []cell.Note{
		{Unit: "cluster-written", Value: written}, {Unit: "cluster-refused", Value: refused}, {Unit: "cluster-unwritten", Value: left},
		{Unit: "cluster-retried", Value: retried}, {Unit: "cluster-outage-ns", Value: outage},
	}
}

// TestClusterWatchBreaks checks that every form of the report describes broken watches once
// per affected round, and the writes.
func TestClusterWatchBreaks(t *testing.T) {
	o := live(
		append(watched(0, 0, 0, 0), wrote(500, 0, 0, 0, 0)...),
		append(watched(1, 0, 4.25e9, 57), wrote(480, 2, 18, 16, 4.5e9)...),
		append(watched(2, 1, 1.5e9, 1), wrote(500, 0, 0, 1, 2e9)...),
	)
	broke := []string{
		"round 2: watch relisted: 1; without a watch: 4.25s; events from relists, without the versions between: 57; " +
			"writes retried: 16; longest delay of a write: 4.50s; writes refused: 2; events not written before the round ended: 18",
		"round 3: watch resumed: 1; watch relisted: 2; without a watch: 1.50s; events from relists, without the versions between: 1; " +
			"writes retried: 1; longest delay of a write: 2s",
	}
	for name, write := range map[string]func(*bytes.Buffer) error{
		"table":    func(b *bytes.Buffer) error { return report.Table(b, o) },
		"markdown": func(b *bytes.Buffer) error { return report.Markdown(b, o) },
		"html":     func(b *bytes.Buffer) error { return report.HTML(b, o) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		text := strings.Join(strings.Fields(strings.ReplaceAll(b.String(), "&#39;", "'")), " ")
		for _, want := range append(broke, "1480 events written into the cluster, in 3 rounds", "worked 12345") {
			if !strings.Contains(text, want) {
				t.Errorf("%s does not say %q:\n%s", name, want, text)
			}
		}
		for _, bad := range []string{"round 1: ", "cluster-relists", "unbroken in all"} {
			if strings.Contains(text, bad) {
				t.Errorf("%s says %q", name, bad)
			}
		}
	}
	var b bytes.Buffer
	if err := o.WriteJSON(&b); err != nil || !strings.Contains(b.String(), `"cluster-relists"`) || !strings.Contains(b.String(), "4250000000") {
		t.Errorf("JSON: %v", err)
	}
}

// TestClusterWatchUnbroken checks that a report mentions an unbroken watch, and no cluster if
// there was none.
func TestClusterWatchUnbroken(t *testing.T) {
	var listening, not bytes.Buffer
	if err := report.Table(&listening, live(watched(0, 0, 0, 0))); err != nil {
		t.Fatal(err)
	}
	if text := listening.String(); !strings.Contains(text, "the cluster's watch was unbroken in all rounds") || strings.Contains(text, "written into") {
		t.Error(text)
	}
	if err := report.Table(&not, fixture()); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(not.String(), "cluster's watch") {
		t.Error(not.String())
	}
}
