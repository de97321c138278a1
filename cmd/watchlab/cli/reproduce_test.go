package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// writeExperiment writes an experiment with a claim that always holds or never does. Six rounds have an interval.
func writeExperiment(t *testing.T, dir, name, variant string, bound float64) string {
	t.Helper()
	path := filepath.Join(dir, name+".yaml")
	text := fmt.Sprintf(`question: Is %[2]s fast?
family: deltafifo
deliveries: [in-order]
variants: [cond, %[2]s]
storm: {name: %[1]s}
events: 3000
rounds: 6
ignoreHost: true
claims:
- {says: It is., unit: events/s, variant: {impl: %[2]s}, baseline: {impl: cond}, relation: at least, bound: %[3]v}
`, tiny, variant, bound)
	noError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// TestReproduce: files are played and judged, and a broken invariant ends nothing. A resumed
// reproduction plays only what is not finished.
func TestReproduce(t *testing.T) {
	files, dir := t.TempDir(), filepath.Join(t.TempDir(), "deep", "out")
	fast := writeExperiment(t, files, "fast", "ring", 1e-6)
	code, out, errs := call(t, "reproduce", fast, "--out", dir)
	if code != exitOK || !strings.Contains(out, "fast        1  confirmed") {
		t.Fatalf("exit code %d, stderr %q, stdout\n%s", code, errs, out)
	}
	before := content(t, filepath.Join(dir, "fast", "bench.txt"))
	slow, worse := writeExperiment(t, files, "slow", "ring", 1e6), writeExperiment(t, files, "worse", lossy, 1)
	code, out, errs = call(t, "reproduce", fast, slow, worse, "--resume", dir)
	if code != exitInvalid || !strings.Contains(errs, "experiment 2/3: slow\n") || strings.Contains(errs, "fast") || !strings.Contains(errs, "lost") {
		t.Errorf("exit code %d, stderr %q", code, errs)
	}
	page := content(t, filepath.Join(dir, "README.md"))
	for _, want := range []string{"| fast | 1 | confirmed |", "| slow | 1 | refuted |", "| worse | 1 | not answered: invalid: lost | - |", "| at least 1e+06× |", "- [slow](slow/report.md): Is ring fast? 6 rounds"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	if after := content(t, filepath.Join(dir, "fast", "bench.txt")); after != before || before == "" {
		t.Error("a finished experiment was played again")
	}
	if report := content(t, filepath.Join(dir, "slow", "report.md")); !strings.Contains(report, "## Claims") || !strings.Contains(report, "| It is. |") {
		t.Errorf("the report lacks the claim:\n%s", report)
	}
	again := out
	if code, out, _ = call(t, "reproduce", fast, slow, worse, "--resume", dir); code != exitInvalid || out != again || !strings.Contains(out, "refuted") {
		t.Errorf("resumed:\n%s\nnot\n%s", out, again)
	}
}

// TestReproduceInterrupted: the hint continues with the same experiments.
func TestReproduceInterrupted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	file := writeExperiment(t, t.TempDir(), "fast", "ring", 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs bytes.Buffer
	code := run(ctx, []string{"reproduce", file, "--out", dir, "--budget", "1m"}, &out, &errs)
	if want := "continue with: watchlab reproduce --resume " + dir + " " + file + " --budget=1m0s\n"; code != exitInterrupted || !strings.Contains(errs.String(), want) {
		t.Errorf("exit code %d, stderr %q, want %q", code, errs.String(), want)
	}
}

func content(t *testing.T, path string) string {
	t.Helper()
	text := must(os.ReadFile(path))(t)
	return string(text)
}
