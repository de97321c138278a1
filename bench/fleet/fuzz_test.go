package fleet_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"watchlab/bench/fleet"
)

// FuzzParsePlan: a plan is valid and reads the same when it is written, or the error names the file.
func FuzzParsePlan(f *testing.F) {
	for _, s := range []string{
		"run: a\nmode: self\npods: 4\nexperiment: {rounds: 1}\nbarrier: 10s\n",
		"{run: a, mode: cluster, pods: 1, writers: 100, pyroscope: 'http://x'}",
		"run: a\nrun: b\n", "pods: 99999999999999999999", "experiment: &a [*a]", "barrier: -1ns", "[]",
	} {
		f.Add([]byte(s))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		defer time.AfterFunc(time.Minute, func() { panic("an input took more than a minute") }).Stop()
		p, err := fleet.ParsePlan("plan.yaml", data)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "plan.yaml") {
				t.Fatal(err)
			}
			return
		}
		p.WrittenBy()
		text, err := p.YAML()
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "plan.yaml")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		again, err := fleet.ReadPlan(path)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if other, err := again.YAML(); err != nil || string(other) != string(text) {
			t.Fatalf("%s reads as %s, %v", text, other, err)
		}
	})
}
