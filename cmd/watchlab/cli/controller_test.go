package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"watchlab/bench/controller"
	"watchlab/bench/lab"
)

// TestController: watchlab record is a program that watches and writes nothing.
func TestController(t *testing.T) {
	self := must(os.Executable())(t)
	t.Setenv(asCommand, "1") // of the program
	summary := filepath.Join(t.TempDir(), "summary.md")
	noError(t, os.WriteFile(summary, []byte("of another command\n"), 0o600))
	t.Setenv("GITHUB_STEP_SUMMARY", summary)
	dir := filepath.Join(t.TempDir(), "results")
	args := []string{"controller", "--storm", tiny, "--speed", "100", "--faults", "none", "--out", dir, "--",
		self, "record", "--resource", "pods", "-o", "{dir}/pods.jsonl.zst"}
	code, stdout, stderr := call(t, args...)
	if code != exitOK || !strings.HasPrefix(stdout, "The controller passes 1 play of tiny.jsonl") || !strings.Contains(stderr, "results are in "+dir) {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	for _, file := range []string{
		controller.SpecFile, controller.ResultFile, controller.BenchFile, controller.EnvFile, controller.JUnitFile,
		"plays/01-new-none/controller-0.log", "plays/01-new-none/controller-0/pods.jsonl.zst",
	} {
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			t.Error(err)
		}
	}
	report, reportErr := os.ReadFile(filepath.Join(dir, lab.ReportFile))
	if text, err := os.ReadFile(summary); err != nil || reportErr != nil || string(text) != "of another command\n"+string(report) {
		t.Errorf("summary %q, %v, %v", text, err, reportErr)
	}
	if code, _, stderr := call(t, args...); code != exitUsage || !strings.HasPrefix(stderr, "watchlab: --out: ") {
		t.Errorf("exit code %d for a folder that exists: %s", code, stderr)
	}
	// A program whose flags are wrong ends before its first watch.
	code, _, stderr = call(t, "controller", "--out", filepath.Join(t.TempDir(), "x"), "--", self, "record", "--nonsense")
	if code != exitInvalid || !strings.Contains(stderr, "ended before its first watch: exit status 2 (its log ends with: watchlab: unknown flag: --nonsense") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}
