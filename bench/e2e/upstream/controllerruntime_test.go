package upstream

import (
	"bytes"
	"go/ast"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	_ "github.com/google/gofuzz" // of controller-runtime's tests, as the next two
	_ "github.com/onsi/ginkgo/v2"
	_ "github.com/onsi/gomega"

	"watchlab/bench/e2e/programs"
)

const controllerRuntime = "sigs.k8s.io/controller-runtime"

// unstripped are the specs that compare a cached object with the whole one that they have created. The
// decoder shared strips its managed fields. They run with client-go's decoder.
var unstripped = map[string]string{
	"should deep copy the object unless told otherwise":       "expects managedFields in the cache",
	"should be able to get informer for the object":           "expects managedFields in the notification",
	"should be able to get an informer by group/version/kind": "expects managedFields in the notification",
}

// TestControllerRuntime runs controller-runtime's tests of its cache and its client, in which each cache
// has our informers, with a real etcd and kube-apiserver.
func TestControllerRuntime(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: it starts API servers")
	}
	assets := t.TempDir()
	for _, name := range []string{"etcd", "kube-apiserver", "kubectl"} {
		if err := os.Symlink(programs.Pinned(t, name), filepath.Join(assets, name)); err != nil {
			t.Fatal(err)
		}
	}
	root, copied := copyModule(t, controllerRuntime)
	for _, of := range []string{"cache", "client"} {
		s := &suite{binary: filepath.Join(root, of+".test"), dir: filepath.Join(copied, "pkg", of)}
		s.adaptCaches(t, of)
		s.compile(t, root, copied, controllerRuntime)
		for _, r := range []run{
			{name: "clientgo"},
			{name: "informer", env: []string{"WATCHLAB_VARIANT=ring"}},
			{name: "recommended", env: []string{"WATCHLAB_VARIANT=ring", "WATCHLAB_DECODE=shared"}, skipped: unstripped},
			{name: "per-key", env: []string{"WATCHLAB_VARIANT=sharded", "WATCHLAB_DELIVERY=per-key", "WATCHLAB_DECODE=shared"}, skipped: unstripped},
			{name: "coalesce", env: []string{"WATCHLAB_VARIANT=cond", "WATCHLAB_HANDLERS=coalesce", "WATCHLAB_DECODE=shared"}, skipped: unstripped},
		} {
			t.Run(of+"/"+r.name, func(t *testing.T) { s.specs(t, r, assets) })
		}
	}
}

// adaptCaches replaces cache.New in the test files, and joins the adapter to the package.
func (s *suite) adaptCaches(t *testing.T, of string) {
	files, err := filepath.Glob(filepath.Join(s.dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	replaced := 0
	for _, path := range files {
		edit(t, path, func(file *ast.File) {
			if file.Name.Name != of+"_test" {
				return
			}
			replace := func(e *ast.Expr) {
				sel, ok := (*e).(*ast.SelectorExpr)
				if !ok || sel.Sel.Name != "New" {
					return
				}
				if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "cache" {
					*e = &ast.Ident{NamePos: sel.Pos(), Name: "newWatchlabCache"}
					replaced++
				}
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					replace(&call.Fun)
					for i := range call.Args {
						replace(&call.Args[i])
					}
				}
				return true
			})
		})
	}
	if replaced == 0 {
		t.Fatalf("controller-runtime's tests of %s construct no cache any more: adapt this file", of)
	}
	adapter := read(t, "testdata/controllerruntime/adapter_test.go")
	write(t, filepath.Join(s.dir, "watchlab_test.go"), bytes.Replace(adapter, []byte("package adapted_test"), []byte("package "+of+"_test"), 1))
}

var ran = regexp.MustCompile(`Ran (\d+) of (\d+) Specs`)

// specs runs the suite with a configuration of the caches.
func (s *suite) specs(t *testing.T, r run, assets string) {
	args := []string{"-test.timeout=30m", "-ginkgo.no-color", "-ginkgo.flake-attempts=2"}
	for spec, reason := range r.skipped {
		args = append(args, "-ginkgo.skip="+spec)
		t.Logf("skipped: %s: %s", spec, reason)
	}
	c := exec.Command(s.binary, args...)
	c.Dir, c.Env = s.dir, append(append(os.Environ(), "KUBEBUILDER_ASSETS="+assets), r.env...)
	out, err := c.CombinedOutput()
	m := ran.FindSubmatch(out)
	if err != nil || m == nil {
		t.Fatalf("%v\n%s", err, summary(out))
	}
	t.Logf("%s of %s specs passed", m[1], m[2])
}

// summary returns the failures that ginkgo sums up, or the end.
func summary(out []byte) []byte {
	if at := bytes.Index(out, []byte("Summarizing")); at >= 0 {
		return out[at:][:min(len(out)-at, 8<<10)]
	}
	return tail(out)
}
