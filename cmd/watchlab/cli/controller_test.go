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
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(asCommand, "1") // of the program
	summary := filepath.Join(t.TempDir(), "summary.md")
	if err := os.WriteFile(summary, []byte("of another command\n"), 0o600); err != nil {
		t.Fatal(err)
	}
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

func TestControllerInput(t *testing.T) {
	file := filepath.Join(t.TempDir(), "controller.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	workload := filepath.Join(t.TempDir(), "workload.yaml")
	if err := os.WriteFile(workload, []byte("objects:\n- copies: 3\n  color: red\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ file, flags, want string }{
		{"", "", "no program is given (watchlab controller -- ./my-controller)"},
		{"", "x", `"x" is no flag; the program follows -- (watchlab controller -- ./my-controller)`},
		{"", "--storm nope -- true", "--storm: trace nope: "},
		{"", "--nodes 0 -- true", "--nodes: 0 is less than 1"},
		{"", "--nodes 5 --workload deployments -- true", "--storm: a size is given, but no storm"},
		{"", "--speed -1 -- true", "--speed: -1 (allowed: more than 0, at most 1e6)"},
		{"", "--faults bogus -- true", "--faults: fault 1 (bogus): invalid fault: "},
		{"", "--faults none --faults none -- true", "--faults: none is given twice"},
		{"", "--workload " + workload + " -- true", "--workload: " + workload + `:3: unknown field "color"`},
		{"", "--rules nope -- true", "--rules: nope: "},
		{"", "--restart x -- true", `--restart: "x" is not a time such as at=30s`},
		{"", "--restart at=0s -- true", "--restart: 0s is not after the start of the storm"},
		{"", "--attach -- true", "a program is given, but with attach it runs elsewhere"},
		{"", "--against 'x -- true", `--against: "'x" ends within a quotation`},
		{"", "--against true", "no program is given to compare with --against"},
		{"", "--output xml -- true", `--output: "xml" is not one of text, json`},
		{"", "-- /does/not/exist", "cannot start the program /does/not/exist: "},
		{"", "--spec /does/not/exist -- true", "--spec: open /does/not/exist: no such file or directory"},
		{"programs: [{label: new, command: [true]}]\nbogus: 3\n", "", "--spec: " + file + `:2: unknown field "bogus"`},
		{"programs: [\n", "", "--spec: " + file + ":1: did not find expected node content"},
		{"programs: [{label: new, command: ['true']}]\nspeed: -2\n", "", "--spec: " + file + ":2: speed: -2 (allowed: more than 0, at most 1e6)"},
		{"programs: [{label: new, command: ['true']}]\nspeed: -2\n", "--speed -3", "--speed: -3 (allowed: more than 0, at most 1e6)"},
		{"storm: {name: nodeloss, nodes: 3}\n", "", "no program is given (watchlab controller -- ./my-controller)"},
	} {
		dir := filepath.Join(t.TempDir(), "results")
		args := []string{"controller", "--out", dir}
		if c.file != "" {
			write(c.file)
			args = append(args, "--spec", file)
		}
		code, stdout, stderr := call(t, append(args, strings.Fields(c.flags)...)...)
		if code != exitUsage || stdout != "" || !strings.HasPrefix(stderr, "watchlab: "+c.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s %s: exit code %d\n%s%s, want %s", c.file, c.flags, code, stdout, stderr, c.want)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s: a results folder", c.flags)
		}
	}
}
