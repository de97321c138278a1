package compare

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"

	moremath "github.com/aclements/go-moremath/stats"
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
	Option string // lower-case name, the same as the flag's
	Err    error  // the cause
}

func (e *OptionError) Error() string { return e.Option + ": " + e.Err.Error() }
func (e *OptionError) Unwrap() error { return e.Err }

// Tables is the result of [Build]. Its JSON form omits unknown values.
type Tables struct {
	Tables []*Table `json:"tables"` // one element per unit and value of Options.Table
	// Refused names the cells of results folders with invalid figures, and the reasons.
	// No table contains them.
	Refused []string `json:"refused,omitempty"`
	// Warnings names unreadable lines, with file and number, and measurements that the
	// filter cannot compare. All other measurements are in the tables.
	Warnings []string `json:"warnings,omitempty"`
}

// Table holds the cells of one unit.
type Table struct {
	Unit string     `json:"unit"`           // benchstat's: "sec/op" for "ns/op"
	Keys []KeyValue `json:"keys,omitempty"` // common values of Options.Table, in order, without the unit
	// Columns are sorted. The others are compared with the first.
	Columns []string `json:"columns"`
	Rows    []Row    `json:"rows"`    // sorted
	Geomean []Sum    `json:"geomean"` // one per column
	cols    []benchproc.Key
}

// KeyValue is one part of a table's key, such as goos and linux.
type KeyValue struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Row has a cell per column; nil for a missing cell.
type Row struct {
	Name  string  `json:"name"`
	Cells []*Cell `json:"cells"`
}

// Cell is the rounds of one row and column.
type Cell struct {
	N        int         `json:"n"`
	Center   float64     `json:"center"` // median
	Lo       *float64    `json:"lo,omitempty"`
	Hi       *float64    `json:"hi,omitempty"` // Lo and Hi bound the median; nil if unknown
	Values   []float64   `json:"values"`       // of all rounds, sorted
	VsBase   *Difference `json:"vsBase,omitempty"`
	Warnings []string    `json:"warnings,omitempty"` // such as unequal guarantees
	summary  benchmath.Summary
	notes    []error // the warnings without those of the test
}

// Difference compares a cell with that of the first column. A cell has none in the
// first column, if the first column lacks the row, and for unequal guarantees.
type Difference struct {
	Change      *float64 `json:"change,omitempty"` // a share: 0.05 means 5 % more
	P           float64  `json:"p"`
	Significant bool     `json:"significant"`
	// MinDetectable is the smallest change that these rounds detect, as a share (see
	// [stats.MinDetectable]); 0 if unknown.
	MinDetectable float64 `json:"minDetectable,omitempty"`
	delta         string  // benchstat's form of Change
	test          benchmath.Comparison
}

// Sum is the last row of a column: the geometric mean of the cells, and the change of the geometric
// mean of the ratios to the first column. Either is nil if it does not exist.
type Sum struct {
	Mean   *float64 `json:"mean,omitempty"`
	Change *float64 `json:"change,omitempty"`
	// notes explain a missing mean or ratio, and columns with different benchmarks.
	notes []error
}

