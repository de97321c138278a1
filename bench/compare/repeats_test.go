package compare_test

import (
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"watchlab/bench/compare"
)

var runs = flag.String("runs", "", "folder of results folders of one binary, for TestRepeats")

// falseAlarms is the allowed share of figures that differ between runs of one binary.
const falseAlarms = 0.06

// headline are the units of README.md's table and of the gate.
var headline = []string{"events/s", "cpu-ns/op", "cpu+gc-ns/op", "p99-ns", "allocs/op", "B/op"}

// alarms counts tests, and those that called equal figures different.
type alarms struct {
	name       string
	differ, of int
}

func (a *alarms) add(differs bool) {
	a.of++
	if differs {
		a.differ++
	}
}

func (a *alarms) share() float64 { return float64(a.differ) / float64(max(a.of, 1)) }

// TestRepeats compares all pairs of runs of one binary, as compare and gate do, and fails if more
// than 6 % of the figures differ or of the gates fail. Figures that are equal in all rounds of both
// runs are not tests and do not count. Each pair is gated in both directions, with the default rules
// and with the same rules on absolute figures.
//
//	go test -run TestRepeats -v ./bench/compare -runs DIR
func TestRepeats(t *testing.T) {
	if *runs == "" {
		t.Skip("asked for by -runs")
	}
	dirs, err := filepath.Glob(filepath.Join(*runs, "*", "run.json"))
	if err != nil || len(dirs) < 2 {
		t.Fatalf("%s holds %d runs: %v", *runs, len(dirs), err)
	}
	perBaseline, _, err := compare.ReadRules("")
	if err != nil {
		t.Fatal(err)
	}
	absolute := slices.Clone(perBaseline)
	for i := range absolute {
		absolute[i].PerBaseline = false
	}
	var opened []*compare.Run
	for _, path := range dirs {
		run := must(compare.OpenRun(filepath.Dir(path)))(t)
		opened = append(opened, run)
	}
	shown, all := &alarms{name: strings.Join(headline, ", ")}, &alarms{name: "all units"}
	counts := []*alarms{shown, all}
	for _, rules := range []struct {
		name  string
		rules []compare.Rule
	}{{"per baseline", perBaseline}, {"absolute", absolute}} {
		regressed, failed := &alarms{name: "gate, " + rules.name + ": figures regressed"}, &alarms{name: "gate, " + rules.name + ": gates failed"}
		counts = append(counts, regressed, failed)
		for i, old := range opened {
			for j, now := range opened {
				if i == j {
					continue
				}
				v := must(compare.Gate(old, now, "default rules", rules.rules, false))(t)
				failed.add(v.Failed)
				for _, f := range v.Findings {
					regressed.add(f.Kind == compare.Regressed)
				}
			}
		}
	}
	for j := range opened {
		for i := range j {
			for _, row := range compare.Compare([]*compare.Run{opened[i], opened[j]}).Rows {
				old, now := row.Cells[0], row.Cells[1]
				if old == nil || now == nil || now.VsBase == nil || constant(old.Values, now.Values) {
					continue
				}
				all.add(now.Significant())
				if slices.Contains(headline, row.Unit) {
					shown.add(now.Significant())
				}
			}
		}
	}
	fmt.Printf("compare: %d runs, each with each\n\n| of | tests | differ | share |\n|---|---:|---:|---:|\n", len(dirs))
	for _, a := range counts {
		fmt.Printf("| %s | %d | %d | %.1f %% |\n", a.name, a.of, a.differ, 100*a.share())
		if a.share() > falseAlarms {
			t.Errorf("%s: %.1f %% differ, at most 6 %% may", a.name, 100*a.share())
		}
	}
}

// constant reports whether all rounds of both runs have the same value.
func constant(a, b []float64) bool {
	return slices.Max(slices.Concat(a, b)) == slices.Min(slices.Concat(a, b))
}
