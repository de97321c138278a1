package experiment_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"watchlab/bench/experiment"
	"watchlab/bench/lab"
	"watchlab/bench/pipeline"
	"watchlab/bench/stats"
	"watchlab/loadgen/storm"
)

// TestExperiments: every built-in experiment can be planned, and each claim names one cell for each figure.
func TestExperiments(t *testing.T) {
	all, err := experiment.Experiments()
	if err != nil || len(all) < 15 {
		t.Fatal(len(all), err)
	}
	for _, e := range all {
		if slices.Contains(storm.Names(), e.Spec.Storm.Name) {
			e.Spec.Storm.Pods, e.Spec.Storm.Nodes, e.Spec.Storm.Scale = 0, 0, 0.01
		}
		e.Spec.Events, e.Spec.Duration.Duration = 100, 10*time.Millisecond
		if _, err := experiment.New(e.Spec); err != nil || !strings.HasSuffix(e.Spec.Question, "?") {
			t.Errorf("%s: %v, %s", e.Name, err, e.Spec.Question)
		}
	}
}

func TestExperimentsByName(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	const good = "question: Q?\nfamily: queue\nclaims: [{says: S., unit: events/s, variant: {impl: ring}, relation: at least, bound: 1}]\n"
	one := write("one.yaml", good)
	write(".hidden.yaml", "no experiment")
	for want, names := range map[string][]string{
		"130767-readers 130767-staleness 130767-stores": {"130767"}, "1326 1377": {"1326", "1377"}, "one": {one}, "one 1326": {one, "1326"},
	} {
		var got []string
		all, err := experiment.Experiments(names...)
		for _, e := range all {
			got = append(got, e.Name)
		}
		if strings.Join(got, " ") != want || err != nil {
			t.Errorf("%q: %q, %v", names, got, err)
		}
	}
	claim := func(s string) string { return strings.Replace(good, "unit: events/s", s, 1) }
	for want, names := range map[string][]string{
		`unknown experiment "77" (have 103789, 130767-readers,`: {"77"},
		"an experiment named one is given twice":                {one, one},
		"no such file":                                          {filepath.Join(dir, "none.yaml")},
		"is a directory":                                        {t.TempDir()},
		"the name of an experiment begins with a dot":           {filepath.Join(dir, ".hidden.yaml")},
		"q.yaml: question: is needed":                           {write("q.yaml", "family: queue\n")},
		"c.yaml:1: claims: are needed":                          {write("c.yaml", "claims: []\nquestion: Q?\n")},
		"u.yaml:3: claims.0.unit: is needed":                    {write("u.yaml", strings.Replace(good, "unit: events/s, ", "", 1))},
		"r.yaml:3: claims.0.relation: \"above\" is not one of":  {write("r.yaml", strings.Replace(good, "at least", "above", 1))},
		"b.yaml:3: claims.0.bound: -1 is not above 0":           {write("b.yaml", strings.Replace(good, "bound: 1", "bound: -1", 1))},
		"f.yaml:3: unknown field \"many\"":                      {write("f.yaml", claim("many: 1, unit: events/s"))},
		"k.yaml:3: claims: are not for a knee search":           {write("k.yaml", good+"search: {knee: {}}\n")},
		"p.yaml:4: parts.0.claims: a part has no claims":        {write("p.yaml", good+"parts: [{claims: [{says: S.}]}]\n")},
	} {
		_, err := experiment.Experiments(names...)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %q", names, err, want)
		}
		if want[1:7] == "nknown" && !errors.Is(err, experiment.ErrUnknownExperiment) {
			t.Error(err)
		}
	}
}

// TestClaims: a claim names one cell, and its answer is that of the rounds of both.
func TestClaims(t *testing.T) {
	spec := func(variant, baseline map[string]string) experiment.Spec {
		return experiment.Spec{Config: pipeline.Config{Family: "queue", Impls: []string{"cond", "ring"}}, Storm: experiment.Storm{Name: "gang", Scale: 0.01}, Claims: []experiment.Claim{
			{Says: "S.", Unit: "events/s", Variant: variant, Baseline: baseline, Relation: stats.AtLeast, Bound: 2},
		}}
	}
	ring, cond := map[string]string{"impl": "ring"}, map[string]string{"impl": "cond"}
	for want, s := range map[string]experiment.Spec{
		"claims.0.variant: rate=max has 2 cells, not 1":   spec(map[string]string{"rate": "max"}, cond),
		"claims.0.baseline: impl=slow has 0 cells, not 1": spec(ring, map[string]string{"impl": "slow"}),
	} {
		if _, err := experiment.New(s); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	plan, err := experiment.New(spec(ring, cond))
	if err != nil {
		t.Fatal(err)
	}
	cell := func(impl, repeats string, perSecond ...float64) lab.CellResult {
		c := lab.CellResult{Name: "Queue", Labels: lab.Labels{{Key: "impl", Value: impl}}, Repeats: repeats, Verdict: lab.Verdict{Status: lab.Valid}}
		for i, v := range perSecond {
			r := lab.Round{Round: i + 1}
			r.Result.EventsIn, r.Result.EventsPerSecond = 1000, v
			c.Rounds = append(c.Rounds, r)
		}
		return c
	}
	o := &lab.Outcome{Comparisons: []lab.ComparisonResult{{Cells: []lab.CellResult{
		cell("ring", "Queue/impl=ring", 1, 1, 1, 1, 1, 1), cell("cond", "", 990, 1000, 1010, 995, 1005, 1002), cell("ring", "", 2970, 3000, 3030, 2985, 3015, 3001),
	}}}}
	plan.Finish(o)
	if c := o.Claims[0]; c.Answer != stats.Confirmed || c.Value < 2.9 || c.Variant != "impl=ring" || c.Baseline != "impl=cond" {
		t.Errorf("%+v", c)
	}
	o.Comparisons[0].Cells = o.Comparisons[0].Cells[:2]
	plan.Finish(o)
	if c := o.Claims[0]; c.Answer != stats.NotAnswered || c.Value != 0 || c.Why != "no figures" {
		t.Errorf("without the variant: %+v", c)
	}
	lost := cell("ring", "")
	lost.Verdict = lab.Verdict{Status: lab.Invalid, Cause: lab.CauseLost}
	o.Comparisons[0].Cells[0] = lost
	plan.Finish(o)
	if c := o.Claims[0]; c.Answer != stats.NotAnswered || c.Why != "invalid: lost" {
		t.Errorf("a broken invariant: %+v", c)
	}
}
