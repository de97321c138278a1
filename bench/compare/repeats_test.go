package compare_test

import (
	"flag"
	"fmt"
	"maps"
	"math"
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

// alarms counts tested figures, and those that were called different, for each run and pair.
type alarms struct {
	runs  int
	pairs map[[2]int][2]int
}

func (a *alarms) add(i, j, differ, of int) {
	if a.pairs == nil {
		a.pairs = map[[2]int][2]int{}
	}
	p := a.pairs[[2]int{i, j}]
	a.pairs[[2]int{i, j}] = [2]int{p[0] + differ, p[1] + of}
}

// sum counts the pairs without a run; -1 leaves none out.
func (a *alarms) sum(without int) (differ, of int) {
	for pair, n := range a.pairs {
		if pair[0] != without && pair[1] != without {
			differ, of = differ+n[0], of+n[1]
		}
	}
	return differ, of
}

func (a *alarms) share(without int) float64 {
	differ, of := a.sum(without)
	return float64(differ) / float64(max(of, 1))
}

// interval is the 95 % interval of the share. Pairs share runs and are no independent tests: its
// standard error is the jackknife's over runs.
func (a *alarms) interval() (lo, hi float64) {
	mean, squares := 0., 0.
	for i := range a.runs {
		mean += a.share(i) / float64(a.runs)
	}
	for i := range a.runs {
		squares += math.Pow(a.share(i)-mean, 2)
	}
	half := 1.96 * math.Sqrt(squares*float64(a.runs-1)/float64(a.runs))
	return max(0, a.share(-1)-half), min(1, a.share(-1)+half)
}

func (a *alarms) row(name string) string {
	differ, of := a.sum(-1)
	lo, hi := a.interval()
	return fmt.Sprintf("| %s | %d | %d | %.1f %% | %.1f to %.1f %% |", name, of, differ, 100*a.share(-1), 100*lo, 100*hi)
}

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
	for i, path := range dirs {
		dirs[i] = filepath.Dir(path)
		run, err := compare.OpenRun(dirs[i])
		if err != nil {
			t.Fatal(err)
		}
		opened = append(opened, run)
	}
	units := map[string]*alarms{}
	total, shown := &alarms{runs: len(dirs)}, &alarms{runs: len(dirs)}
	kinds := []struct {
		name  string
		rules []compare.Rule
		*alarms
		failed, unsure *alarms
	}{
		{"per baseline", perBaseline, &alarms{runs: len(dirs)}, &alarms{runs: len(dirs)}, &alarms{runs: len(dirs)}},
		{"absolute", absolute, &alarms{runs: len(dirs)}, &alarms{runs: len(dirs)}, &alarms{runs: len(dirs)}},
	}
	for j := range dirs {
		for i := range j {
			for _, row := range compare.Compare([]*compare.Run{opened[i], opened[j]}).Rows {
				old, now := row.Cells[0], row.Cells[1]
				if old == nil || now == nil || now.VsBase == nil || constant(old.Values, now.Values) {
					continue
				}
				if units[row.Unit] == nil {
					units[row.Unit] = &alarms{runs: len(dirs)}
				}
				differ := 0
				if now.Significant() {
					differ = 1
				}
				units[row.Unit].add(i, j, differ, 1)
				total.add(i, j, differ, 1)
				if slices.Contains(headline, row.Unit) {
					shown.add(i, j, differ, 1)
				}
			}
			for _, k := range kinds {
				for _, pair := range [][2]int{{i, j}, {j, i}} {
					v, err := compare.Gate(opened[pair[0]], opened[pair[1]], "default rules", k.rules, false)
					if err != nil {
						t.Fatal(err)
					}
					regressed, unsure, failed := 0, 0, 0
					for _, f := range v.Findings {
						switch f.Kind {
						case compare.Regressed:
							regressed++
						case compare.CannotTell:
							unsure++
						}
					}
					if v.Failed {
						failed = 1
					}
					k.add(i, j, regressed, len(v.Findings))
					k.unsure.add(i, j, unsure, len(v.Findings))
					k.failed.add(i, j, failed, 1)
				}
			}
		}
	}
	fmt.Printf("compare: %d runs, %d pairs\n\n| unit | figures | differ | share | 95 %% interval |\n|---|---:|---:|---:|---:|\n", len(dirs), len(dirs)*(len(dirs)-1)/2)
	for _, unit := range slices.Sorted(maps.Keys(units)) {
		if _, of := units[unit].sum(-1); of > 0 {
			fmt.Println(units[unit].row(unit))
		}
	}
	fmt.Println(shown.row(fmt.Sprintf("**%s**", strings.Join(headline, ", "))))
	fmt.Println(total.row("**all**"))
	fmt.Print("\ngate, in both directions:\n\n| rules | of | number | share | 95 % interval |\n|---|---:|---:|---:|---:|\n")
	for _, k := range kinds {
		fmt.Println(k.row(k.name + ": figures regressed"))
		fmt.Println(k.unsure.row(k.name + ": figures cannot tell"))
		fmt.Println(k.failed.row(k.name + ": gates failed"))
	}
	fmt.Println("\nThe pairs share runs, so the intervals are the jackknife's over runs.")
	if s := max(total.share(-1), shown.share(-1)); s > falseAlarms {
		t.Errorf("%.1f %% of the figures differ, at most 6 %% may", 100*s)
	}
	for _, k := range kinds {
		if s := max(k.share(-1), k.failed.share(-1)); s > falseAlarms {
			t.Errorf("gate, %s: %.1f %% regressed or failed, at most 6 %% may", k.name, 100*s)
		}
	}
}

// constant says that all rounds of both runs have the same value.
func constant(a, b []float64) bool {
	return slices.Max(slices.Concat(a, b)) == slices.Min(slices.Concat(a, b))
}
