package controller_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/doc"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var updateGrammar = flag.Bool("update-grammar", false, "write docs/grammar.md")

const grammarFile = "../../docs/grammar.md"

const grammarHead = `# What can be written

The grammar of --faults, of files of rules and of workloads, from the comments of the code:
go test ./bench/controller -run TestGrammar -update-grammar. [controller.md](controller.md) says how they are used.

`

// TestGrammar: docs/grammar.md is what the types say.
func TestGrammar(t *testing.T) {
	faults, rules, workload := packageOf(t, "../../loadgen/fault"), packageOf(t, "rules"), packageOf(t, "../../loadgen/workload")
	var b strings.Builder
	b.WriteString(grammarHead)
	b.WriteString("## Faults\n\nNAME or NAME:FIELD=VALUE,… and several of them, separated by semicolons.\n\n| fault | effect |\n|---|---|\n")
	for _, typ := range faults.Types {
		for _, group := range typ.Consts {
			if typ.Name == "Name" {
				constants(t, &b, group.Decl)
			}
		}
	}
	b.WriteString("\n| field | meaning |\n|---|---|\n")
	for _, typ := range faults.Types {
		if typ.Name == "Spec" {
			fieldsOf(&b, typ.Decl)
		}
	}
	b.WriteString("\n## Rules\n\n")
	b.Write(markdown(rules, rules.Doc))
	b.WriteString("\n## Workloads\n\n")
	for _, f := range workload.Types {
		for _, fn := range f.Funcs {
			if fn.Name == "Read" {
				b.Write(markdown(workload, fn.Doc))
			}
		}
	}
	have, _ := os.ReadFile(grammarFile)
	if *updateGrammar {
		if err := os.WriteFile(grammarFile, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(have) != b.String() {
		t.Errorf("%s is out of date: go test ./bench/controller -run TestGrammar -update-grammar", grammarFile)
	}
}

func packageOf(t *testing.T, dir string) *doc.Package {
	t.Helper()
	set := token.NewFileSet()
	var files []*ast.File
	paths, _ := filepath.Glob(filepath.Join(dir, "*.go"))
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	p, err := doc.NewFromFiles(set, files, dir)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func markdown(p *doc.Package, text string) []byte {
	pr := p.Printer()
	pr.HeadingLevel, pr.HeadingID = 3, func(*comment.Heading) string { return "" }
	pr.DocLinkURL = func(*comment.DocLink) string { return "" }
	return pr.Markdown(p.Parser().Parse(text))
}

// constants writes a row for each constant, or for several that share a comment.
func constants(t *testing.T, b *strings.Builder, decl *ast.GenDecl) {
	t.Helper()
	for i := 0; i < len(decl.Specs); i++ {
		spec := decl.Specs[i].(*ast.ValueSpec)
		if spec.Doc == nil {
			t.Errorf("%s has no comment", spec.Names[0])
			continue
		}
		names := "`" + strings.Trim(spec.Values[0].(*ast.BasicLit).Value, `"`) + "`"
		for ; i+1 < len(decl.Specs) && decl.Specs[i+1].(*ast.ValueSpec).Doc == nil; i++ {
			names += ", `" + strings.Trim(decl.Specs[i+1].(*ast.ValueSpec).Values[0].(*ast.BasicLit).Value, `"`) + "`"
		}
		fmt.Fprintf(b, "| %s | %s |\n", names, oneRow(spec.Doc.Text()))
	}
}

func fieldsOf(b *strings.Builder, decl *ast.GenDecl) {
	fields := decl.Specs[0].(*ast.TypeSpec).Type.(*ast.StructType).Fields.List
	for i := 0; i < len(fields); i++ {
		if fields[i].Doc == nil {
			continue // the name
		}
		names, text := "", fields[i].Doc.Text()
		for first := i; ; i++ {
			names += ", `" + strings.ToLower(fields[i].Names[0].Name) + "`"
			if i+1 == len(fields) || fields[i+1].Doc != nil || i > first+2 {
				break
			}
		}
		fmt.Fprintf(b, "| %s | %s |\n", names[2:], oneRow(text))
	}
}

func oneRow(text string) string {
	return strings.NewReplacer("|", `\|`, "[Spec.", "", "]", "").Replace(strings.Join(strings.Fields(text), " "))
}
