//go:build mutants

package conformance

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Mutant names a variant with a deliberate bug and the check that must detect it.
type Mutant struct {
	// Name is the name of the variant. Broken completes the sentence "the variant
	// …". Check is the name of the check.
	Name, Broken, Check string
	// In restricts the setups by a -test.run pattern of their subtests; empty means all.
	In string
}

const mutantVariable = "WATCHLAB_MUTANT"

// Patience is short, since most mutants hang.
const Patience = 3 * time.Second

// RunMutants runs the calling test once per mutant. Each runs in its own process,
// because a mutant may hang or panic. It fails if the named check passes. suite runs
// the family's suite on mutant i.
func RunMutants(t *testing.T, mutants []Mutant, suite func(t *testing.T, i int)) {
	if name := os.Getenv(mutantVariable); name != "" {
		for i, m := range mutants {
			if m.Name == name {
				suite(t, i)
				return
			}
		}
		t.Fatalf("no mutant %q", name)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		t.Run(m.Name, func(t *testing.T) {
			check := regexp.QuoteMeta(strings.ReplaceAll(m.Check, " ", "_"))
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			// Three tries: a race may not show in one on a busy machine.
			cmd := exec.CommandContext(ctx, self, "-test.v", "-test.failfast", "-test.count", "3", "-test.timeout", "60s",
				"-test.run", "^TestMutants$/"+m.In+"/^(procs=.*|"+check+")$/^"+check+"$")
			cmd.Env = append(os.Environ(), mutantVariable+"="+m.Name)
			out, err := cmd.CombinedOutput()
			// A panic of a goroutine of the check prints no FAIL line.
			found := regexp.MustCompile(`(?s)--- FAIL: TestMutants/(\S*/)?` + check + `[/ ]|` +
				`=== RUN +TestMutants/(\S*/)?` + check + `\S*\n.*panic: `).Match(out)
			if err == nil || !found {
				t.Errorf("a variant that %s passes %q (%v):\n%s", m.Broken, m.Check, err, out)
			}
		})
	}
}
