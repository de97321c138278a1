package anonymise

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestVocabulary derives the vocabulary from the sources of the modules in use and compares it
// with the file.
func TestVocabulary(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine")
	}
	var lines []string
	for module, folders := range map[string][]string{
		"k8s.io/api":          {"."},
		"k8s.io/apimachinery": {"pkg/apis/meta/v1", "pkg/types"},
	} {
		out := must(exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module).Output())(t)
		root := strings.TrimSpace(string(out))
		for _, folder := range folders {
			err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
					return err
				}
				rel, err := filepath.Rel(root, filepath.Dir(path))
				if err != nil {
					return err
				}
				found, err := constantsOf(path, module+"/"+filepath.ToSlash(rel))
				lines = append(lines, found...)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	slices.Sort(lines)
	got := strings.Join(slices.Compact(lines), "\n") + "\n"
	if *update {
		if err := os.WriteFile("vocabulary.txt", []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := must(os.ReadFile("vocabulary.txt"))(t)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("vocabulary.txt is out of date (rewrite with -update): %s", diff)
	}
}

// kubernetesKey matches keys that belong to Kubernetes.
var kubernetesKey = regexp.MustCompile(`^([a-z0-9-]+\.)*(kubernetes|k8s)\.io/[A-Za-z0-9._-]*[A-Za-z0-9]$`)

// constantsOf returns the lines for the string constants of a file.
func constantsOf(path, pkg string) ([]string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, d := range file.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, spec := range g.Specs {
			v := spec.(*ast.ValueSpec)
			for i := range v.Names {
				if i >= len(v.Values) {
					continue
				}
				lit, ok := v.Values[i].(*ast.BasicLit)
				if !ok || lit.Kind != token.STRING {
					continue
				}
				value, err := strconv.Unquote(lit.Value)
				if err != nil {
					return nil, err
				}
				named, _ := v.Type.(*ast.Ident)
				switch {
				case value == "" || strings.ContainsAny(value, "\n\t"):
				case named != nil && named.Name != "string":
					lines = append(lines, pkg+"."+named.Name+"\t"+value)
				case kubernetesKey.MatchString(value):
					lines = append(lines, "key\t"+value)
				}
			}
		}
	}
	return lines, nil
}
