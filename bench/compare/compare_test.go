package compare_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"watchlab/bench/cell"
	"watchlab/bench/compare"
	"watchlab/bench/internal/golden"
	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// files are two runs. They contain a benchmark of only one run, a benchmark with one
// round, exact units, zeros, and a second package.
var files = []string{filepath.Join("testdata", "old.txt"), filepath.Join("testdata", "new.txt")}

// build builds the tables with changed defaults.
func build(t *testing.T, args []string, change ...func(*compare.Options)) *compare.Tables {
	t.Helper()
	inputs, err := compare.Open(args)
	if err != nil {
		t.Fatal(err)
	}
	o := compare.Defaults()
	for _, c := range change {
		c(&o)
	}
	tables, err := compare.Build(inputs, o)
	if err != nil {
		t.Fatal(err)
	}
	return tables
}

// benchstat runs the pinned version.
func benchstat(t *testing.T, args ...string) string {
	t.Helper()
	path, err := pinned()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("benchstat: %v\n%s", err, stderr.String())
	}
	return string(out)
}

// pinned builds the pinned benchstat and returns its path.
var pinned = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "tool", "-n", "benchstat").Output()
	return strings.TrimSpace(string(out)), err
})

// projections are options for both programs.
var projections = map[string]struct {
	args   []string
	change func(*compare.Options)
}{
	"defaults": {nil, func(*compare.Options) {}},
	"columns are variants": {[]string{"-col", "/impl", "-row", ".name,/rate"}, func(o *compare.Options) {
		o.Col, o.Row = "/impl", ".name,/rate"
	}},
	"two levels of columns": {[]string{"-col", ".file,/impl", "-row", ".name"}, func(o *compare.Options) {
		o.Col, o.Row = ".file,/impl", ".name"
	}},
	"filtered": {[]string{"-filter", "/impl:cond .unit:(ns/op OR p99-ns)"}, func(o *compare.Options) {
		o.Filter = "/impl:cond .unit:(ns/op OR p99-ns)"
	}},
	"a table a variant": {[]string{"-table", "/impl", "-row", "/rate"}, func(o *compare.Options) {
		o.Table, o.Row = "/impl", "/rate"
	}},
	"sorted": {[]string{"-row", "/impl@alpha"}, func(o *compare.Options) { o.Row = "/impl@alpha" }},
	"filtering order": {[]string{"-col", "/impl@(cond clientgo-realfifo)"}, func(o *compare.Options) {
		o.Col = "/impl@(cond clientgo-realfifo)"
	}},
	"too strict a test": {[]string{"-alpha", "0.001", "-confidence", "0.99"}, func(o *compare.Options) {
		o.Alpha, o.Confidence = 0.001, 0.99
	}},
}

// TestMatchesBenchstat compares with the pinned benchstat: every word of the text
// form and every figure of the CSV form must be equal.
func TestMatchesBenchstat(t *testing.T) {
	for name, p := range projections {
		t.Run(name, func(t *testing.T) {
			tables := build(t, files, p.change)
			var text, table, warnings bytes.Buffer
			if err := errors.Join(tables.Text(&text), tables.CSV(&table, &warnings)); err != nil {
				t.Fatal(err)
			}
			args := append(append([]string{"-ignore", "commit"}, p.args...), files...)
			if diff := cmp.Diff(words(benchstat(t, args...)), words(text.String())); diff != "" {
				t.Errorf("text (-benchstat +ours):\n%s", diff)
			}
			theirs, ours := records(t, benchstat(t, append([]string{"-format", "csv"}, args...)...)), records(t, table.String())
			if len(theirs) != len(ours) || len(theirs) < 5 {
				t.Fatalf("%d rows, benchstat has %d:\n%s", len(ours), len(theirs), table.String())
			}
			for i := range theirs {
				if !slices.EqualFunc(theirs[i], ours[i], alike) {
					t.Errorf("row %d: %q, benchstat has %q", i+1, ours[i], theirs[i])
				}
			}
		})
	}
}

// words splits a text table into lines and words.
func words(text string) [][]string {
	var out [][]string
	for line := range strings.Lines(text) {
		out = append(out, strings.Fields(strings.ReplaceAll(line, "│", " ")))
	}
	return out
}

func records(t *testing.T, text string) [][]string {
	t.Helper()
	in := csv.NewReader(strings.NewReader(text))
	in.FieldsPerRecord = -1
	out, err := in.ReadAll()
	if err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return out
}

// alike compares texts, and figures up to the last digits: means depend on the order of addition.
func alike(a, b string) bool {
	if a == b {
		return true
	}
	x, err1 := strconv.ParseFloat(a, 64)
	y, err2 := strconv.ParseFloat(b, 64)
	return err1 == nil && err2 == nil && math.Abs(x-y) <= 1e-12*math.Abs(x)
}

