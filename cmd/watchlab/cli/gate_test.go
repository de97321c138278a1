package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// rulesFile writes rules to a file and returns its path.
func rulesFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gate.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

const tenPercent = "rules:\n- {metric: ns/op, change: 10%, because: it is what it is for}\n"

func TestGate(t *testing.T) {
	rules := rulesFile(t, tenPercent)
	code, out, errs := call(t, "gate", "--against", fasterFile, "--rules", rules, oldFile)
	if code != exitInvalid || errs != "" || !strings.Contains(out, "regressed: Queue/impl=cond: ns/op 80") || !strings.Contains(out, "because it is what it is for") {
		t.Errorf("slower: exit code %d, stderr %q:\n%s", code, errs, out)
	}
	code, out, errs = call(t, "gate", "--against", oldFile, "--rules", rules, fasterFile)
	if code != exitOK || errs != "" || !strings.Contains(out, "gate passed: of 1 figures, 1 improved") {
		t.Errorf("faster: exit code %d, stderr %q:\n%s", code, errs, out)
	}
	code, out, _ = call(t, "gate", "--against", fasterFile, "--rules", rules, "-o", "json", oldFile)
	if code != exitInvalid || !strings.Contains(out, `"kind": "regressed"`) {
		t.Errorf("JSON: exit code %d:\n%s", code, out)
	}
}

// TestGateInit: gate accepts the output of init.
func TestGateInit(t *testing.T) {
	code, out, _ := call(t, "gate", "init")
	if code != exitOK {
		t.Fatalf("exit code %d", code)
	}
	counted := out[strings.Index(out, "- metric: allocs/op"):strings.Index(out, "- metric: B/op")]
	if code, out, errs := call(t, "gate", "--against", oldFile, "--rules", rulesFile(t, "rules:\n"+counted), oldFile); code != exitOK || errs != "" || !strings.Contains(out, "1 held") {
		t.Errorf("exit code %d, stderr %q:\n%s", code, errs, out)
	}
}

