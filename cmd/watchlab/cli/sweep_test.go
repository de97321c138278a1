package cli

import (
	"encoding/json"
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
	o, err := lab.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
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

func TestKneeThatNothingHolds(t *testing.T) {
	o, _ := sweepRun(t, append([]string{"knee", "--slo", "p99=1ns", "--from", "20000", "--to", "40000", "--lag-budget", "1m", "--duration", "50ms"}, swept...)...)
	for _, k := range o.Knees {
		if k.Held != 0 || k.Failed != 20000 || k.Limit != "latency" || len(k.Points) != 1 {
			t.Errorf("%+v", k)
		}
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

func TestScaleOverKeys(t *testing.T) {
	o, _ := sweepRun(t, "scale", "--over", "keys=50,100", "--ignore-host", "--impl", "ring", "--family", "queue", "--events", "1000", "--rounds", "1", "--storm", "steady", "--nodes", "2")
	if len(o.Scalings) != 1 || o.Scalings[0].Over != "keys" || o.Scalings[0].Fit != nil || !strings.Contains(o.Scalings[0].Why, "workers") {
		t.Errorf("%+v", o.Scalings)
	}
	// The storm itself has that number of keys.
	code, _, errs := call(t, "scale", "--over", "keys=50,100", "--storm", "rollout")
	if code != exitUsage || !strings.Contains(errs, "--pods: storm rollout has") {
		t.Errorf("exit code %d, stderr %q", code, errs)
	}
}

// TestScaleOverWords: values without an order are compared, without a scaling.
func TestScaleOverWords(t *testing.T) {
	o, _ := sweepRun(t, "scale", "--ignore-host", "--family", "deltafifo", "--delivery", "in-order", "--impl", "cond,clientgo-realfifo-batch", "--events", "1000", "--rounds", "1",
		"--storm", "hotkey", "--scale", "0.05", "--over", "skew=uniform,zipf:1.50")
	if len(o.Scalings) != 0 {
		t.Errorf("%+v", o.Scalings)
	}
	skews := map[string][]string{}
	for _, c := range o.Comparisons[0].Cells {
		if c.Repeats == "" {
			skews[c.Label("impl")] = append(skews[c.Label("impl")], c.Label("skew"))
		}
	}
	for impl, got := range skews {
		if !slices.Equal(got, []string{"uniform", "zipf:1.5"}) {
			t.Errorf("%s at skews %q", impl, got)
		}
	}
	if len(skews) != 2 {
		t.Errorf("%q", skews)
	}
}

func TestSweepsBadInput(t *testing.T) {
	there := t.TempDir()
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"knee", "--slo", "p98=1ms"}, `--slo: "p98=1ms" is not QUANTILE=DURATION`},
		{[]string{"knee", "--slo", "p99"}, `--slo: "p99" is not`},
		{[]string{"knee", "--slo", "p99=-1ms"}, `--slo: "p99=-1ms" is not`},
		{[]string{"knee", "--slo", "p99=1ms,p99=2ms"}, "--slo: p99 is named twice"},
		{[]string{"knee", "--from", "0"}, `--from: 0 is less than 1`},
		{[]string{"knee", "--to", "NaN"}, `--to: invalid rate "NaN"`},
		{[]string{"knee", "--from", "10", "--to", "5"}, "--to: 5 is below --from 10"},
		{[]string{"knee", "--resolution", "5"}, `--resolution: "5" is not a percentage`},
		{[]string{"knee", "--resolution", "0%"}, `--resolution: "0%" is not`},
		{[]string{"knee", "--duration", "-1s"}, "--duration: -1s is negative"},
		{[]string{"knee", "--pace", "5"}, "unknown flag: --pace"},
		{[]string{"knee", "--source", "cluster"}, "--source: a search plays"},
		{[]string{"knee", "--stalled", "--storm", tiny}, "stalled"},
		{[]string{"knee", "--family", "nobody"}, `--family: "nobody" is not one of`},
		{[]string{"knee", "--out", there}, "--out: " + there + " exists"},
		{[]string{"scale"}, "--over: is needed"},
		{[]string{"scale", "--over", "producers"}, `--over: "producers" is not of the form`},
		{[]string{"scale", "--over", "paces=1,2"}, `--over: "paces" is not one of producers`},
		{[]string{"scale", "--over", "producers=1"}, "--over: producers: one value"},
		{[]string{"scale", "--over", "producers=1,x"}, `--over: producers: "x" is not a whole number`},
		{[]string{"scale", "--over", "producers=0,1"}, `--over: producers: "0" is not`},
		{[]string{"scale", "--over", "producers=1,01"}, "--over: producers: 01 is named twice"},
		{[]string{"scale", "--over", "producers=1,2", "--producers", "3"}, "--producers: is varied"},
		{[]string{"scale", "--over", "producers=1,2", "--family", "merge", "--storm", tiny}, "2 producers"},
		{[]string{"scale", "--over", "keys=5,6", "--storm", tiny}, "--pods: storm"},
		{[]string{"scale", "--over", "producers=1,2", "--source", "apply"}, "--source: a search"},
		{[]string{"scale", "--over", "shards=1,2", "--impl", "ring", "--storm", tiny}, "no variant takes these options"},
		{[]string{"scale", "--over", "skew=uniform,hot"}, `--over: skew: invalid skew "hot"`},
		{[]string{"scale", "--over", "handler-cost=0,1"}, `--over: handler-cost: "1" is not a duration`},
	} {
		code, out, errs := call(t, tc.args...)
		if code != exitUsage || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, tc.want) {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q; want %q", tc.args, code, out, errs, tc.want)
		}
	}
}

// TestSweepIsInTheJSON: the JSON output has the results of the search.
func TestSweepIsInTheJSON(t *testing.T) {
	code, out, errs := call(t, append([]string{"scale", "--over", "producers=1,2", "-o", "json"}, swept...)...)
	var o lab.Outcome
	if err := json.Unmarshal([]byte(out), &o); code != exitOK || err != nil || len(o.Scalings) != 2 {
		t.Errorf("exit code %d, %v, stderr %q, %d scalings", code, err, errs, len(o.Scalings))
	}
}
