package upstream

import (
	"go/ast"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"watchlab/impls"
	"watchlab/impls/workqueue"
)

// workqueueConstructors are the functions that client-go's tests of workqueues call, and those of
// testdata/workqueue that build a variant.
var workqueueConstructors = map[string]string{
	"New":                        "AdaptedNew",
	"NewWithConfig":              "AdaptedNewWithConfig",
	"NewDelayingQueueWithConfig": "adaptedNewDelayingQueueWithConfig",
	"newQueueWithConfig":         "adaptedQueueWithConfig",
}

// workqueueFiles are the test files with workqueues.
var workqueueFiles = []string{"queue_test.go", "delaying_queue_test.go", "rate_limiting_queue_test.go", "metrics_test.go"}

// workqueueWhiteBox are the tests that cannot run on a variant.
var workqueueWhiteBox = map[string]string{
	"TestCollapse":       "counts the calls of Touch of the Queue in the config; variants have an order of their own",
	"TestMetricShutdown": "replaces the unexported metrics of the queue",
}

// workqueueOrder are the tests that expect an order of items, which several shards do not keep.
var workqueueOrder = []string{"TestCopyShifting"}

// TestClientGoWorkqueue runs client-go's tests of workqueues on all variants.
func TestClientGoWorkqueue(t *testing.T) {
	root, copied := copyModule(t, clientGo)
	s := &suite{binary: filepath.Join(root, "workqueue.test"), dir: filepath.Join(copied, "util", "workqueue")}
	s.adaptWorkqueues(t)
	s.compile(t, root, copied, clientGo)
	for _, v := range workqueue.Variants() {
		r := run{
			name: "workqueue/" + v.Name, env: []string{"WATCHLAB_WORKQUEUE=" + v.Name},
			tests: s.tests, skipped: maps.Clone(workqueueWhiteBox),
		}
		if v.Guarantees[0].Order == impls.OrderPerShard {
			for _, name := range workqueueOrder {
				r.skipped[name] = acrossKeys
			}
		}
		r.tests = slices.DeleteFunc(slices.Clone(s.tests), func(name string) bool { return r.skipped[name] != "" })
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			if passed := s.play(t, r); passed == 0 {
				t.Error("no test passed")
			}
		})
	}
}

// adaptWorkqueues rewrites the tests and joins the files of testdata to the package.
func (s *suite) adaptWorkqueues(t *testing.T) {
	missing := map[string]bool{}
	for _, names := range []map[string]string{workqueueConstructors, workqueueWhiteBox} {
		for name := range names {
			missing[name] = true
		}
	}
	for _, name := range workqueueOrder {
		missing[name] = true
	}
	for _, name := range workqueueFiles {
		edit(t, filepath.Join(s.dir, name), func(file *ast.File) {
			for _, decl := range file.Decls {
				f, ok := decl.(*ast.FuncDecl)
				if !ok || f.Recv != nil {
					continue
				}
				if delete(missing, f.Name.Name); workqueueWhiteBox[f.Name.Name] == "" {
					rewriteWorkqueue(f, missing)
				}
				if strings.HasPrefix(f.Name.Name, "Test") {
					s.tests = append(s.tests, f.Name.Name)
				}
			}
		})
	}
	none(t, "client-go's tests of workqueues", missing)
	write(t, filepath.Join(s.dir, "watchlab.go"), read(t, "testdata/workqueue/adapter_test.go"))
	write(t, filepath.Join(s.dir, "watchlab_test.go"), read(t, "testdata/workqueue/variants_test.go"))
}

// rewriteWorkqueue changes what constructs a queue, and the pointer to upstream's type.
func rewriteWorkqueue(f *ast.FuncDecl, missing map[string]bool) {
	rename := func(e *ast.Expr) {
		switch fun := (*e).(type) {
		case *ast.IndexExpr: // newQueueWithConfig[any]
			if id, ok := fun.X.(*ast.Ident); ok && workqueueConstructors[id.Name] != "" {
				delete(missing, id.Name)
				*e = ast.NewIdent(workqueueConstructors[id.Name])
			}
		case *ast.SelectorExpr:
			if to := workqueueConstructors[fun.Sel.Name]; to != "" {
				delete(missing, fun.Sel.Name)
				fun.Sel = ast.NewIdent(to)
			}
		case *ast.Ident:
			if to := workqueueConstructors[fun.Name]; to != "" {
				delete(missing, fun.Name)
				*e = ast.NewIdent(to)
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			rename(&n.Fun)
		case *ast.Field:
			if star, ok := n.Type.(*ast.StarExpr); ok {
				if sel, ok := star.X.(*ast.SelectorExpr); ok && sel.Sel.Name == "Type" {
					sel.Sel = ast.NewIdent("Interface")
					n.Type = sel
				}
			}
		}
		return true
	})
}
