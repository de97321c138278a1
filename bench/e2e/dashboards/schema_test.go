package dashboards

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"watchlab/bench/e2e/programs"
)

// TestSchema compiles the committed dashboards against Grafana's published types
// (schema/dashboard.ts). The compiler must reject invalid dashboards.
func TestSchema(t *testing.T) {
	npm, node := programs.Installed(t, "npm"), programs.Installed(t, "node")
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("schema")); err != nil {
		t.Fatal(err)
	}
	install := exec.CommandContext(t.Context(), npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}

	names, err := filepath.Glob(filepath.Join(dashboards, "json", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	typed := func(d string) string {
		return fmt.Sprintf("import type { Oldest, Recent } from './dashboard';\nexport const oldest = %s satisfies Oldest;\nexport const recent = %s satisfies Recent;\n", d, d)
	}
	var whole string // the dashboard of the invalid copies below
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		d := strings.TrimSpace(string(b))
		if filepath.Base(name) == "watchlab-history.json" {
			whole = d
		}
		write(t, filepath.Join(dir, strings.TrimSuffix(filepath.Base(name), ".json")+".ts"), []byte(typed(d)))
	}
	compile := func() string {
		cmd := exec.CommandContext(t.Context(), node, filepath.Join(dir, "node_modules", "typescript", "bin", "tsc"))
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return string(out)
	}
	if out := compile(); out != "" {
		t.Errorf("dashboards that are none:\n%s", out)
	}

	// Both types must reject each invalid copy.
	spoiled := map[string]string{
		"style":     strings.Replace(whole, `"drawStyle": "points"`, `"drawStyle": "dots"`, 1),
		"option":    strings.Replace(whole, `"showLegend": true`, `"showLegend": true, "size": 3`, 1),
		"format":    strings.Replace(whole, `"format": "time_series"`, `"format": "series"`, 1),
		"kind":      strings.Replace(whole, `"type": "timeseries"`, `"type": "series"`, 1),
		"threshold": strings.Replace(whole, `"mode": "absolute"`, `"mode": "exact"`, 1),
	}
	for name, d := range spoiled {
		if d == whole {
			t.Fatalf("%s: nothing to spoil", name)
		}
		write(t, filepath.Join(dir, "spoiled-"+name+".ts"), []byte(typed(d)))
	}
	out := compile()
	for name, d := range spoiled {
		found, half := [2]bool{}, strings.Count(d, "\n")+2
		for line := range strings.Lines(out) {
			var at int
			if n, _ := fmt.Sscanf(line, "spoiled-"+name+".ts(%d,", &at); n == 1 {
				found[min(1, at/half)] = true
			}
		}
		if found != [2]bool{true, true} {
			t.Errorf("%s: found by 9.3's types, by recent ones: %v", name, found)
		}
	}

	var lock struct {
		Packages map[string]struct{ Version string }
	}
	b, err := os.ReadFile(filepath.Join("schema", "package-lock.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &lock); err != nil {
		t.Fatal(err)
	}
	if v := lock.Packages["node_modules/grafana-oldest"].Version; !strings.HasPrefix(v, "9.3.") {
		t.Errorf("the oldest types are of %q", v)
	}
}