// controllerRun is a results folder of watchlab controller: the benchmark file, and no run.json.
func controllerRun(t *testing.T, cpu string, writes ...int) string {
	t.Helper()
	dir := t.TempDir()
	text := "goos: linux\ncpu: " + cpu + "\n"
	for i, n := range writes {
		text += fmt.Sprintf("BenchmarkController/impl=new/storm=nodeloss/faults=none 1 %d p99-reconcile-ns %d requests/run %d writes/run %d relists/run %d peak-RSS-B\n",
			20_000_000+i, 1000+n+i, n+i, 3, 40<<20+i)
	}
	if err := os.WriteFile(filepath.Join(dir, "bench.txt"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestGateOfController: gate and compare read two results folders of watchlab controller, with rules of its own.
func TestGateOfController(t *testing.T) {
	old, same, worse := controllerRun(t, "A", 500, 502, 501, 503), controllerRun(t, "A", 501, 500, 503, 502), controllerRun(t, "A", 801, 800, 803, 802)
	code, out, errs := call(t, "gate", "--against", old, same)
	if code != exitOK || errs != "" || !strings.HasPrefix(out, "gate passed: of 5 figures, 5 held") {
		t.Errorf("the same: exit code %d, stderr %q:\n%s", code, errs, out)
	}
	code, out, _ = call(t, "gate", "--against", old, worse)
	if code != exitInvalid || !strings.Contains(out, "regressed: Controller/impl=new/storm=nodeloss/faults=none: writes/run 503.0") ||
		!strings.Contains(out, "regressed: Controller/impl=new/storm=nodeloss/faults=none: requests/run 1.503k") {
		t.Errorf("60 %% more writes: exit code %d:\n%s", code, out)
	}
	code, out, _ = call(t, "gate", "--against", old, controllerRun(t, "B", 501, 500, 503, 502))
	if code != exitOK || !strings.Contains(out, "of 4 figures, 4 held") || !strings.Contains(out, "p99-reconcile-ns was not checked: the runs are of different machines") {
		t.Errorf("another machine: exit code %d:\n%s", code, out)
	}
	code, out, _ = call(t, "gate", "--against", old, controllerRun(t, "A", 500))
	if code != exitCannotTell || !strings.Contains(out, "4 and 1 rounds are too few") {
		t.Errorf("one round: exit code %d:\n%s", code, out)
	}
	code, out, errs = call(t, "compare", old, worse)
	if code != exitOK || errs != "" || !strings.Contains(out, "writes/run") {
		t.Errorf("compare: exit code %d, stderr %q:\n%s", code, errs, out)
	}
	if code, out, _ = call(t, "gate", "init", "controller"); code != exitOK || !strings.Contains(out, "metric: writes/run") {
		t.Errorf("init controller: exit code %d:\n%s", code, out)
	}
	if code, _, errs = call(t, "gate", "init", "queue"); code != exitUsage || !strings.Contains(errs, `"queue" has no rules`) {
		t.Errorf("init queue: exit code %d, stderr %q", code, errs)
	}
}

// hostile returns old.txt with another line.
func hostile(t *testing.T, values string) string {
	t.Helper()
	data, err := os.ReadFile(oldFile)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(data), "\n")
	lines[6] = "BenchmarkQueue/impl=cond-2 1 " + values + "\n"
	path := filepath.Join(t.TempDir(), "bench.txt")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "")), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// few returns a file with so many rounds, of about the given time.
func few(t *testing.T, rounds, ns int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "few.txt")
	var text strings.Builder
	for i := range rounds {
		fmt.Fprintf(&text, "BenchmarkQueue/impl=cond 1 %d ns/op\n", ns+10*i)
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestCannotTell: up to three rounds, and noise with --strict, end with an exit code of their own.
func TestCannotTell(t *testing.T) {
	rules := rulesFile(t, tenPercent)
	for name, tc := range map[string]struct {
		args []string
		code int
		want string
	}{
		"gate, 1 round":         {[]string{"gate", "--rules", rules, "--against", few(t, 1, 100), few(t, 1, 900)}, exitCannotTell, "gate cannot tell"},
		"gate, 3 rounds":        {[]string{"gate", "--rules", rules, "--against", few(t, 3, 100), few(t, 3, 900)}, exitCannotTell, "3 and 3 rounds are too few"},
		"gate, 3 and 20 rounds": {[]string{"gate", "--rules", rules, "--against", few(t, 3, 100), few(t, 20, 900)}, exitCannotTell, "3 and 20 rounds are too few"},
		"gate, noise, strict":   {[]string{"gate", "--strict", "--rules", rules, "--against", few(t, 6, 100), few(t, 6, 100)}, exitCannotTell, "rounds a side can"},
		"compare, 3 rounds":     {[]string{"compare", few(t, 3, 100), few(t, 3, 900)}, exitCannotTell, "watchlab: cannot tell"},
		"compare, 4 rounds":     {[]string{"compare", few(t, 4, 100), few(t, 4, 900)}, exitOK, ""},
		"compare, one file":     {[]string{"compare", few(t, 3, 100)}, exitOK, ""},
	} {
		code, out, errs := call(t, tc.args...)
		if code != tc.code || !strings.Contains(out+errs, tc.want) {
			t.Errorf("%s: exit code %d, stderr %q:\n%s", name, code, errs, out)
		}
	}
}

func TestGateRefuses(t *testing.T) {
	good := rulesFile(t, tenPercent)
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no new run":      {[]string{"--against", oldFile}, "the new run"},
		"two new runs":    {[]string{"--against", oldFile, oldFile, oldFile}, "takes the new run"},
		"no old run":      {[]string{oldFile}, "--against"},
		"no such run":     {[]string{"--against", "missing", oldFile}, "--against"},
		"no such new run": {[]string{"--against", oldFile, "--rules", good, "missing"}, "missing"},
		"no such rules":   {[]string{"--against", oldFile, "--rules", "missing.yaml", oldFile}, "--rules: missing.yaml"},
		"bad rules":       {[]string{"--against", oldFile, "--rules", rulesFile(t, tenPercent+"- {metric: p99-ns, chance: 1%}\n"), oldFile}, "gate.yaml:3: "},
		"idle rule":       {[]string{"--against", oldFile, "--rules", rulesFile(t, tenPercent+"- {metric: p99-ns, change: 1%, because: x}\n"), oldFile}, "gate.yaml:3: "},
		"output":          {[]string{"--against", oldFile, "-o", "xml", oldFile}, "--output"},
		"not a number":    {[]string{"--against", oldFile, "--rules", good, hostile(t, "NaN ns/op")}, "bench.txt:7: NaN"},
		"infinite":        {[]string{"--against", hostile(t, "+Inf ns/op"), "--rules", good, oldFile}, "bench.txt:7: +Inf"},
		"a broken file":   {[]string{"--against", "testdata/broken.txt", oldFile}, "broken.txt:3"},
	} {
		code, out, errs := call(t, append([]string{"gate"}, tc.args...)...)
		if code != exitUsage || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, tc.want) {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q", name, code, out, errs)
		}
	}
}
