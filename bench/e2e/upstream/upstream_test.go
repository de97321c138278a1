// Package upstream runs the tests of client-go's packages cache and workqueue on the variants. It
// copies the pinned module, changes in its test files what constructs a queue, a store or an informer,
// and runs the result. Nothing of client-go stands in this tree.
package upstream

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"watchlab/impls"
	"watchlab/impls/deltafifo"
	"watchlab/impls/informer"
	"watchlab/impls/queue"
	"watchlab/impls/store"
)

// constructors are the functions that client-go's tests call, and those of testdata/cache that build
// a variant.
var constructors = map[string]string{
	"NewDeltaFIFOWithOptions": "newAdaptedDeltaFIFO",
	"NewRealFIFO":             "newAdaptedRealFIFO",
	"NewRealFIFOWithOptions":  "newAdaptedRealFIFOWithOptions",
	"NewFIFO":                 "newAdaptedFIFO",
	"NewSharedInformer":       "newAdaptedSharedInformer",
	"NewStore":                "newAdaptedStore",
	"NewIndexer":              "newAdaptedIndexer",
	"NewThreadSafeStore":      "newAdaptedThreadSafeStore",
}

// types are upstream's, of which the tests have pointers.
var types = map[string]string{
	"DeltaFIFO": "adaptedDeltaFIFO", "RealFIFO": "adaptedRealFIFO", "FIFO": "adaptedFIFO", "threadSafeMap": "adaptedThreadSafeStore",
}

// fields are those that tests read to see what is queued, by file.
var fields = map[string]map[string]string{
	"delta_fifo_test.go":        {"items": "itemsByKey()", "queue": "listKeys()"},
	"the_real_fifo_test.go":     {"items": "getItems()"},
	"thread_safe_store_test.go": {"indices": "indices()"},
}

// helpers are the functions of upstream's test files that only read fields. testdata/cache has them too.
var helpers = []string{
	"DeltaFIFO.list", "DeltaFIFO.listLocked", "DeltaFIFO.listKeys", "DeltaFIFO.get", "DeltaFIFO.getByKey",
	"RealFIFO.getItems", "FIFO.List", "FIFO.ListKeys", "FIFO.Get", "FIFO.GetByKey",
	"eventHandlerCount", "isStarted", "isRegistered",
}

// whiteBox are the tests that read or set fields of upstream's structs, and so cannot run on a
// variant. They stay as upstream wrote them.
var whiteBox = map[string]string{
	"TestDeltaFIFO_KeyOf":                "calls a method of a DeltaFIFO that has no queue",
	"TestRealFIFO_KeyOf":                 "calls a method of a RealFIFO that has no queue",
	"TestRealFIFO_PopBrokenItemsInBatch": "appends objects without a key to the field items; Add refuses them",
	"TestResyncCheckPeriod":              "reads the resync periods of the informer and its listeners",
	"TestSharedInformerWatchDisruption":  "sets the clocks of the informer and its processor",
	"TestMutationDetector":               "replaces the mutation detector of the informer",
	"TestCacheWithTransformer":           "sets the option WithTransformer, which the stores of the family lack",
	"TestWithStoreMetricsDefaulting":     "reads the metrics provider of the store",
}

