//go:build mutants

package deltafifo_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"watchlab/impls/conformance/deltafifotest"
	"watchlab/impls/deltafifo"
)

// mutantVariable names the mutant that a child process has to test.
const mutantVariable = "WATCHLAB_DELTAFIFO_MUTANT"

// TestMutants breaks a variant on purpose and sees that the check named finds
// it, and that impls/conformance/mutants.md says so. Each mutant is tested by a
// process of its own, as one may hang or panic.
func TestMutants(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile("../conformance/mutants.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range deltafifo.Mutants() {
		t.Run(m.Name, func(t *testing.T) {
			row := fmt.Sprintf("| deltafifo | %s | %s | %s |", m.Name, m.Broken, strings.ReplaceAll(m.Check, "_", " "))
			if !strings.Contains(string(table), row) {
				t.Errorf("mutants.md lacks the row\n%s", row)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, self, "-test.v", "-test.failfast", "-test.run", pattern(m), "-test.timeout", "20s")
			cmd.Env = append(os.Environ(), mutantVariable+"="+m.Name)
			out, err := cmd.CombinedOutput()

			name := regexp.QuoteMeta(m.Check)
			found := regexp.MustCompile(`(?s)--- FAIL: TestMutant/\S*/` + name + `[/ ]|` +
				`=== RUN +TestMutant/\S*/` + name + `\S*\n.*panic: `).Match(out)
			if err == nil || !found {
				t.Errorf("a variant that %s gets past %q (%v):\n%s", m.Broken, m.Check, err, out)
			}
		})
	}
}

// pattern returns what runs the mutant's check in its arrangement: delivery,
// known, capacity, handover, compaction and path.
func pattern(m deltafifo.Mutant) string {
	in := strings.Split(m.In, "/")
	for len(in) < 6 {
		in = append(in, ".")
	}
	p := "^TestMutant$"
	for _, part := range in[:6] {
		if part == "." {
			part = ".*"
		}
		p += "/=" + part + "$"
	}
	for _, c := range concurrent {
		if c == m.Check {
			p += "/procs"
		}
	}
	return p + "/^" + regexp.QuoteMeta(m.Check) + "$"
}

// concurrent are the checks that run with each number of processors.
var concurrent = []string{
	"nothing_lost,_reordered_or_duplicated_among_producers", "several_consumers", "length_never_understates", "linearizable",
}

// TestMutant is what the child process runs.
func TestMutant(t *testing.T) {
	name := os.Getenv(mutantVariable)
	if name == "" {
		t.Skip("run by TestMutants")
	}
	deltafifotest.Watchdog = 3 * time.Second
	for _, m := range deltafifo.Mutants() {
		if m.Name == name {
			deltafifotest.Run(t, m.Variant)
			return
		}
	}
	t.Fatalf("no mutant %q", name)
}
