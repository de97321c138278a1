package kubelet_test

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"watchlab/impls/merge"
)

// notOurs are the tests of config_test.go that do not run on a merger, and why.
var notOurs = map[string]string{
	"TestNewPodAddedSnapshot":           "asks for snapshots, a mode that kubelet does not use and mergers do not have",
	"TestNewPodAddedDelete":             "expects a change of the pod that it sent; a merger does not change the pods it receives",
	"TestNewPodAddedSnapshotAndUpdates": "asks for snapshots, a mode that kubelet does not use and mergers do not have",
}

// TestUpstream runs kubelet's own tests of PodConfig (config_test.go of the pinned module) on every
// merger. An overlay joins a copy of kubelet's package to this module; only construction is changed:
// of a PodConfig, and of the tests' context, whose package has dependencies of its own.
func TestUpstream(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "config")
	tests := adapt(t, dir)
	binary := filepath.Join(dir, "config.test")
	run(t, nil, "go", "test", "-c", "-vet=off", "-overlay="+filepath.Join(dir, "overlay.json"), "-o", binary, "./config")
	passed := regexp.MustCompile(`(?m)^--- PASS: (\w+) `)
	for _, v := range merge.Variants() {
		t.Run(v.Name, func(t *testing.T) {
			out := run(t, []string{"WATCHLAB_VARIANT=" + v.Name}, binary, "-test.v", "-test.timeout=1m", "-test.run=^("+strings.Join(tests, "|")+")$")
			if n := len(passed.FindAllString(out, -1)); n != len(tests) {
				t.Errorf("%d of %d tests passed\n%s", n, len(tests), out)
			}
			for name, reason := range notOurs {
				t.Logf("skipped: %s: %s", name, reason)
			}
			t.Logf("%d tests passed, %d were skipped", len(tests), len(notOurs))
		})
	}
}

// adapt writes the adapted package and its overlay to dir, and returns the tests to run.
func adapt(t *testing.T, dir string) (tests []string) {
	t.Helper()
	upstream := filepath.Join(strings.TrimSpace(run(t, nil, "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes")), "pkg/kubelet/config")
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{filepath.Join(here, "config", "adapter_test.go"): filepath.Join(here, "testdata/config/adapter_test.go")}
	sources, err := filepath.Glob(filepath.Join(upstream, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range sources {
		if !strings.HasSuffix(path, "_test.go") {
			// Files below the module cache must not be replaced, so these are copied.
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			files[filepath.Join(here, "config", filepath.Base(path))] = save(t, dir, filepath.Base(path), content)
		}
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, filepath.Join(upstream, "config_test.go"), nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	missing := map[string]bool{"NewPodConfig": true, "PodConfig": true, "Init": true}
	for name := range notOurs {
		missing[name] = true
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if name := n.Name.Name; notOurs[name] != "" {
				delete(missing, name)
			} else if strings.HasPrefix(name, "Test") {
				tests = append(tests, name)
			}
		case *ast.Ident:
			if n.Name == "NewPodConfig" || n.Name == "PodConfig" {
				delete(missing, n.Name)
				n.Name = map[string]string{"NewPodConfig": "newAdaptedPodConfig", "PodConfig": "adaptedPodConfig"}[n.Name]
			}
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Init" {
				delete(missing, "Init")
				n.Fun, n.Args = &ast.SelectorExpr{X: ast.NewIdent("t"), Sel: ast.NewIdent("Context")}, nil
			}
		case *ast.GenDecl:
			n.Specs = slices.DeleteFunc(n.Specs, func(s ast.Spec) bool {
				i, ok := s.(*ast.ImportSpec)
				return ok && strings.HasSuffix(i.Path.Value, `/ktesting"`)
			})
		}
		return true
	})
	if len(missing) > 0 || len(tests) == 0 {
		t.Fatalf("kubelet's config_test.go has no %v any more, or no test: adapt this file", missing)
	}
	var out bytes.Buffer
	if err := printer.Fprint(&out, fset, file); err != nil {
		t.Fatal(err)
	}
	files[filepath.Join(here, "config", "config_test.go")] = save(t, dir, "config_test.go", out.Bytes())
	overlay, err := json.Marshal(map[string]any{"Replace": files})
	if err != nil {
		t.Fatal(err)
	}
	save(t, dir, "overlay.json", overlay)
	return tests
}

func save(t *testing.T, dir, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func run(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	c := exec.Command(name, args...)
	c.Env = append(os.Environ(), env...)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out[max(0, len(out)-8<<10):])
	}
	return string(out)
}
