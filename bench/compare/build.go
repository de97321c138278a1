package compare

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchmath"
	"golang.org/x/perf/benchproc"
	"golang.org/x/perf/benchunit"

	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// Options say what is compared with what. [Defaults] are benchstat's, save that
// the commit is ignored, as that is what usually differs.
type Options struct {
	// Table, Row, Col and Ignore are projections, Filter is a filter, in the
	// language of golang.org/x/perf/benchproc/syntax.
	Table, Row, Col, Ignore, Filter string
	Alpha, Confidence               float64
}

// Defaults compares files.
func Defaults() Options {
	return Options{Table: ".config", Row: ".fullname", Col: ".file", Ignore: "commit", Filter: "*", Alpha: stats.Alpha, Confidence: stats.Confidence}
}

// OptionError is an option that cannot be used.
type OptionError struct {
	// Option is its name in small letters, as the command's flag has it.
	Option string
	Err    error
}

func (e *OptionError) Error() string { return e.Option + ": " + e.Err.Error() }
func (e *OptionError) Unwrap() error { return e.Err }

// Tables are what comes out, one for each unit and value of Options.Table.
type Tables struct {
	Tables   []*Table // one per unit and value of Options.Table
	Warnings []string // lines that cannot be read
	Refused  []string // cells whose figures are invalid
}

// Table is one unit's table.
type Table struct {
	Unit       string
	Keys       []KeyValue // values of Options.Table
	Rows, Cols []benchproc.Key
	Cells      map[Place]*Cell
	Sums       []Sum // geometric means, one per column
}

// KeyValue is one part of a table's key.
type KeyValue struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Place of a cell.
type Place struct{ Row, Col benchproc.Key }

// Cell is the rounds of one row and column.
type Cell struct {
	Sample        *benchmath.Sample
	Summary       benchmath.Summary
	Base          *Cell // the first column's cell; nil: not compared
	Test          benchmath.Comparison
	MinDetectable float64 // smallest visible change; 0 if unknown
	Warnings      []error
	residue       map[benchproc.Key]bool
	classes       map[string]bool
}

// Sum is a column's geometric mean and that of its ratios to the first column;
// NaN where there is none.
type Sum struct {
	Mean, Ratio float64
	Warnings    []error
}

// Build reads the inputs and makes the tables. Errors are an [*OptionError], one
// wrapping [ErrEmpty], or the file system's.
//
// Time: linear in the measurements, save for the test, which is exact up to 50
// rounds on a side and then takes their cube.
func Build(inputs []Input, o Options) (*Tables, error) {
	b, err := newBuilder(o)
	if err != nil {
		return nil, err
	}
	for _, in := range inputs {
		if err := b.read(in); err != nil {
			return nil, err
		}
	}
	if len(b.tables) == 0 {
		return nil, fmt.Errorf("%w among %d inputs (filter %q)", ErrEmpty, len(inputs), o.Filter)
	}
	return b.finish(), nil
}

// builder collects measurements.
type builder struct {
	opts                         Options
	filter                       *benchproc.Filter
	byTable, byRow, byCol, byAll *benchproc.Projection
	unit                         *benchproc.Field
	reader                       benchfmt.Reader
	tables                       map[benchproc.Key]*Table
	classes                      map[[2]string]string
	refused                      []refusal
	out                          Tables
}

// refusal is a cell that is not compared.
type refusal struct{ label, name, why string }

func newBuilder(o Options) (*builder, error) {
	for name, v := range map[string]float64{"alpha": o.Alpha, "confidence": o.Confidence} {
		if !(v > 0 && v < 1) {
			return nil, &OptionError{name, fmt.Errorf("%v is not between 0 and 1", v)}
		}
	}
	b := &builder{opts: o, tables: map[benchproc.Key]*Table{}, classes: map[[2]string]string{}}
	var err error
	if b.filter, err = benchproc.NewFilter(o.Filter); err != nil {
		return nil, &OptionError{"filter", err}
	}
	var parser benchproc.ProjectionParser
	if b.byTable, b.unit, err = parser.ParseWithUnit(o.Table, b.filter); err != nil {
		return nil, &OptionError{"table", err}
	}
	for _, p := range []struct {
		name, text string
		into       **benchproc.Projection
	}{{"row", o.Row, &b.byRow}, {"col", o.Col, &b.byCol}, {"ignore", o.Ignore, new(*benchproc.Projection)}} {
		if *p.into, err = parser.Parse(p.text, b.filter); err != nil {
			return nil, &OptionError{p.name, err}
		}
	}
	b.byAll = parser.Residue()
	return b, nil
}