// differences are the tests that fail on a variant, and why they may. Sometimes: not in each run.
var differences = []struct {
	run, test, reason string
	sometimes         bool
}{
	{"deltafifo/clientgo/in-order", "TestRealFIFO_PopMultipleDeltaInBatch", "the baseline clientgo-realfifo has no PopBatch", false},
	{"deltafifo/sharded/per-key", "TestReflectorRespectStoreTransformer", inOrderToo, false},
	{"deltafifo/sharded/per-key/throttled", "TestReflectorRespectStoreTransformer", inOrderToo, false},
	{"deltafifo/sharded/per-key/shards", "TestReflectorRespectStoreTransformer", inOrderToo, false},
	{"deltafifo/sharded/per-key/shards", "TestDeltaFIFO_basic", acrossKeys, true},
	{"deltafifo/sharded/per-key/shards", "TestDeltaFIFO_transformer", acrossKeys, true},
	{"deltafifo/sharded/per-key/shards", "TestDeltaFIFO_enqueueingNoLister", acrossKeys, true},
	{"deltafifo/sharded/per-key/shards", "TestDeltaFIFO_enqueueingWithLister", acrossKeys, true},
	{"deltafifo/sharded/per-key/shards", "TestDeltaFIFO_detectLineJumpers", acrossKeys, true},
	{"deltafifo/sharded/per-key/shards", "TestDeltaFIFO_ReplaceMakesDeletions", acrossKeys, true},
	{"deltafifo/sharded/per-key/shards", "TestDeltaFIFO_ReplaceMakesDeletionsReplaced", acrossKeys, true},
	{"deltafifo/sharded/per-key/shards", "TestDeltaFIFO_HasSyncedCorrectOnDeletion", acrossKeys, true},
	{"queue/sharded/shards", "TestFIFO_basic", acrossKeys, true},
	{"queue/sharded/shards", "TestFIFO_detectLineJumpers", acrossKeys, true},
	{"queue/sharded/shards", "TestReflectorListAndWatch", acrossKeys, true},
}

const (
	inOrderToo = "its second part needs in-order delivery, which sharded lacks"
	acrossKeys = "expects the order of different keys, which several shards do not keep"
)

// joined are the files that join the package, by their names there.
var joined = map[string]string{
	"watchlab.go": "testdata/cache/adapter_test.go", "watchlab_stores.go": "testdata/cache/stores_adapter_test.go",
	"watchlab_test.go": "testdata/cache/variants_test.go",
}

// TestMain lets more runs than cores go on at once, because upstream's tests sleep most of the time.
func TestMain(m *testing.M) {
	flag.Parse()
	parallel := "4"
	if testing.Short() { // without the race detector
		parallel = "24"
	}
	if err := flag.Set("test.parallel", parallel); err != nil {
		panic(err)
	}
	m.Run()
}

func TestClientGo(t *testing.T) {
	s := build(t)
	var passed atomic.Int64
	skipped := map[string]bool{}
	runs := s.runs()
	t.Run("run", func(t *testing.T) {
		for _, r := range runs {
			for name := range r.skipped {
				skipped[name] = true
			}
			t.Run(r.name, func(t *testing.T) {
				t.Parallel()
				passed.Add(s.play(t, r))
			})
		}
	})
	for name := range whiteBox {
		if !skipped[name] {
			t.Errorf("whiteBox names %s, which no run skips", name)
		}
	}
	for _, d := range differences {
		if !slices.ContainsFunc(runs, func(r run) bool { return r.name == d.run && slices.Contains(r.tests, d.test) }) {
			t.Errorf("differences names %s of %s, which is not run", d.test, d.run)
		}
	}
	t.Logf("%d tests of client-go passed in %d runs", passed.Load(), len(runs))
}

// suite is client-go's test binary, and what its source says about the tests.
type suite struct {
	binary, dir string
	uses        map[string][]string // the functions of the package that a function names
	tests       []string
}

// build copies client-go, adapts its tests and compiles them.
func build(t *testing.T) *suite {
	t.Helper()
	root, copied := copyModule(t, clientGo)
	s := &suite{binary: filepath.Join(root, "cache.test"), dir: filepath.Join(copied, "tools", "cache"), uses: map[string][]string{}}
	s.adapt(t)
	s.compile(t, root, copied, clientGo)
	return s
}

const clientGo = "k8s.io/client-go"

// copyModule copies a module into a folder of root.
func copyModule(t *testing.T, module string) (root, copied string) {
	t.Helper()
	root = t.TempDir()
	copied = filepath.Join(root, path.Base(module))
	if err := os.CopyFS(copied, os.DirFS(command(t, "go", "list", "-m", "-f", "{{.Dir}}", module))); err != nil {
		t.Fatal(err)
	}
	return root, copied
}

