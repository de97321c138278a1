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
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// layers lists what each folder of the tree may import (docs/architecture.md): the
// command is over bench, bench over loadgen, loadgen over impls.
// dashboards has the colours of variants.
var layers = map[string][]string{
	"cmd":        {"bench", "loadgen", "impls"},
	"bench":      {"loadgen", "impls"},
	"loadgen":    {"impls"},
	"impls":      {},
	"dashboards": {"bench/chart"},
}

// testLayers lists what tests of a folder may import in addition.
var testLayers = map[string][]string{
	// The variants play recorded storms, and examples have a server.
	"impls": {"loadgen/storm", "loadgen/trace", "loadgen/apiserver"},
	// The dashboards repeat a limit of the verdicts, and name metrics and variants.
	"dashboards": {"bench/lab", "bench/telemetry", "impls"},
}

// leaves are packages that count as folders of their own, each with its reason: they
// import less than the packages around them.
var leaves = map[string]string{
	"loadgen/apiserver/wire": "the wire format, which fault reads",
}

// limits are the sizes of the tree.
var limits = []struct {
	what string
	size func(*testing.T) int64
	most int64
}{
	{"packages of the root module", func(t *testing.T) int64 { return int64(len(listed(t))) }, 52},
	// A program of scripts/tools that needs the dependencies of its own release has a module: Kubernetes,
	// cert-manager. bench/clientgo has one for all releases of client-go.
	{"go.mod files", func(t *testing.T) int64 {
		return count(t, ".", func(p string) bool { return path.Base(p) == "go.mod" })
	}, 8},
	{"lines of Go without tests", lines(false), 84_000},
	{"lines of Go tests", lines(true), 58_500},
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

// nameless are names of packages that say nothing of what is in them.
var nameless = regexp.MustCompile(`(^|/)(utils?|common|helpers?|misc|shared|base)$`)

type pkg struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
}

// TestLayers holds the import graph against the layers.
func TestLayers(t *testing.T) {
	for _, p := range listed(t) {
		from := p.ImportPath
		if nameless.MatchString(from) {
			t.Errorf("%s: the name says nothing", from)
		}
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

// TestListeners: all that listens does so by the rule of apiserver.Access.
func TestListeners(t *testing.T) {
	listens := regexp.MustCompile(`\bnet\.Listen(\w*\(|Config)|\btls\.(Listen|NewListener)\(|\bListenAndServe|\bhttptest\.New\w*Server\(`)
	sources(t, func(file, text string) {
		if !strings.HasSuffix(file, "_test.go") && !strings.HasPrefix(file, "bench/e2e/") && file != "loadgen/apiserver/access.go" && listens.MatchString(text) {
			t.Errorf("%s has %q: listen by apiserver.Access", file, listens.FindString(text))
		}
	})
}

// formats are the imports that make a package a reader of files or messages.
var formats = regexp.MustCompile(`"(encoding/(csv|gob|json|xml)|archive/tar|compress/(gzip|zlib)|[^"]*/(zstd|hdrhistogram-go|gojq|benchfmt|expfmt|textparse|json-patch\.v4|cbor(/direct|/v2)?|pprof/profile|yaml(/v3)?))"`)

// trusted are packages that import a format and need no fuzz target, each with its reason.
var trusted = map[string]string{
	"bench/controller":         "its Spec is read by loadgen/manifest, its result is fuzzed in bench/report",
	"bench/controller/server":  "writes JSON, as patches",
	"bench/controller/verdict": "writes JSON, as evidence",
	"bench/pipeline":           "writes JSON, and reads objects that it has made itself",
	"bench/pprof":              "reads the profiles of the runtime, in memory",
	"bench/stats":              "reads benchmark files, which bench/compare fuzzes",
	"cmd/watchlab/cli":         "its files are read by the packages below it",
	"dashboards":               "reads the YAML of its own folder",
	"impls/conformance":        "reads an object of its own source",
}

// TestFuzzed: every package of the root module that reads a format has a fuzz target.
func TestFuzzed(t *testing.T) {
	reads, fuzzed := map[string]bool{}, map[string]bool{}
	sources(t, func(file, text string) {
		if strings.HasSuffix(file, "_test.go") {
			fuzzed[path.Dir(file)] = fuzzed[path.Dir(file)] || strings.Contains(text, "\nfunc Fuzz")
		} else if formats.MatchString(text) {
			reads[path.Dir(file)] = true
		}
	})
	for _, p := range listed(t) {
		if reads[p.ImportPath] && !fuzzed[p.ImportPath] && trusted[p.ImportPath] == "" {
			t.Errorf("%s reads a format and has no fuzz target", p.ImportPath)
		}
	}
}

// TestReadmeOutput: the output in README.md is that of the run that it names.
func TestReadmeOutput(t *testing.T) {
	_, shown, _ := strings.Cut(string(read(t, "README.md")), "```text\n")
	shown, _, _ = strings.Cut(shown, "```\n")
	_, report, ok := strings.Cut(shown, "\nReport: ")
	if !ok {
		t.Fatal("the output in README.md names no report")
	}
	if file := path.Join(path.Dir(report), "brief.txt"); string(read(t, file)) != shown {
		t.Errorf("README.md shows another output than %s", file)
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

func lines(tests bool) func(*testing.T) int64 {
	return func(t *testing.T) (n int64) {
		sources(t, func(file, text string) {
			if strings.HasSuffix(file, "_test.go") == tests {
				n += int64(strings.Count(text, "\n"))
			}
		})
		return n
	}
}

// sources visits all Go files of the tree.
func sources(t *testing.T, visit func(file, text string)) {
	t.Helper()
	sum(t, ".", func(p string, _ fs.DirEntry) int64 {
		if strings.HasSuffix(p, ".go") {
			file, err := filepath.Rel(root, p)
			if err != nil {
				t.Fatal(err)
			}
			visit(filepath.ToSlash(file), string(read(t, file)))
		}
		return 0
	})
}

// read returns a file of the tree.
func read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return data
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
