package experiment_test

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

var updateGuide = flag.Bool("update-guide", false, "write the field reference of docs/experiments.md")

const (
	guide      = "../../docs/experiments.md"
	guideBegin = "<!-- fields: go test ./bench/experiment -update-guide writes them -->\n"
	guideEnd   = "<!-- end of fields -->\n"
)

// fields returns a row for each field of the structs of spec.go, from its doc comment or help text.
func fields(t *testing.T) string {
	t.Helper()
	structs := map[string]*ast.StructType{}
	for _, name := range []string{"spec.go", "claims.go", "../pipeline/config.go", "../../loadgen/source/apiserver.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if s, ok := spec.Type.(*ast.StructType); ok {
					structs[spec.Name.Name] = s
				}
			}
			return true
		})
	}
	var b strings.Builder
	b.WriteString("| field | flag | meaning |\n|---|---|---|\n")
	var walk func(prefix, name string)
	walk = func(prefix, name string) {
		for _, f := range structs[name].Fields.List {
			if embedded, ok := f.Type.(*ast.SelectorExpr); ok && len(f.Names) == 0 {
				walk(prefix, embedded.Sel.Name)
				continue
			}
			raw, err := strconv.Unquote(f.Tag.Value)
			if err != nil {
				t.Fatal(err)
			}
			tag := reflect.StructTag(raw)
			key, _, _ := strings.Cut(tag.Get("json"), ",")
			if key == "-" {
				continue
			}
			name, _, _ := strings.Cut(tag.Get("flag"), ",")
			if name != "" {
				name = "`--" + name + "`"
			}
			doc := cmp.Or(strings.Join(strings.Fields(f.Doc.Text()), " "), tag.Get("help"))
			if doc == "" {
				t.Errorf("field %s%s has neither a doc comment nor a help text", prefix, key)
			}
			doc = strings.ReplaceAll(doc, "|", `\|`)
			fmt.Fprintf(&b, "| `%s%s` | %s | %s |\n", prefix, key, name, doc)
			typ := f.Type
			if star, ok := typ.(*ast.StarExpr); ok {
				typ = star.X
			}
			if list, ok := typ.(*ast.ArrayType); ok {
				typ = list.Elt
			}
			if imported, ok := typ.(*ast.SelectorExpr); ok {
				typ = imported.Sel
			}
			if inner, ok := typ.(*ast.Ident); ok && structs[inner.Name] != nil && inner.Name != "Spec" {
				walk(prefix+key+".", inner.Name)
			}
		}
	}
	walk("", "Spec")
	return b.String()
}

// TestGuide: docs/experiments.md describes every field of the Spec.
func TestGuide(t *testing.T) {
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), guideBegin)
	_, after, ok2 := strings.Cut(rest, guideEnd)
	if !ok || !ok2 {
		t.Fatalf("%s has no field reference", guide)
	}
	want := before + guideBegin + fields(t) + guideEnd + after
	if *updateGuide {
		if err := os.WriteFile(guide, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(text) != want {
		t.Errorf("%s is out of date: go test ./bench/experiment -update-guide", guide)
	}
}