// compile compiles the tests of the suite's folder in the copied module. The copy replaces the module
// in a second go.mod, so that all versions are those of this module.
func (s *suite) compile(t *testing.T, root, copied, module string) {
	t.Helper()
	mod, sum := filepath.Join(root, "go.mod"), filepath.Join(root, "go.sum")
	here := filepath.Dir(command(t, "go", "env", "GOMOD"))
	write(t, mod, read(t, filepath.Join(here, "go.mod")), fmt.Appendf(nil, "\nreplace %s => %s\n", module, copied))
	write(t, sum, read(t, filepath.Join(here, "go.sum")))
	args := []string{"test", "-c", "-trimpath", "-modfile=" + mod, "-o", s.binary}
	if !testing.Short() && module == clientGo {
		args = append(args, "-race")
	}
	command(t, "go", append(args, module+strings.TrimPrefix(filepath.ToSlash(s.dir), filepath.ToSlash(copied)))...)
}

// adapt rewrites the tests and joins the files of testdata to the package.
func (s *suite) adapt(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(s.dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	missing := map[string]bool{"newQueueFIFO": true, "VerifyTestMain": true}
	for _, names := range [][]string{helpers, slices.Collect(maps.Keys(constructors)), slices.Collect(maps.Keys(types)), slices.Collect(maps.Keys(whiteBox))} {
		for _, name := range names {
			missing[name] = true
		}
	}
	for _, path := range files {
		isTest := strings.HasSuffix(path, "_test.go")
		edit(t, path, func(file *ast.File) {
			file.Decls = slices.DeleteFunc(file.Decls, func(decl ast.Decl) bool {
				f, ok := decl.(*ast.FuncDecl)
				if !ok {
					return false
				}
				name := funcName(f)
				switch {
				case isTest && slices.Contains(helpers, name):
					delete(missing, name)
					return true
				case name == "newQueueFIFO":
					delete(missing, name)
					f.Name = ast.NewIdent("_") // keeps the imports in use
					return false
				case isTest && whiteBox[name] != "":
					delete(missing, name)
				case isTest:
					rewrite(f, fields[filepath.Base(path)], missing)
				}
				if f.Recv == nil {
					s.uses[name] = identifiers(f)
				}
				// Upstream's examples leave goroutines behind, which goleak finds now and then.
				if isTest && strings.HasPrefix(name, "Test") && name != "TestMain" {
					s.tests = append(s.tests, name)
				}
				return false
			})
		})
	}
	none(t, "client-go's package cache", missing)
	for to, from := range joined {
		write(t, filepath.Join(s.dir, to), read(t, from))
	}
}

// edit changes a source file.
func edit(t *testing.T, path string, change func(file *ast.File)) {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	change(file)
	var out bytes.Buffer
	if err := printer.Fprint(&out, fset, file); err != nil {
		t.Fatal(err)
	}
	write(t, path, out.Bytes())
}

// none fails the test if names of the tables are missing.
func none(t *testing.T, of string, missing map[string]bool) {
	t.Helper()
	if len(missing) > 0 {
		t.Fatalf("%s: no %v any more: adapt the tables of this package", of, slices.Sorted(maps.Keys(missing)))
	}
}

// rewrite changes what constructs a queue or an informer, and what reads a queue's fields.
func rewrite(f *ast.FuncDecl, fields map[string]string, missing map[string]bool) {
	rename := func(id *ast.Ident, names map[string]string) {
		if to, ok := names[id.Name]; ok {
			delete(missing, id.Name)
			id.Name = to
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if id, ok := n.Fun.(*ast.Ident); ok {
				rename(id, constructors)
			}
			if sel, ok := n.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "VerifyTestMain" {
				delete(missing, "VerifyTestMain")
				n.Args = []ast.Expr{&ast.CompositeLit{Type: ast.NewIdent("WatchlabMain"), Elts: n.Args}}
			}
		case *ast.StarExpr:
			if id, ok := n.X.(*ast.Ident); ok {
				rename(id, types)
			}
		case *ast.TypeAssertExpr:
			if star, ok := n.Type.(*ast.StarExpr); ok {
				if id, ok := star.X.(*ast.Ident); ok && id.Name == "sharedIndexInformer" {
					n.Type = ast.NewIdent("SharedIndexInformer")
				}
			}
		case *ast.SelectorExpr:
			if to, ok := fields[n.Sel.Name]; ok {
				n.Sel = ast.NewIdent(to)
			}
		}
		return true
	})
}

// funcName returns the name of a function, or that of a method as Type.method.
func funcName(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	if star, ok := f.Recv.List[0].Type.(*ast.StarExpr); ok {
		if id, ok := star.X.(*ast.Ident); ok {
			return id.Name + "." + f.Name.Name
		}
	}
	return "." + f.Name.Name
}

