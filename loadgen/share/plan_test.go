package share_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"watchlab/loadgen/share"
)

func plan() share.Plan {
	return share.Plan{
		Run: "nodeloss", Mode: share.Self, Shards: 4, Args: []string{"--storm", "/etc/watchlab/storm.yaml"},
		Deliver: "configmap", Barrier: metav1.Duration{Duration: 2 * time.Minute},
	}
}

func TestPlanIsReadAsWritten(t *testing.T) {
	data, err := plan().YAML()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := share.ReadPlan(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(plan(), got); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}
}

func TestPlansThatAreRefused(t *testing.T) {
	for name, change := range map[string]func(*share.Plan){
		"run":                 func(p *share.Plan) { p.Run = "" },
		"long run":            func(p *share.Plan) { p.Run = strings.Repeat("a", 21) },
		"run with dots":       func(p *share.Plan) { p.Run = "a.b" },
		"mode":                func(p *share.Plan) { p.Mode = "both" },
		"shards":              func(p *share.Plan) { p.Shards = 0 },
		"too many shards":     func(p *share.Plan) { p.Shards = share.MaxShards + 1 },
		"writers":             func(p *share.Plan) { p.Writers = 1 },
		"no writers":          func(p *share.Plan) { p.Mode = share.Cluster },
		"server":              func(p *share.Plan) { p.Server = "storm" },
		"no server":           func(p *share.Plan) { p.Mode = share.SharedServer },
		"server with a dot":   func(p *share.Plan) { p.Mode, p.Server = share.SharedServer, "a.b" },
		"barrier":             func(p *share.Plan) { p.Barrier.Duration = -1 },
		"endless barrier":     func(p *share.Plan) { p.Barrier.Duration = 24 * time.Hour },
		"deliver":             func(p *share.Plan) { p.Deliver = "" },
		"deliver to nowhere":  func(p *share.Plan) { p.Deliver = "dir=" },
		"deliver to a friend": func(p *share.Plan) { p.Deliver = "mail=a@b" },
	} {
		p := plan()
		change(&p)
		if err := p.Validate(); !errors.Is(err, share.ErrPlan) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, text := range []string{"run: a\nnobody: knows\n", "run: a\nrun: b\n", "run: [", "- a"} {
		if _, err := share.ParsePlan([]byte(text)); !errors.Is(err, share.ErrPlan) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Each writer has a name of its own, that is no longer than a writer's may be, and that
// no other run's writers have.
func TestNamesOfWriters(t *testing.T) {
	seen := map[string]bool{}
	for _, run := range []string{"a", "nodeloss", "twenty-characters-ab", "twenty-characters-ac", "abcde-fg"} {
		p := share.Plan{Run: run, Mode: share.Cluster, Writers: 3}
		for i := range p.Writers {
			name := share.WriterRun(run, i)
			if seen[name] || len(name) > share.MaxRun || share.CheckRun(name) != nil || name == run {
				t.Errorf("writer %d of %s is called %q", i, run, name)
			}
			seen[name] = true
			if !slices.Contains(strings.FieldsFunc(p.WrittenBy(), func(r rune) bool { return strings.ContainsRune("(), ", r) }), name) {
				t.Errorf("%s doesn't select what %s writes", p.WrittenBy(), name)
			}
		}
	}
}
