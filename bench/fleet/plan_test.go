package fleet_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"watchlab/bench/fleet"
)

func plan() fleet.Plan {
	return fleet.Plan{
		Run: "nodeloss", Mode: fleet.ModeSelf, Pods: 4, Experiment: json.RawMessage(`{"storm":{"name":"/etc/watchlab/storm.yaml"}}`),
		Barrier: metav1.Duration{Duration: 2 * time.Minute},
	}
}

func TestPlanRoundTrip(t *testing.T) {
	data, err := plan().YAML()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := fleet.ReadPlan(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(plan(), got); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}
}

func TestBadPlans(t *testing.T) {
	for name, change := range map[string]func(*fleet.Plan){
		"run":             func(p *fleet.Plan) { p.Run = "" },
		"long run":        func(p *fleet.Plan) { p.Run = strings.Repeat("a", 21) },
		"run with dots":   func(p *fleet.Plan) { p.Run = "a.b" },
		"mode":            func(p *fleet.Plan) { p.Mode = "both" },
		"pods":            func(p *fleet.Plan) { p.Pods = 0 },
		"too many pods":   func(p *fleet.Plan) { p.Pods = fleet.MaxPods + 1 },
		"writers":         func(p *fleet.Plan) { p.Writers = 1 },
		"no writers":      func(p *fleet.Plan) { p.Mode = fleet.ModeCluster },
		"barrier":         func(p *fleet.Plan) { p.Barrier.Duration = -1 },
		"endless barrier": func(p *fleet.Plan) { p.Barrier.Duration = 24 * time.Hour },
	} {
		p := plan()
		change(&p)
		if err := p.Validate(); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, text := range []string{"run: a\nnobody: knows\n", "run: a\nrun: b\n", "run: [", "- a"} {
		if _, err := fleet.ParsePlan("plan.yaml", []byte(text)); err == nil || !strings.HasPrefix(err.Error(), "plan.yaml") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestWriterNames: each writer has a unique name within the length limit, also across runs.
func TestWriterNames(t *testing.T) {
	seen := map[string]bool{}
	for _, run := range []string{"a", "nodeloss", "twenty-characters-ab", "twenty-characters-ac", "abcde-fg"} {
		p := fleet.Plan{Run: run, Mode: fleet.ModeCluster, Writers: 3}
		for i := range p.Writers {
			name := fleet.WriterRun(run, i)
			if seen[name] || len(name) > fleet.MaxRun || fleet.CheckRun(name) != nil || name == run {
				t.Errorf("writer %d of %s is named %q", i, run, name)
			}
			seen[name] = true
			if !slices.Contains(strings.FieldsFunc(p.WrittenBy(), func(r rune) bool { return strings.ContainsRune("(), ", r) }), name) {
				t.Errorf("%s doesn't select what %s writes", p.WrittenBy(), name)
			}
		}
	}
}