func TestGolden(t *testing.T) {
	tables := build(t, files)
	for name, write := range map[string]func(*bytes.Buffer) error{
		"table.txt": func(b *bytes.Buffer) error { return tables.Text(b) },
		"table.csv": func(b *bytes.Buffer) error { return tables.CSV(b, b) },
		"table.md":  func(b *bytes.Buffer) error { return tables.Markdown(b) },
	} {
		var got bytes.Buffer
		if err := write(&got); err != nil {
			t.Fatal(err)
		}
		golden.Check(t, name, got.String())
	}
}

// jsonTable is the JSON form of a table.
type jsonTable struct {
	Unit    string
	Columns []string
	Rows    []jsonRow
}

// jsonRow is the JSON form of a row.
type jsonRow struct {
	Name  string
	Cells []*struct {
		N      int
		Values []float64
		VsBase *struct {
			Change        *float64
			P             float64
			Significant   bool
			MinDetectable float64
		}
	}
}

func TestJSON(t *testing.T) {
	var b bytes.Buffer
	if err := build(t, files).JSON(&b); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Tables []jsonTable
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(got.Tables, func(tab jsonTable) bool {
		return tab.Unit == "sec/op" && slices.Equal(tab.Columns, files)
	})
	if at < 0 {
		t.Fatalf("%s", b.String())
	}
	var slower, same int
	for _, r := range got.Tables[at].Rows {
		for _, c := range r.Cells {
			switch {
			case c == nil || c.VsBase == nil:
			case c.VsBase.Significant && *c.VsBase.Change > 0.04:
				slower++
			case !c.VsBase.Significant && c.VsBase.MinDetectable > 0:
				same++
			}
		}
	}
	if slower != 1 || same != 1 {
		t.Errorf("%d slower, %d the same, want one each:\n%s", slower, same, b.String())
	}
}

