package report_test

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"watchlab/bench/cell"
	"watchlab/bench/internal/golden"
	"watchlab/bench/lab"
	"watchlab/bench/report"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// goldenRun is the fixture with what the text forms show beside it: an interrupted run, other guarantees,
// A/A pairs, notes, and a cell without all its rounds.
func goldenRun() *lab.Outcome {
	o := fixture()
	o.Interrupted = true
	for i := range o.Comparisons[0].Cells {
		if c := &o.Comparisons[0].Cells[i]; c.Impl() == "sharded" {
			c.Guarantees, c.Class = "order per-key, coalesces deltas, bounded", "per-key"
		}
	}
	pairs := family("queue", "clientgo-fifo",
		played{"queue", "memory", "gang", "clientgo-fifo", lab.Unpaced, 3.3e6, 300, 3, lab.Verdict{}, 7},
		played{"queue", "memory", "gang", "ring", lab.Unpaced, 9e6, 100, 0, lab.Verdict{}, 6},
		played{"queue", "memory", "gang", "robbed", lab.Unpaced, 9e7, 100, 0, lab.Verdict{Status: lab.Invalid, Cause: lab.CauseSteal, Detail: "12 % of the CPU time went to others"}, 0},
		played{"queue", "memory", "gang", "clientgo-fifo-again", lab.Unpaced, 3.32e6, 300, 3, lab.Verdict{}, 7},
		played{"queue", "memory", "gang", "ring-again", lab.Unpaced, 8e6, 100, 0, lab.Verdict{}, 7},
		played{"queue", "memory", "gang", "robbed-again", lab.Unpaced, 8e6, 100, 0, lab.Verdict{Status: lab.Unplayed}, 0},
	)
	pairs.Rounds = 7
	for i := range pairs.Cells {
		c := &pairs.Cells[i]
		if first, ok := strings.CutSuffix(c.Impl(), "-again"); ok {
			c.Repeats = strings.Replace(c.BenchName(), c.Impl(), first, 1)
		}
		for j := range c.Rounds {
			c.Rounds[j].Result.Notes = []cell.Note{{Unit: "staleness-p99-events", Value: 12}, {Unit: "drain-ns/event", Value: 250}, {Unit: "cycles/op", Value: 345.6}}
		}
	}
	o.Comparisons = append(o.Comparisons, pairs)
	return o
}

func TestGolden(t *testing.T) {
	for name, write := range map[string]func(io.Writer, *lab.Outcome) error{
		"table.txt": report.Table, "report.md": report.Markdown,
	} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := write(&got, goldenRun()); err != nil {
				t.Fatal(err)
			}
			golden.Check(t, name, got.String())
		})
	}
}
