// Package outside tests the use of watchlab from another module, and scripts/setpath.sh.
package outside

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"watchlab/bench/e2e/programs"
)

// TestVariant copies examples/variant out of the source tree. There its variant must pass
// the conformance suite, and the built command must play it.
func TestVariant(t *testing.T) {
	root := rootDir(t)
	dir := filepath.Join(t.TempDir(), "variant")
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(root, "examples", "variant"))); err != nil {
		t.Fatal(err)
	}
	call(t, dir, "go", "mod", "edit", "-replace", modulePath(t, root)+"="+root)
	call(t, dir, "go", "vet", "./...")
	call(t, dir, "go", "test", "./...")
	call(t, dir, "go", "build", "-o", "watchlab", ".")
	out := call(t, dir, "./watchlab", "run", "--family", "queue", "--impl", "clientgo-fifo,counting", "--storm", "recorded-gang", "--rounds", "1", "--out", "result")
	if !strings.Contains(out, "counting") {
		t.Errorf("the run does not show the variant:\n%s", out)
	}
}

// TestInstall builds the command as `go install` does.
func TestInstall(t *testing.T) {
	bin := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "install", "./cmd/watchlab")
	cmd.Dir, cmd.Env = rootDir(t), append(os.Environ(), "GOBIN="+bin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	call(t, bin, "./watchlab", "list")
}

// TestSetPath sets another module path in a copy of the source tree. Each module of the
// copy that imports the root module must build.
func TestSetPath(t *testing.T) {
	const path = "git.example.com/Team/watchlab"
	root, dir := rootDir(t), filepath.Join(t.TempDir(), "tree")
	old := modulePath(t, root)
	files := call(t, root, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", ":!results")
	for name := range strings.SplitSeq(strings.TrimSuffix(files, "\x00"), "\x00") {
		data, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // An uncommitted deletion.
		}
		info, err2 := os.Stat(filepath.Join(root, name))
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, info.Mode()); err != nil {
			t.Fatal(err)
		}
	}
	call(t, dir, "scripts/setpath.sh", path)
	if got := modulePath(t, dir); got != path {
		t.Errorf("module path %s, want %s", got, path)
	}
	call(t, dir, "go", "build", "./...")
	call(t, dir, "go", "vet", "./cmd/...", "./impls/...")
	for _, module := range []string{"bench/kubelet", "bench/e2e", "examples/variant"} {
		list := call(t, filepath.Join(dir, module), "go", "list", "-deps", "-test", "-f", "{{with .Module}}{{.Path}}{{end}}", "./...")
		for line := range strings.Lines(list) {
			if m := strings.TrimSpace(line); m == old || strings.HasPrefix(m, old+"/") {
				t.Errorf("%s still imports %s", module, m)
			}
		}
	}
	for _, bad := range []string{"watchlab", "https://example.com/x", ""} {
		cmd := exec.CommandContext(t.Context(), "scripts/setpath.sh", bad)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err == nil {
			t.Errorf("path %q is accepted:\n%s", bad, out)
		}
	}
}

func rootDir(t *testing.T) string {
	t.Helper()
	root, err := programs.Root()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func modulePath(t *testing.T, dir string) string {
	t.Helper()
	return strings.TrimSpace(call(t, dir, "go", "list", "-m"))
}

// call runs a program, which must succeed, and returns its stdout.
func call(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	if strings.Contains(name, "/") {
		cmd.Path = filepath.Join(dir, name)
	}
	var stderr strings.Builder
	cmd.Dir, cmd.Stderr = dir, &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, &stderr)
	}
	return string(out)
}