func (b *builder) read(in Input) error {
	if in.Run != nil {
		b.judge(in)
	}
	file, err := os.Open(in.Path)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInput, err)
	}
	b.reader.Reset(file, in.Path, ".file", in.Label)
	for b.reader.Scan() {
		switch rec := b.reader.Result().(type) {
		case *benchfmt.SyntaxError:
			b.out.Warnings = append(b.out.Warnings, rec.Error())
		case *benchfmt.Result:
			retidy(rec)
			if ok, err := b.filter.Apply(rec); ok {
				b.add(rec, in)
			} else if err != nil && !slices.Contains(b.out.Warnings, err.Error()) {
				b.out.Warnings = append(b.out.Warnings, err.Error())
			}
		}
	}
	return errors.Join(b.reader.Err(), file.Close())
}

// judge notes what the folder says of its cells.
func (b *builder) judge(in Input) {
	for _, c := range in.Run.Comparisons {
		for _, cl := range c.Cells {
			name := cl.BenchName()
			b.classes[[2]string{in.Label, name}] = cl.Class
			if s := cl.Verdict.Status; s == lab.Invalid || s == lab.Unplayed {
				b.refused = append(b.refused, refusal{in.Label, name, cl.Verdict.String()})
			}
		}
	}
}

// retidy gives a value of 0 the unit that the others have: the reader keeps
// "ns" where nothing is to be converted, so that rounds without a pause would
// stand in a table of their own.
func retidy(rec *benchfmt.Result) {
	for i := range rec.Values {
		_, rec.Values[i].Unit = benchunit.Tidy(rec.Values[i].Value, rec.Values[i].Unit)
	}
}

func (b *builder) add(rec *benchfmt.Result, in Input) {
	place := Place{b.byRow.Project(rec), b.byCol.Project(rec)}
	residue := b.byAll.Project(rec)
	class := b.classes[[2]string{in.Label, stats.BareName(rec.Name)}]
	for i, key := range b.byTable.ProjectValues(rec) {
		t := b.tables[key]
		if t == nil {
			t = &Table{Cells: map[Place]*Cell{}}
			b.tables[key] = t
		}
		c := t.Cells[place]
		if c == nil {
			c = &Cell{Sample: &benchmath.Sample{}, residue: map[benchproc.Key]bool{}, classes: map[string]bool{}}
			t.Cells[place] = c
		}
		c.Sample.Values = append(c.Sample.Values, rec.Values[i].Value)
		c.residue[residue] = true
		if class != "" {
			c.classes[class] = true
		}
	}
}

// finish sums up and compares.
func (b *builder) finish() *Tables {
	units := b.reader.Units()
	for _, key := range sorted(b.tables) {
		t := b.tables[key]
		t.Unit = key.Get(b.unit)
		for _, f := range key.Projection().FlattenedFields() {
			if f.Name != b.unit.Name {
				t.Keys = append(t.Keys, KeyValue{f.Name, key.Get(f)})
			}
		}
		t.finish(units.GetAssumption(t.Unit), b.opts)
		b.out.Tables = append(b.out.Tables, t)
	}
	for _, r := range b.refused {
		if b.asked(r) {
			b.out.Refused = append(b.out.Refused, fmt.Sprintf("%s: %s: %s", r.label, r.name, r.why))
		}
	}
	return &b.out
}

// asked reports whether a cell would have been in a table.
func (b *builder) asked(r refusal) bool {
	res := benchfmt.Result{Name: benchfmt.Name(r.name)}
	res.SetConfig(".file", r.label)
	for _, t := range b.out.Tables {
		res.Values = append(res.Values, benchfmt.Value{Unit: t.Unit})
	}
	ok, err := b.filter.Apply(&res)
	return ok && err == nil
}

