package controller_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"watchlab/bench/controller"
	"watchlab/bench/controller/record"
	"watchlab/bench/controller/verdict"
	"watchlab/bench/internal/golden"
	"watchlab/bench/lab"
)

// judged returns a result of two programs; the new one has a hot loop with faults. Its texts have markup.
func judged() *controller.Result {
	r := &controller.Result{
		Sentence: "new fails 2 of 8 verdicts under storm nodeloss: hot loop, 100% of <pods>.",
		Env:      lab.Env{Started: time.Date(2026, 11, 23, 9, 30, 0, 0, time.UTC)},
		Programs: []string{"old", "new"},
		Spec: controller.Spec{Programs: []controller.Program{
			{Label: "old", Command: []string{"./old"}}, {Label: "new", Command: []string{"./new", "--workers=4"}},
		}},
		Shrunk: &controller.Shrunk{Plan: "all", Verdict: verdict.HotLoop, Faults: []string{"relist:at=12s"}, Of: 9, Plays: 6, Failed: 3,
			Repeated: 3, Command: "watchlab controller --faults relist:at=12s -- ./new --workers=4"},
	}
	for _, program := range r.Programs {
		for _, plan := range []string{"none", "all"} {
			for round := range 2 {
				name := "program=" + program + "/faults=" + plan + "/round=" + string(rune('1'+round))
				p := controller.Play{Name: name, Plan: plan, Round: round + 1, Folder: "plays/" + strings.ReplaceAll(name, "/", ",")}
				p.Play = record.Play{Program: program, End: 45*time.Second + 100*time.Millisecond}
				hot := verdict.Verdict{Name: verdict.HotLoop, Text: "0 writes without a change"}
				if program == "new" && plan == "all" {
					hot = verdict.Verdict{Name: verdict.HotLoop, Failed: true, Text: "812 writes without a change to 3 objects, 100% of <pods>",
						Evidence: []verdict.Evidence{
							{At: 12345 * time.Millisecond, Text: "update deployments.apps default/web|1: version 1208 again"},
							{At: 12346 * time.Millisecond, Text: "update deployments.apps default/web: ```, \x1b[31m & \"quotes\""},
						}}
				}
				lost := verdict.Verdict{Name: verdict.LostUpdates, Text: "everything is as the rules say"}
				if program == "old" && plan == "none" && round == 1 {
					lost = verdict.Verdict{Name: verdict.LostUpdates, Failed: true, Text: "deployments.apps default/web: 3 pods, want 5"}
				}
				p.Verdicts = []verdict.Verdict{lost, hot}
				r.Plays = append(r.Plays, p)
			}
		}
	}
	return r
}

func text(t *testing.T, write func(io.Writer) error) string {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestJUnit(t *testing.T) {
	r := judged()
	golden.Check(t, "junit.xml", text(t, r.WriteJUnit))
	if full := errors.New("disk full"); !errors.Is(r.WriteJUnit(failing{full}), full) {
		t.Error("a failed write is no error")
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
