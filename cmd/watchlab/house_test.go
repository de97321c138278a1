package main

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// layers lists what each folder of the tree may import (docs/architecture.md): the
// command is over bench, bench over loadgen, loadgen over impls. bench and the command
// deploy the files that dashboards and scripts embed. dashboards reads names of metrics, and the
// colours of variants.
var layers = map[string][]string{
	"cmd":        {"bench", "loadgen", "impls", "dashboards", "scripts"},
	"bench":      {"loadgen", "impls", "scripts"},
	"loadgen":    {"impls"},
	"impls":      {},
	"dashboards": {"bench/telemetry", "bench/chart"},
	"scripts":    {},
}

// testLayers lists what tests of a folder may import in addition.
var testLayers = map[string][]string{
	// The variants play recorded storms, and examples have a server.
	"impls": {"loadgen/storm", "loadgen/trace", "loadgen/apiserver"},
	// The dashboards repeat a limit of the verdicts, and name the variants.
	"dashboards": {"bench/lab", "impls"},
}

// leaves are packages that count as folders of their own, each with its reason: they
// import less than the packages around them.
var leaves = map[string]string{
	"loadgen/apiserver/wire": "the wire format, which fault reads",
	"loadgen/source/stream":  "the list and watch that both source and apiserver serve",
}

// limits are the sizes of the tree.
var limits = []struct {
	what string
	size func(*testing.T) int64
	most int64
}{
	{"packages of the root module", func(t *testing.T) int64 { return int64(len(listed(t))) }, 59},
	// Each program of scripts/tools that needs the dependencies of its own release has a module:
	// Kubernetes, Argo Rollouts, cert-manager. bench/clientgo has one for all releases of client-go.
	{"go.mod files", func(t *testing.T) int64 {
		return count(t, ".", func(p string) bool { return path.Base(p) == "go.mod" })
	}, 10},
	{"lines of Go without tests", lines, 97_100},
	{"bytes of README.md", func(t *testing.T) int64 { return bytesOf(t, "README.md") }, 8 << 10},
	{"bytes of published results", published, 5 << 20},
}

func TestLimits(t *testing.T) {
	for _, l := range limits {
		if n := l.size(t); n > l.most {
			t.Errorf("%s: %d, at most %d", l.what, n, l.most)
		}
	}
}

type pkg struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
}

// TestLayers holds the import graph against the layers.
func TestLayers(t *testing.T) {
	packages := listed(t)
	for _, p := range packages {
		from := p.ImportPath
		allowed, ok := layers[top(from)]
		if !ok {
			t.Errorf("%s: folder %s has no layer", from, top(from))
		}
		check := func(to string, allowed []string) {
			if top(to) == top(from) || within(to, allowed) {
				return
			}
			t.Errorf("%s imports %s, against the layers", from, to)
		}
		for _, to := range p.Imports {
			check(to, allowed)
		}
		for _, to := range slices.Concat(p.TestImports, p.XTestImports) {
			check(to, slices.Concat(allowed, testLayers[top(from)]))
		}
	}
}

// TestFolderCircles finds folders of the second level that import each other, directly
// or not. Go itself forbids that of packages.
func TestFolderCircles(t *testing.T) {
	imports := map[string]map[string]bool{}
	for _, p := range listed(t) {
		from := folder(p.ImportPath)
		if imports[from] == nil {
			imports[from] = map[string]bool{}
		}
		for _, to := range p.Imports {
			if folder(to) != from {
				imports[from][folder(to)] = true
			}
		}
	}
	reached := func(from string) map[string]bool {
		seen := map[string]bool{}
		var visit func(string)
		visit = func(f string) {
			for to := range imports[f] {
				if !seen[to] {
					seen[to] = true
					visit(to)
				}
			}
		}
		visit(from)
		return seen
	}
	for a := range imports {
		for b := range reached(a) {
			if a < b && reached(b)[a] {
				t.Errorf("folders %s and %s import each other", a, b)
			}
		}
	}
	for leaf := range leaves {
		if imports[leaf] == nil {
			t.Errorf("the leaf %s does not exist: delete it", leaf)
		}
	}
}

// TestPublic: the example outside the tree imports only what is public, impls and the
// command's Main.
func TestPublic(t *testing.T) {
	for _, p := range goList(t, filepath.Join(root, "examples", "variant")) {
		for _, to := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			if to != "cmd/watchlab/cli" && top(to) != "impls" {
				t.Errorf("examples/variant imports %s, which is not public", to)
			}
		}
	}
}

func listed(t *testing.T) []pkg { return goList(t, root) }

// goList returns the packages of a module with those of their imports that are of this
// repository, all without the module path.
func goList(t *testing.T, dir string) []pkg {
	t.Helper()
	module := strings.TrimSpace(output(t, root, "list", "-m")) + "/"
	relative := func(paths []string) (ours []string) {
		for _, p := range paths {
			if after, ok := strings.CutPrefix(p, module); ok {
				ours = append(ours, after)
			}
		}
		return ours
	}
	dec := json.NewDecoder(strings.NewReader(output(t, dir, "list", "-json=ImportPath,Imports,TestImports,XTestImports", "./...")))
	var all []pkg
	for {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		p.ImportPath = strings.TrimPrefix(p.ImportPath, module)
		p.Imports, p.TestImports, p.XTestImports = relative(p.Imports), relative(p.TestImports), relative(p.XTestImports)
		all = append(all, p)
	}
}

func output(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	var stderr strings.Builder
	cmd.Dir, cmd.Stderr = dir, &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, &stderr)
	}
	return string(out)
}

func top(p string) string { return strings.SplitN(p, "/", 2)[0] }

// folder returns the first two elements of a path, or a leaf.
func folder(p string) string {
	if leaves[p] != "" {
		return p
	}
	parts := strings.Split(p, "/")
	return strings.Join(parts[:min(2, len(parts))], "/")
}

func within(p string, folders []string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return p == f || strings.HasPrefix(p, f+"/") })
}

// count returns the number of files below a folder that want takes.
func count(t *testing.T, dir string, want func(string) bool) int64 {
	t.Helper()
	return sum(t, dir, func(p string, _ fs.DirEntry) int64 {
		if want(p) {
			return 1
		}
		return 0
	})
}

func bytesOf(t *testing.T, dir string) int64 {
	t.Helper()
	return sum(t, dir, func(_ string, d fs.DirEntry) int64 {
		info, err := d.Info()
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	})
}

// published returns the bytes of the results that are committed. A run of one's own adds to results/
// too, which git ignores.
func published(t *testing.T) (n int64) {
	t.Helper()
	list := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "results")
	list.Dir = root
	files, err := list.Output()
	if err != nil {
		t.Logf("published results not counted: git ls-files: %v", err)
	}
	for file := range strings.FieldsFuncSeq(string(files), func(r rune) bool { return r == 0 }) {
		n += bytesOf(t, file)
	}
	return n
}

func lines(t *testing.T) int64 {
	return sum(t, ".", func(p string, _ fs.DirEntry) int64 {
		if !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") {
			return 0
		}
		data, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		return int64(strings.Count(string(data), "\n"))
	})
}

// sum adds a number of each file below a folder of the tree, bin and .git left out.
func sum(t *testing.T, dir string, number func(string, fs.DirEntry) int64) (total int64) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, dir), func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "bin"):
			return fs.SkipDir
		case !d.IsDir():
			total += number(p, d)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return total
}