func (t *Table) finish(assume benchmath.Assumption, o Options) {
	rows, cols := map[benchproc.Key]bool{}, map[benchproc.Key]bool{}
	for place, c := range t.Cells {
		rows[place.Row], cols[place.Col] = true, true
		c.Sample = benchmath.NewSample(c.Sample.Values, &benchmath.Thresholds{CompareAlpha: o.Alpha})
		c.Summary = assume.Summary(c.Sample, o.Confidence)
		if vary := benchproc.NonSingularFields(sorted(c.residue)); len(vary) > 0 {
			var names []string
			for _, f := range vary {
				names = append(names, f.Name)
			}
			c.Warnings = append(c.Warnings, fmt.Errorf("benchmarks vary in %s", strings.Join(names, ", ")))
		}
	}
	t.Rows, t.Cols = sorted(rows), sorted(cols)
	for place, c := range t.Cells {
		base := t.Cells[Place{place.Row, t.Cols[0]}]
		if base == nil || base == c {
			continue
		}
		if a, b := promised(base), promised(c); a != "" && b != "" && a != b {
			c.Warnings = append(c.Warnings, fmt.Errorf("unequal guarantees, not compared: %s / %s", a, b))
			continue
		}
		c.Base, c.Test = base, assume.Compare(base.Sample, c.Sample)
		if share, ok := stats.MinDetectable(base.Sample.Values, c.Sample.Values); ok && o.Alpha == stats.Alpha {
			c.MinDetectable = share
		}
	}
	bases := 0
	for _, row := range t.Rows {
		if t.Cells[Place{row, t.Cols[0]}] != nil {
			bases++
		}
	}
	for i, col := range t.Cols {
		t.Sums = append(t.Sums, t.sum(col, i == 0, bases))
	}
}

// promised is what the variants of a cell promise, "" where that isn't known.
func promised(c *Cell) string {
	var all []string
	for class := range c.classes {
		all = append(all, class)
	}
	slices.Sort(all)
	return strings.Join(all, " and ")
}

// sum is the last row of a column. The ratios' mean is taken over rows rather
// than from the means, so that a row that one column lacks doesn't shift it.
func (t *Table) sum(col benchproc.Key, first bool, bases int) Sum {
	var centers, ratios []float64
	compared, undefined := 0, false
	for _, row := range t.Rows {
		c := t.Cells[Place{row, col}]
		if c == nil {
			continue
		}
		centers = append(centers, c.Summary.Center)
		if c.Base == nil {
			continue
		}
		compared++
		switch own, base := c.Summary.Center, c.Base.Summary.Center; {
		case own == base:
			ratios = append(ratios, 1) // 0 of 0 is no change, too.
		case base == 0:
			undefined = true
		default:
			ratios = append(ratios, own/base)
		}
	}
	s := Sum{Mean: geomean(centers), Ratio: math.NaN()}
	if !first && bases != compared {
		s.Warnings = append(s.Warnings, errors.New("benchmark set differs from baseline; geomeans may not be comparable"))
	}
	if math.IsNaN(s.Mean) {
		s.Warnings = append(s.Warnings, errors.New("summaries must be >0 to compute geomean"))
	}
	if !first && !undefined {
		if s.Ratio = geomean(ratios); math.IsNaN(s.Ratio) {
			s.Warnings = append(s.Warnings, errors.New("ratios must be >0 to compute geomean"))
		}
	}
	return s
}

// geomean is NaN of none, and where a value is not above 0.
func geomean(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sum := 0.0
	for _, v := range values {
		if !(v > 0) {
			return math.NaN()
		}
		sum += math.Log(v)
	}
	return math.Exp(sum / float64(len(values)))
}

func sorted[V any](keys map[benchproc.Key]V) []benchproc.Key {
	out := make([]benchproc.Key, 0, len(keys))
	for k := range keys {
		out = append(out, k)
	}
	benchproc.SortKeys(out)
	return out
}