func identifiers(f *ast.FuncDecl) []string {
	var names []string
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			names = append(names, id.Name)
		}
		return true
	})
	return names
}

// reaching returns the tests that call one of the functions, directly or through others.
func (s *suite) reaching(targets ...string) []string {
	reached := map[string]bool{}
	for _, name := range targets {
		reached[name] = true
	}
	for grown := true; grown; {
		grown = false
		for name, uses := range s.uses {
			if !reached[name] && slices.ContainsFunc(uses, func(u string) bool { return reached[u] }) {
				reached[name], grown = true, true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(s.tests), func(name string) bool { return !reached[name] })
}

// run is one pass of the test binary.
type run struct {
	name    string
	env     []string
	tests   []string
	skipped map[string]string // the tests left out, and why
}

// The functions that construct a queue or an informer: those of testdata, and upstream's. Only tests
// in whiteBox call the latter.
var (
	inControllers = []string{"newQueueFIFO", "newAdaptedSharedInformer", "NewSharedInformer"}
	adapted       = map[string][]string{
		"per-key":  append([]string{"newAdaptedDeltaFIFO"}, inControllers...),
		"in-order": append([]string{"newAdaptedRealFIFO", "newAdaptedRealFIFOWithOptions"}, inControllers...),
		"latest":   {"newAdaptedFIFO"},
		"informer": {"newAdaptedSharedInformer"},
		// Other tests build stores too: they run on a variant of this family in its runs, and on client-go's in all others.
		"store": {"newAdaptedStore", "newAdaptedIndexer", "newAdaptedThreadSafeStore"},
	}
	upstreams = map[string][]string{
		"per-key": {"DeltaFIFO"}, "in-order": {"RealFIFO", "NewRealFIFO"}, "informer": {"NewSharedInformer"},
		"store": {"NewStore", "NewIndexer", "NewThreadSafeStore"},
	}
)

// runs returns a run for each family, variant and mode. clientgo stands for the baselines: the tests
// must pass on what they were written for.
func (s *suite) runs() []run {
	var runs []run
	add := func(name, variant, delivery, constructs string, shards int, env ...string) {
		env = append(env, "WATCHLAB_VARIANT="+variant, "WATCHLAB_DELIVERY="+delivery, "WATCHLAB_SHARDS="+strconv.Itoa(shards))
		r := run{name: name, env: env, tests: s.reaching(adapted[constructs]...), skipped: map[string]string{}}
		for _, test := range s.reaching(upstreams[constructs]...) {
			if reason := whiteBox[test]; reason != "" && !slices.Contains(r.tests, test) {
				r.skipped[test] = reason
			}
		}
		runs = append(runs, r)
	}
	modes := func(name string, guarantees []impls.Guarantees, sharded bool) {
		for _, g := range guarantees {
			add("deltafifo/"+name+"/"+g.Mode, name, g.Mode, g.Mode, 1)
			add("informer/"+name+"/"+g.Mode, name, g.Mode, "informer", 1, "WATCHLAB_INFORMER=1")
			if sharded {
				add("deltafifo/"+name+"/"+g.Mode+"/shards", name, g.Mode, g.Mode, 4)
				add("informer/"+name+"/"+g.Mode+"/shards", name, g.Mode, "informer", 4, "WATCHLAB_INFORMER=1")
			}
		}
	}
	throttling := func(v deltafifo.Variant) {
		for _, g := range v.Guarantees {
			add("deltafifo/"+v.Name+"/"+g.Mode+"/throttled", v.Name, g.Mode, g.Mode, 1, "WATCHLAB_THROTTLE=yes")
			add("informer/"+v.Name+"/"+g.Mode+"/unthrottled", v.Name, g.Mode, "informer", 1, "WATCHLAB_INFORMER=1", "WATCHLAB_THROTTLE=no")
		}
	}
	handlers := func(v deltafifo.Variant) {
		for _, g := range v.Guarantees {
			add("informer/"+v.Name+"/"+g.Mode+"/coalesce", v.Name, g.Mode, "informer", 1, "WATCHLAB_INFORMER=1", "WATCHLAB_HANDLERS=coalesce")
		}
	}
	stores := func(v deltafifo.Variant) {
		for _, g := range v.Guarantees {
			for _, s := range store.Variants() {
				add("informer/"+v.Name+"/"+g.Mode+"/"+s.Name, v.Name, g.Mode, "informer", 1, "WATCHLAB_INFORMER=1", "WATCHLAB_STORE="+s.Name)
			}
		}
	}
	modes("clientgo", []impls.Guarantees{{Mode: "per-key"}, {Mode: "in-order"}}, false)
	for _, v := range deltafifo.Variants() {
		if !v.Baseline() {
			q, err := v.New(deltafifo.Options{Shards: 4})
			modes(v.Name, v.Guarantees, err == nil)
			throttling(v)
			if v.Name == informer.DefaultVariant {
				handlers(v)
				stores(v)
			}
			if err == nil {
				q.Close()
			}
		}
	}
	for _, v := range queue.Variants() {
		name := v.Name
		if v.Baseline() {
			name = "clientgo"
		}
		add("queue/"+name, name, "in-order", "latest", 1)
		if q, err := v.New(queue.Options{Shards: 4}); err == nil {
			q.Close()
			add("queue/"+name+"/shards", name, "in-order", "latest", 4)
		}
	}
	for _, v := range store.Variants() {
		add("store/"+v.Name, "clientgo", "in-order", "store", 1, "WATCHLAB_STORE="+v.Name)
	}
	return runs
}

// play runs the tests of r and returns how many passed.
func (s *suite) play(t *testing.T, r run) (passed int64) {
	for _, d := range differences {
		if d.run != r.name {
			continue
		}
		r.tests = slices.DeleteFunc(slices.Clone(r.tests), func(name string) bool { return name == d.test })
		r.skipped[d.test] = d.reason
		if failed, _ := s.exec(r, []string{d.test}); len(failed) == 0 && !d.sometimes {
			t.Errorf("differences names %s, which passes", d.test)
		}
	}
	failed, out := s.exec(r, r.tests)
	if len(failed) > 0 {
		// Upstream's tests wait for 50 ms here and there: a busy machine gets a second try.
		t.Logf("second try of %s after\n%s", strings.Join(failed, ", "), tail(out))
		failed, out = s.exec(r, failed)
	}
	if len(failed) > 0 {
		t.Errorf("failed: %s\n%s", strings.Join(failed, ", "), tail(out))
	}
	for name, reason := range r.skipped {
		t.Logf("skipped: %s: %s", name, reason)
	}
	t.Logf("%d tests passed, %d were skipped", len(r.tests)-len(failed), len(r.skipped))
	return int64(len(r.tests) - len(failed))
}

func tail(out []byte) []byte { return out[max(0, len(out)-4<<10):] }

var pass = regexp.MustCompile(`--- PASS: (\w+) \(`)

// exec runs tests and returns those that did not pass. If all passed and the binary failed, for
// example because a goroutine leaked, it returns all of them.
func (s *suite) exec(r run, tests []string) (failed []string, out []byte) {
	c := exec.Command(s.binary, "-test.v", "-test.timeout=5m", "-test.run=^("+strings.Join(tests, "|")+")$")
	c.Dir, c.Env = s.dir, append(os.Environ(), r.env...)
	out, err := c.CombinedOutput()
	ok := map[string]bool{}
	for _, m := range pass.FindAllSubmatch(out, -1) {
		ok[string(m[1])] = true
	}
	failed = slices.DeleteFunc(slices.Clone(tests), func(name string) bool { return ok[name] })
	if err != nil && len(failed) == 0 {
		failed = tests
	}
	return failed, out
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	var errs bytes.Buffer
	c := exec.Command(name, args...)
	if c.Stderr = &errs; slices.Contains(args, "-race") {
		c.Env = append(os.Environ(), "CGO_ENABLED=1") // It may be off.
	}
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, &errs)
	}
	return strings.TrimSpace(string(out))
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func write(t *testing.T, path string, parts ...[]byte) {
	t.Helper()
	if err := os.WriteFile(path, bytes.Join(parts, nil), 0o666); err != nil {
		t.Fatal(err)
	}
}
