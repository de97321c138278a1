package cli

import (
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
		"a broken file":   {[]string{"--against", "testdata/broken.txt", oldFile}, "broken.txt:3"},
	} {
		code, out, errs := call(t, append([]string{"gate"}, tc.args...)...)
		if code != exitUsage || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, tc.want) {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q", name, code, out, errs)
		}
	}
}
