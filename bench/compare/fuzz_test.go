package compare_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"watchlab/bench/compare"
	"watchlab/bench/stats"
)

// FuzzBuild: two benchmark files, with any filter and projections, are tables that can be written, or an error.
func FuzzBuild(f *testing.F) {
	old, err := os.ReadFile(files[0])
	if err != nil {
		f.Fatal(err)
	}
	d := compare.Defaults()
	f.Add(string(old), d.Filter, d.Row, d.Col)
	f.Add("BenchmarkX/impl=a-2 1 2 ns/op\nBenchmarkX/impl=b-2 1 3 ns/op\n", "/impl:(a OR b) -.unit:B/op", ".name", "/impl")
	f.Add("Unit x assume=exact\nBenchmarkX 1 0 x\nBenchmarkX 1 1 x\n", "*", ".fullname", "goos@(a b)")
	f.Add("BenchmarkX 1 -1 x\n", "/(:", "@", "\"")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text, filter, row, col string) {
		defer time.AfterFunc(time.Minute, func() { panic("an input took more than a minute") }).Stop()
		path := filepath.Join(dir, "bench.txt")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		inputs, err := compare.Open([]string{path, "other=" + path})
		if err != nil {
			t.Fatal(err)
		}
		o := compare.Defaults()
		o.Filter, o.Row, o.Col = filter, row, col
		tables, err := compare.Build(inputs, o)
		if err != nil {
			return
		}
		var out bytes.Buffer
		for name, write := range map[string]func() error{
			"text": func() error { return tables.Text(&out) }, "csv": func() error { return tables.CSV(&out, &out) },
			"markdown": func() error { return tables.Markdown(&out) }, "json": func() error { return tables.JSON(&out) },
		} {
			if err := write(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		old, err := compare.OpenRun(path)
		if err != nil {
			return
		}
		rules, _, err := compare.ReadRules("")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := compare.Gate(old, old, "rules", rules, false); err != nil && errors.Is(err, stats.ErrFormat) {
			t.Fatal(err)
		}
	})
}

// FuzzParseRules: a file has rules, or an error that names it.
func FuzzParseRules(f *testing.F) {
	f.Add(compare.DefaultRules)
	f.Add(compare.ControllerRules)
	for _, s := range []string{"rules: [{metric: a, change: 10%, because: b, better: lower}]", "rules:\n- metric: a\n  cells: '/a:('\n", "rules: &a [*a]", "rules: [{change: 0x1p-2%}]", "\xff"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		defer time.AfterFunc(time.Minute, func() { panic("an input took more than a minute") }).Stop()
		rules, err := compare.ParseRules("f", data)
		var at *compare.RuleError
		if err == nil == (len(rules) == 0) || err != nil && !errors.As(err, &at) {
			t.Fatalf("%d rules, %q", len(rules), err)
		}
	})
}