// CannotTell reports whether there are differences and all have too few rounds for a test.
func (t *Tables) CannotTell() bool {
	some := false
	for _, tab := range t.Tables {
		for _, row := range tab.Rows {
			for _, c := range row.Cells {
				if c != nil && c.VsBase != nil {
					test := c.VsBase.test
					if some = true; test.Alpha == 0 || stats.Testable(test.N1, test.N2, test.Alpha) {
						return false
					}
				}
			}
		}
	}
	return some
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
	var names []string
	for _, in := range inputs {
		if in.Run != nil && in.Run.OneProcess() {
			names = append(names, in.Label)
		}
		if err := b.read(in); err != nil {
			return nil, err
		}
	}
	if names != nil {
		b.out.Warnings = append(b.out.Warnings, oneProcess(names))
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
	tables                       map[benchproc.Key]map[place]*rounds
	// classes maps a label and a cell name to the guarantee class from the results folder.
	classes map[[2]string]string
	refused []refusal // the cells with invalid figures
	out     Tables
}

// place is the position of a cell in a table.
type place struct{ row, col benchproc.Key }

// rounds collects the measurements of a cell.
type rounds struct {
	values []float64
	// residue holds the keys outside the projections; they should not vary.
	residue map[benchproc.Key]bool
	classes map[string]bool // guarantee classes of the variants
}

// refusal is a cell without a comparison, because its figures are invalid.
type refusal struct {
	cell benchfmt.Result // for the filter
	text string
}

// newBuilder parses the options. Its errors are an [*OptionError].
func newBuilder(o Options) (*builder, error) {
	for name, v := range map[string]float64{"alpha": o.Alpha, "confidence": o.Confidence} {
		if !(v > 0 && v < 1) {
			return nil, &OptionError{name, fmt.Errorf("%v is not between 0 and 1", v)}
		}
	}
	b := &builder{opts: o, tables: map[benchproc.Key]map[place]*rounds{}, classes: map[[2]string]string{}}
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
		b.verdicts(in)
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
			if err := stats.CheckFinite(rec); err != nil {
				return errors.Join(err, file.Close())
			}
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

// verdicts collects the verdicts and guarantee classes of a results folder.
func (b *builder) verdicts(in Input) {
	for _, cl := range in.Run.Cells() {
		name := cl.BenchName()
		b.classes[[2]string{in.Label, name}] = cl.Class
		if s := cl.Verdict.Status; s == lab.Invalid || s == lab.Unplayed {
			r := refusal{benchfmt.Result{Name: benchfmt.Name(name)}, in.Label + ": " + name + ": " + cl.Verdict.String()}
			r.cell.SetConfig(".file", in.Label)
			b.refused = append(b.refused, r)
		}
	}
}

// retidy gives a value of 0 the same unit as other values. The benchfmt reader keeps "ns" for a
// value that needs no conversion. Rounds without a pause would otherwise form a table of their own.
func retidy(rec *benchfmt.Result) {
	for i := range rec.Values {
		_, rec.Values[i].Unit = benchunit.Tidy(rec.Values[i].Value, rec.Values[i].Unit)
	}
}

// add adds a measurement to each table that it belongs to.
func (b *builder) add(rec *benchfmt.Result, in Input) {
	at := place{b.byRow.Project(rec), b.byCol.Project(rec)}
	residue := b.byAll.Project(rec)
	class := b.classes[[2]string{in.Label, stats.BareName(rec.Name)}]
	for i, key := range b.byTable.ProjectValues(rec) {
		if b.tables[key] == nil {
			b.tables[key] = map[place]*rounds{}
		}
		r := b.tables[key][at]
		if r == nil {
			r = &rounds{residue: map[benchproc.Key]bool{}, classes: map[string]bool{}}
			b.tables[key][at] = r
		}
		r.values = append(r.values, rec.Values[i].Value)
		r.residue[residue] = true
		if class != "" {
			r.classes[class] = true
		}
	}
}

// finish computes the tables.
func (b *builder) finish() *Tables {
	units := b.reader.Units()
	for _, key := range sorted(b.tables) {
		t := &Table{Unit: key.Get(b.unit)}
		for _, f := range key.Projection().FlattenedFields() {
			if f.Name != b.unit.Name {
				t.Keys = append(t.Keys, KeyValue{f.Name, key.Get(f)})
			}
		}
		t.fill(b.tables[key], units.GetAssumption(t.Unit), b.opts)
		b.out.Tables = append(b.out.Tables, t)
	}
	for _, r := range b.refused {
		for _, t := range b.out.Tables {
			r.cell.Values = append(r.cell.Values, benchfmt.Value{Unit: t.Unit})
		}
		if ok, err := b.filter.Apply(&r.cell); ok && err == nil {
			b.out.Refused = append(b.out.Refused, r.text)
		}
	}
	return &b.out
}

// fill computes the cells, the comparisons with the first column, and the sums.
func (t *Table) fill(cells map[place]*rounds, assume benchmath.Assumption, o Options) {
	rowKeys, colKeys := map[benchproc.Key]bool{}, map[benchproc.Key]bool{}
	for at := range cells {
		rowKeys[at.row], colKeys[at.col] = true, true
	}
	t.cols = sorted(colKeys)
	for _, col := range t.cols {
		t.Columns = append(t.Columns, col.StringValues())
	}
	for _, key := range sorted(rowKeys) {
		row := Row{Name: key.StringValues(), Cells: make([]*Cell, len(t.cols))}
		base := cells[place{key, t.cols[0]}]
		for i, col := range t.cols {
			if r := cells[place{key, col}]; r != nil {
				row.Cells[i] = newCell(r, base, assume, o)
			}
		}
		t.Rows = append(t.Rows, row)
	}
	for i := range t.cols {
		t.Geomean = append(t.Geomean, t.sum(i))
	}
}

// newCell summarises rounds and compares them with those of the first column, which may be nil.
func newCell(r, base *rounds, assume benchmath.Assumption, o Options) *Cell {
	thresholds := &benchmath.Thresholds{CompareAlpha: o.Alpha}
	sample := benchmath.NewSample(r.values, thresholds)
	c := &Cell{N: len(r.values), Values: sample.Values, summary: assume.Summary(sample, o.Confidence)}
	c.Center, c.Lo, c.Hi = c.summary.Center, finite(c.summary.Lo), finite(c.summary.Hi)
	c.notes = slices.Clone(sample.Warnings)
	if vary := benchproc.NonSingularFields(sorted(r.residue)); len(vary) > 0 {
		var names []string
		for _, f := range vary {
			names = append(names, f.Name)
		}
		c.notes = append(c.notes, fmt.Errorf("benchmarks vary in %s", strings.Join(names, ", ")))
	}
	compared := base != nil && base != r
	if compared {
		if a, b := base.promises(), r.promises(); a != "" && b != "" && a != b {
			c.notes = append(c.notes, fmt.Errorf("unequal guarantees, not compared: %s / %s", a, b))
			compared = false
		}
	}
	c.notes = append(c.notes, c.summary.Warnings...)
	all := c.notes
	if compared {
		from := benchmath.NewSample(base.values, thresholds)
		center := assume.Summary(from, o.Confidence).Center
		test := assume.Compare(from, sample)
		c.VsBase = &Difference{
			Change: finite(c.Center/center - 1), P: test.P,
			// Exact units have an alpha of 0: every difference is significant.
			Significant: test.P < test.Alpha || test.Alpha == 0 && c.Center != center,
			delta:       test.FormatDelta(center, c.Center), test: test,
		}
		if share, ok := stats.MinDetectable(base.values, r.values); ok && o.Alpha == stats.Alpha {
			c.VsBase.MinDetectable = share
		}
		all = slices.Concat(all, test.Warnings)
	}
	for _, err := range all {
		c.Warnings = append(c.Warnings, err.Error())
	}
	return c
}

// promises returns the guarantee classes of a cell's variants, joined by "and"; "" if unknown.
func (r *rounds) promises() string {
	return strings.Join(slices.Sorted(maps.Keys(r.classes)), " and ")
}

// sum computes the last row of a column. The mean of the ratios is taken over the rows
// instead of from the means. A row that one column lacks therefore does not shift it.
func (t *Table) sum(col int) Sum {
	var centers, ratios []float64
	bases, undefined := 0, false
	for _, row := range t.Rows {
		base, c := row.Cells[0], row.Cells[col]
		if base != nil {
			bases++
		}
		if c == nil {
			continue
		}
		centers = append(centers, c.Center)
		switch {
		case c.VsBase == nil:
		case c.Center == base.Center:
			ratios = append(ratios, 1) // 0 of 0 is no change.
		case base.Center == 0:
			bases, undefined = bases-1, true
		default:
			ratios = append(ratios, c.Center/base.Center)
		}
	}
	s := Sum{Mean: finite(moremath.GeoMean(centers))}
	note := func(text string) { s.notes = append(s.notes, errors.New(text)) }
	if col > 0 && bases != len(ratios) {
		note("benchmark set differs from baseline; geomeans may not be comparable")
	}
	if s.Mean == nil {
		note("summaries must be >0 to compute geomean")
	}
	if col > 0 && !undefined {
		if s.Change = finite(moremath.GeoMean(ratios) - 1); s.Change == nil {
			note("ratios must be >0 to compute geomean")
		}
	}
	return s
}

// finite returns nil for NaN and infinities, which JSON cannot represent.
func finite(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

func sorted[V any](keys map[benchproc.Key]V) []benchproc.Key {
	out := slices.Collect(maps.Keys(keys))
	benchproc.SortKeys(out)
	return out
}