// TestZeroHasItsUnit checks that rounds without a pause are in the same table as rounds with one.
func TestZeroHasItsUnit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "zero.txt")
	if err := os.WriteFile(path, []byte("BenchmarkX 1 0 gc-pause-ns/run\nBenchmarkX 1 4000 gc-pause-ns/run\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	tables := build(t, []string{path})
	if len(tables.Tables) != 1 || tables.Tables[0].Unit != "gc-pause-sec/run" {
		t.Fatalf("%d tables, the first of %s", len(tables.Tables), tables.Tables[0].Unit)
	}
	for _, row := range tables.Tables[0].Rows {
		if c := row.Cells[0]; len(c.Values) != 2 {
			t.Errorf("values %v", c.Values)
		}
	}
}

// folder writes a results folder with a baseline and a variant of the given class, and
// a verdict for the variant.
func folder(t *testing.T, class string, verdict lab.Verdict, speed float64) string {
	t.Helper()
	o := &lab.Outcome{Format: lab.Format, Name: "test", Rounds: 5, Env: lab.Env{GOMAXPROCS: 2, Args: []string{}}}
	c := lab.ComparisonResult{Family: "deltafifo", Title: "test"}
	for _, impl := range []string{"clientgo", "cond"} {
		cl := lab.CellResult{
			Name: "DeltaFIFO", Labels: []lab.Label{{Key: "impl", Value: impl}}, Class: "order total", Baseline: impl == "clientgo",
			Verdict: lab.Verdict{Status: lab.Valid},
		}
		if impl == "cond" {
			cl.Class, cl.Verdict = class, verdict
		}
		if cl.Verdict.Status != lab.Invalid {
			for i, f := range []float64{1, 1.01, 0.99, 1.02, 0.98} {
				cl.Rounds = append(cl.Rounds, lab.Round{Round: i + 1, Result: cell.Result{EventsIn: 1000, Elapsed: 1e6, EventsPerSecond: speed * f}})
			}
		}
		c.Cells = append(c.Cells, cl)
	}
	o.Comparisons = []lab.ComparisonResult{c}
	dir := t.TempDir()
	for name, write := range map[string]func(*os.File) error{
		lab.RunFile:   func(f *os.File) error { return o.WriteJSON(f) },
		lab.BenchFile: func(f *os.File) error { return o.WriteBench(f) },
		lab.EnvFile:   func(f *os.File) error { return json.NewEncoder(f).Encode(o.Env) },
	} {
		f, err := os.Create(filepath.Join(dir, name))
		if err == nil {
			err = errors.Join(write(f), f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestUnequalGuarantees(t *testing.T) {
	valid := lab.Verdict{Status: lab.Valid}
	total, perKey := folder(t, "order total", valid, 1e6), folder(t, "order per-key", valid, 2e6)
	for name, tc := range map[string]struct {
		args    []string
		col     string
		refused bool
	}{
		"equal":                    {[]string{"old=" + total, "new=" + folder(t, "order total", valid, 2e6)}, ".file", false},
		"between runs":             {[]string{"old=" + total, "new=" + perKey}, ".file", true},
		"between variants":         {[]string{perKey}, "/impl", true},
		"equal variants":           {[]string{total}, "/impl", false},
		"file without the label":   {[]string{"old=" + filepath.Join(total, lab.BenchFile), "new=" + perKey}, ".file", false},
		"folder without the label": {[]string{total, perKey}, ".file", true},
	} {
		t.Run(name, func(t *testing.T) {
			tables := build(t, tc.args, func(o *compare.Options) { o.Col = tc.col; o.Filter = ".unit:events/s" })
			var b bytes.Buffer
			if err := tables.Text(&b); err != nil {
				t.Fatal(err)
			}
			compared, refused := 0, strings.Contains(b.String(), "unequal guarantees")
			for _, row := range tables.Tables[0].Rows {
				for i, c := range row.Cells {
					if strings.Contains(row.Name+tables.Tables[0].Columns[i], "cond") && c.VsBase != nil {
						compared++
					}
				}
			}
			if refused != tc.refused || (compared == 0) != tc.refused {
				t.Errorf("refused: %v, compared: %d\n%s", refused, compared, b.String())
			}
		})
	}
}

func TestInvalidCells(t *testing.T) {
	bad := folder(t, "order total", lab.Verdict{Status: lab.Invalid, Cause: lab.CauseLost, Detail: "1 event"}, 1e6)
	args := []string{"old=" + folder(t, "order total", lab.Verdict{Status: lab.Valid}, 1e6), "new=" + bad}
	tables := build(t, args)
	var b bytes.Buffer
	if err := tables.Text(&b); err != nil {
		t.Fatal(err)
	}
	if want := []string{"new: DeltaFIFO/impl=cond: invalid: lost: 1 event"}; !slices.Equal(tables.Refused, want) || !strings.Contains(b.String(), want[0]) {
		t.Errorf("refused %q\n%s", tables.Refused, b.String())
	}
	if others := build(t, args, func(o *compare.Options) { o.Filter = "/impl:clientgo .unit:events/s" }); len(others.Refused) > 0 {
		t.Errorf("unexpected refusal: %q", others.Refused)
	}
}

func TestOpenMissingFiles(t *testing.T) {
	empty := t.TempDir()
	for _, args := range [][]string{{"missing.txt"}, {"label=missing.txt"}, {empty}, {files[0], "x=" + empty}} {
		if _, err := compare.Open(args); !errors.Is(err, compare.ErrInput) || !strings.Contains(err.Error(), strings.TrimPrefix(args[len(args)-1], "x=")) && !strings.Contains(err.Error(), "missing.txt") {
			t.Errorf("%q: %v", args, err)
		}
	}
	inputs, err := compare.Open([]string{files[0], files[0], "a=" + files[1], "a=" + files[1]})
	if err != nil {
		t.Fatal(err)
	}
	var labels []string
	for _, in := range inputs {
		labels = append(labels, in.Label)
	}
	if want := []string{files[0] + "#0", files[0] + "#1", "a", "a"}; !slices.Equal(labels, want) {
		t.Errorf("labels %q, want %q", labels, want)
	}
}

func TestBadOptions(t *testing.T) {
	inputs, err := compare.Open(files)
	if err != nil {
		t.Fatal(err)
	}
	for option, change := range map[string]func(*compare.Options){
		"filter":     func(o *compare.Options) { o.Filter = "/impl:" },
		"row":        func(o *compare.Options) { o.Row = "@" },
		"col":        func(o *compare.Options) { o.Col = "x@" },
		"table":      func(o *compare.Options) { o.Table = "a@b" },
		"ignore":     func(o *compare.Options) { o.Ignore = "((" },
		"alpha":      func(o *compare.Options) { o.Alpha = 1 },
		"confidence": func(o *compare.Options) { o.Confidence = math.NaN() },
	} {
		o := compare.Defaults()
		change(&o)
		var bad *compare.OptionError
		if _, err := compare.Build(inputs, o); !errors.As(err, &bad) || bad.Option != option {
			t.Errorf("%s: %v", option, err)
		}
	}
	o := compare.Defaults()
	o.Filter = "/impl:nobody"
	if _, err := compare.Build(inputs, o); !errors.Is(err, compare.ErrEmpty) {
		t.Errorf("nothing left: %v", err)
	}
}

// TestDefaults checks that the level of confidence is that of the run's tables.
func TestDefaults(t *testing.T) {
	if o := compare.Defaults(); o.Alpha != stats.Alpha || o.Confidence != stats.Confidence {
		t.Errorf("%+v", o)
	}
}
