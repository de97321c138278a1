package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// swept are the flags of a short sweep.
var swept = []string{"--ignore-host", "--family", "deltafifo", "--delivery", "in-order", "--impl", "cond,clientgo-realfifo-batch", "--events", "1000", "--rounds", "1", "--storm", tiny}

// sweepRun runs a sweep with a results folder and returns its outcome.
func sweepRun(t *testing.T, args ...string) (*lab.Outcome, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "out")
	code, out, errs := call(t, append(slices.Clone(args), "--out", dir)...)
	if code != exitOK {
		t.Fatalf("%q: exit code %d, stderr %q, stdout\n%s", args, code, errs, out)
	}
	o := must(lab.Load(dir))(t)
	if _, err := os.Stat(filepath.Join(dir, lab.ReportFile)); err != nil {
		t.Error(err)
	}
	return o, out
}

func TestKnee(t *testing.T) {
	// All rates are easy, and the lag budget is generous. Other tests search with a fake clock.
	o, out := sweepRun(t, append([]string{"knee", "--slo", "p99=1m,max=1m", "--from", "20000", "--to", "40000", "--lag-budget", "1m", "--duration", "50ms"}, swept...)...)
	if len(o.Knees) != 4 {
		t.Fatalf("%d knees of two variants and two objectives: %+v", len(o.Knees), o.Knees)
	}
	for _, k := range o.Knees {
		if k.Held != 40000 || k.Failed != 0 || k.Limit != "search" || len(k.Points) != 2 || k.Points[0].Latency[stats.UnitP99] <= 0 ||
			!strings.HasPrefix(k.Cell, "DeltaFIFO/impl="+k.Impl+"/") || strings.Contains(k.Cell, "rate=") {
			t.Errorf("%+v", k)
		}
	}
	if o.Name != "knee" || len(o.Comparisons) != 1 || !strings.HasSuffix(o.Comparisons[0].Title, "knee for p99=1m,max=1m") {
		t.Errorf("%s: %+v", o.Name, o.Comparisons)
	}
	for _, c := range o.Comparisons[0].Cells {
		if c.Repeats != "" {
			t.Errorf("a search has no A/A pairs: %s", c.BenchName())
		}
	}
	if !strings.Contains(out, "Highest rates") {
		t.Errorf("the table lacks the knees:\n%s", out)
	}
}

func TestScale(t *testing.T) {
	o, _ := sweepRun(t, append([]string{"scale", "--over", "producers=4,1,2,3"}, swept...)...)
	if len(o.Scalings) != 2 {
		t.Fatalf("%+v", o.Scalings)
	}
	for _, s := range o.Scalings {
		if s.Over != "producers" || len(s.Points) != 4 || s.Points[0].N != 1 || s.Points[3].N != 4 || (s.Fit == nil) == (s.Why == "") {
			t.Errorf("%+v", s)
		}
	}
	// One comparison with an A/A pair; its title has the axis.
	c := o.Comparisons[0]
	if len(o.Comparisons) != 1 || len(c.Cells) != 9 || c.Cells[8].Repeats == "" || !strings.HasSuffix(c.Title, ", over producers") || strings.Contains(c.Title, "4 producers") {
		t.Errorf("%d comparisons, %q, %d cells", len(o.Comparisons), c.Title, len(c.Cells))
	}
	if c.Input == "" {
		t.Error("no digest of what was played: it could not be taken up again")
	}
}
