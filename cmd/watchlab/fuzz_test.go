package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// formats are the packages whose import makes a package a reader of files or messages.
var formats = regexp.MustCompile(`"(encoding/(csv|gob|json|xml)|archive/tar|compress/(gzip|zlib)|[^"]*/(zstd|hdrhistogram-go|gojq|benchfmt|expfmt|textparse|json-patch\.v4|cbor(/direct|/v2)?|pprof/profile|yaml(/v3)?))"`)

// trusted are packages that import a format without a fuzz target, each with its reason.
var trusted = map[string]string{
	"bench/controller":            "its Spec is read by bench/experiment, its result is fuzzed in bench/report",
	"bench/pipeline":              "writes JSON, and reads objects that it has made itself",
	"bench/telemetry":             "reads the metrics that it has written itself",
	"bench/profile":               "reads the profiles of the runtime, in memory",
	"cmd/watchlab/cli":            "its files are read by the packages below it",
	"dashboards":                  "reads the YAML of its own folder, in tests",
	"impls/conformance/mergetest": "reads an object of its own source",
}

// TestFuzzTargets: every package that reads a format has a fuzz target, and the page of reliability lists each with
// the bounds of its memory and time.
func TestFuzzTargets(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "reliability.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range listed(t) {
		dir := filepath.Join(root, p.ImportPath)
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		reads := false
		var targets []string
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(file, "_test.go") {
				reads = reads || formats.Match(text)
				continue
			}
			for _, m := range regexp.MustCompile(`(?m)^func (Fuzz\w+)`).FindAllSubmatch(text, -1) {
				targets = append(targets, string(m[1]))
			}
		}
		if reason := trusted[p.ImportPath]; reads && len(targets) == 0 && reason == "" {
			t.Errorf("%s reads a format and has no fuzz target", p.ImportPath)
		}
		slices.Sort(targets)
		for _, name := range targets {
			if row := "| " + p.ImportPath + " | " + name + " |"; !strings.Contains(string(page), row) {
				t.Errorf("docs/reliability.md has no row %q", row)
			}
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^\| ([a-z/]+) \| (Fuzz\w+) \|`).FindAllSubmatch(page, -1) {
		found, err := filepath.Glob(filepath.Join(root, string(m[1]), "*_test.go"))
		if err != nil || !slices.ContainsFunc(found, func(file string) bool {
			text, err := os.ReadFile(file)
			return err == nil && strings.Contains(string(text), "func "+string(m[2])+"(")
		}) {
			t.Errorf("docs/reliability.md has %s of %s, which does not exist", m[2], m[1])
		}
	}
}
