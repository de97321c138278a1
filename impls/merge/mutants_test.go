//go:build mutants

package merge_test

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"testing"
	"time"

	"watchlab/impls/conformance/mergetest"
	"watchlab/impls/merge"
)

// mutantVariable names the mutant that a child process has to test.
const mutantVariable = "WATCHLAB_MERGE_MUTANT"

// TestMutants breaks variants on purpose and sees that the check named finds
// it. Each mutant is tested by a process of its own, as one may hang or panic.
func TestMutants(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range merge.Mutants() {
		t.Run(m.Name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, self, "-test.v", "-test.run", "^TestMutant$/.*/.*/^"+m.Check+"$", "-test.timeout", "60s")
			cmd.Env = append(os.Environ(), mutantVariable+"="+m.Name)
			out, err := cmd.CombinedOutput()

			found := regexp.MustCompile(`(?s)--- FAIL: TestMutant/\S*/` + m.Check + `[/ ]|` +
				`=== RUN +TestMutant/\S*/` + m.Check + `\S*\n.*panic: `).Match(out)
			if err == nil || !found {
				t.Errorf("a variant that %s gets past %s (%v):\n%s", m.Broken, m.Check, err, out)
			}
		})
	}
}

// TestMutant is what the child process runs.
func TestMutant(t *testing.T) {
	name := os.Getenv(mutantVariable)
	if name == "" {
		t.Skip("run by TestMutants")
	}
	for _, m := range merge.Mutants() {
		if m.Name == name {
			mergetest.Run(t, m.Variant)
			return
		}
	}
	t.Fatalf("no mutant %q", name)
}
