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

// Options select and group the measurements. [Defaults] are benchstat's, except that
// the commit is ignored: it usually differs between the inputs.
type Options struct {
	// Table, Row, Col and Ignore are projections and Filter is a filter. The syntax is
	// that of golang.org/x/perf/benchproc/syntax.
	Table, Row, Col, Ignore, Filter string
	// Alpha is the significance level of the tests; Confidence is the level of the
	// intervals. Both are between 0 and 1.
	Alpha, Confidence float64
}

// Defaults returns the options for a comparison of files, one column per file.
func Defaults() Options {
	return Options{Table: ".config", Row: ".fullname", Col: ".file", Ignore: "commit", Filter: "*", Alpha: stats.Alpha, Confidence: stats.Confidence}
}

// OptionError is an invalid option.
type OptionError struct {
	// Option is the lower-case name, the same as the flag's.
	Option string
	// Err is the cause.
	Err error
}

func (e *OptionError) Error() string { return e.Option + ": " + e.Err.Error() }
func (e *OptionError) Unwrap() error { return e.Err }

// Tables is the result of [Build].
type Tables struct {
	// Tables has one element per unit and value of Options.Table.
	Tables []*Table
	// Warnings names unreadable lines, with file and number, and measurements that the
	// filter cannot judge. All other measurements are in the tables.
	Warnings []string
	// Refused names the cells of results folders with invalid figures, and the reasons.
	// No table contains them.
	Refused []string
}

// Table holds the cells of one unit.
type Table struct {
	// Unit is benchstat's: "sec/op" for "ns/op".
	Unit string
	// Keys are the common values of Options.Table, in order, without the unit.
	Keys []KeyValue
	// Rows and Cols are sorted. The other columns are compared with Cols[0].
	Rows, Cols []benchproc.Key
	// Cells has no entry where a row lacks a column.
	Cells map[Place]*Cell
	// Sums holds the geometric means, one per column.
	Sums []Sum
}

// KeyValue is one part of a table's key, such as goos and linux.
type KeyValue struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Place is the position of a cell in a table.
type Place struct{ Row, Col benchproc.Key }

// Cell is the rounds of one row and column.
type Cell struct {
	// Sample holds the values of all rounds.
	Sample *benchmath.Sample
	// Summary is the median and its confidence interval.
	Summary benchmath.Summary
	// Base is the cell of the first column. It is nil in the first column, if the first
	// column lacks the row, and for unequal guarantees.
	Base *Cell
	// Test compares the cell with Base; unset without a Base.
	Test benchmath.Comparison
	// MinDetectable is the smallest change that these rounds detect, as a share (see
	// [stats.MinDetectable]); 0 if unknown.
	MinDetectable float64
	// Warnings are those of this cell, such as unequal guarantees.
	Warnings []error
	// residue holds the keys outside the projections that vary within the cell.
	residue map[benchproc.Key]bool
	// classes holds the guarantee classes of the cell's variants.
	classes map[string]bool
}

// Sum is the last row of a column. Mean is the geometric mean of the cells; Ratio is
// that of the ratios to the first column. Either is NaN if it does not exist.
type Sum struct {
	Mean, Ratio float64
	// Warnings explain a missing mean or ratio, and columns with different benchmarks.
	Warnings []error
}

// Build reads the inputs and builds the tables. The error is an [*OptionError], wraps
// [ErrInput] or [ErrEmpty], or comes from reading a file.
//
// Time: linear in the number of measurements, plus the tests. The test is exact up to
// 50 rounds per side and then needs cubic time in the rounds.
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
	// classes maps a label and a cell name to the guarantee class from the results
	// folder.
	classes map[[2]string]string
	// refused lists the cells with invalid figures.
	refused []refusal
	out     Tables
}

// refusal is a cell without a comparison, because its figures are invalid.
type refusal struct{ label, name, why string }

// newBuilder parses the options. Its errors are an [*OptionError].
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

// read adds the measurements of one input. Unreadable lines become warnings.
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

// judge collects the verdicts and guarantee classes of a results folder.
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

// retidy gives a value of 0 the same unit as other values. The benchfmt reader keeps
// "ns" for a value that needs no conversion. Rounds without a pause would otherwise
// form a table of their own.
func retidy(rec *benchfmt.Result) {
	for i := range rec.Values {
		_, rec.Values[i].Unit = benchunit.Tidy(rec.Values[i].Value, rec.Values[i].Unit)
	}
}

// add adds a measurement to each table that it belongs to.
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

// finish computes the summaries and the comparisons.
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

// asked reports whether the filter and the projections select a refused cell.
func (b *builder) asked(r refusal) bool {
	res := benchfmt.Result{Name: benchfmt.Name(r.name)}
	res.SetConfig(".file", r.label)
	for _, t := range b.out.Tables {
		res.Values = append(res.Values, benchfmt.Value{Unit: t.Unit})
	}
	ok, err := b.filter.Apply(&res)
	return ok && err == nil
}

// finish computes the summaries, the comparisons with the first column, and the sums.
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

// promised returns the guarantee classes of a cell's variants, joined by "and"; "" if
// unknown.
func promised(c *Cell) string {
	var all []string
	for class := range c.classes {
		all = append(all, class)
	}
	slices.Sort(all)
	return strings.Join(all, " and ")
}

// sum computes the last row of a column. The mean of the ratios is taken over the rows
// instead of from the means. A row that one column lacks therefore does not shift it.
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
			ratios = append(ratios, 1) // 0 of 0 is no change.
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

// geomean returns NaN for no values and for values of 0 or less.
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
