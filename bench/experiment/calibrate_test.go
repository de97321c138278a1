package experiment

import (
	"slices"
	"testing"
	"time"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/bench/pipeline"
)

// TestCalibrated: a pace that no machine keeps is left out before the run and named in its outcome;
// other parts stay.
func TestCalibrated(t *testing.T) {
	t.Parallel()
	part := Spec{Config: pipeline.Config{Family: "queue", Impls: []string{"clientgo-fifo", "ring"}, Events: 200}, Storm: Storm{Name: "gang", Scale: 0.01}}
	late, own := part, part
	late.Paces, late.LagBudget.Duration, late.Duration.Duration = []string{"10000"}, 1, 50*time.Millisecond
	own.Paces = []string{"trace"}
	plan, err := New(Spec{Calibrate: true, Parts: []Spec{part, late, own}})
	if err == nil {
		plan, err = plan.Calibrated(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	s := plan.Spec
	if s.Calibrate || len(s.Parts) != 2 || len(s.Parts[0].Paces) != 0 || !slices.Equal(s.Parts[1].Paces, own.Paces) ||
		!slices.Equal(s.Unkept, late.Paces) || !slices.Equal(plan.Options.Unkept, s.Unkept) {
		t.Errorf("%s", s.JSON())
	}
}

// TestKeeps: late releases and a slow variant lower a pace, a broken variant does not.
func TestKeeps(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		verdict lab.Verdict
		late    float64
		perSec  float64
		want    bool
	}{
		"in time":       {lab.Verdict{Status: lab.Noisy}, 0.001, 995, true},
		"often late":    {lab.Verdict{Status: lab.Valid}, 0.008, 995, false},
		"slow":          {lab.Verdict{Status: lab.Valid}, 0, 500, false},
		"machine taken": {lab.Verdict{Status: lab.Invalid, Cause: lab.CauseSteal}, 0, 0, false},
		"broken":        {lab.Verdict{Status: lab.Invalid, Cause: lab.CauseLost}, 0, 0, true},
	} {
		c := lab.CellResult{Verdict: tc.verdict}
		if tc.perSec > 0 {
			c.Rounds = []lab.Round{{Result: cell.Result{EventsPerSecond: tc.perSec, Lag: &cell.Lag{LateShare: tc.late}}}}
		}
		if got := keeps(&lab.Outcome{Comparisons: []lab.ComparisonResult{{Cells: []lab.CellResult{c}}}}, 1000); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
