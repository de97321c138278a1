//go:build mutants

package queue_test

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"watchlab/impls/conformance/queuetest"
	"watchlab/impls/queue"
)

// mutantVariable names the mutant that a child process has to test.
const mutantVariable = "WATCHLAB_QUEUE_MUTANT"

// TestMutants breaks variants on purpose and sees that the check named finds
// it. Each mutant is tested by a process of its own, as one may hang or panic.
func TestMutants(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range queue.Mutants() {
		t.Run(m.Name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			check := strings.ReplaceAll(m.Check, " ", "_")

			cmd := exec.CommandContext(ctx, self, "-test.v", "-test.run",
				"^TestMutant$/.*/.*/^(procs=.*|"+check+")$/^"+check+"$", "-test.timeout", "60s")
			cmd.Env = append(os.Environ(), mutantVariable+"="+m.Name)
			out, err := cmd.CombinedOutput()

			found := regexp.MustCompile(`(?s)--- FAIL: TestMutant/\S*/` + check + `[/ ]|` +
				`=== RUN +TestMutant/\S*/` + check + `\S*\n.*panic: `).Match(out)
			if err == nil || !found {
				t.Errorf("a variant that %s gets past %q (%v):\n%s", m.Broken, m.Check, err, out)
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
	for _, m := range queue.Mutants() {
		if m.Name == name {
			queuetest.Run(t, m.Variant)
			return
		}
	}
	t.Fatalf("no mutant %q", name)
}
