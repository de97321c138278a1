package experiment_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"watchlab/bench/cell"
	"watchlab/bench/experiment"
	"watchlab/bench/lab"
)

// worker is a workload of a fixed duration with a note.
type worker struct {
	takes time.Duration
	note  float64
	check error
}

func (w *worker) Setup(context.Context) error { return nil }
func (w *worker) Teardown() error             { return nil }
func (w *worker) Check() error                { return w.check }

func (w *worker) Run(_ context.Context, rec *cell.Recorder) error {
	rec.Begin()
	for start := time.Now(); time.Since(start) < w.takes; {
	}
	rec.End()
	rec.Count(100, 100)
	rec.Note("widgets", w.note)
	return nil
}

func newCell(labels []lab.Label, w worker) lab.Cell {
	return lab.Cell{Name: "Queue", Labels: labels, New: func() (lab.Workload, error) { return &w, nil }}
}

// build returns a comparison at a point of batch and readers: "takes" has both knobs,
// "plain" no batch.
func build(point []lab.Label) ([]lab.Comparison, error) {
	value := map[string]string{}
	for _, l := range point {
		value[l.Key] = l.Value
	}
	at := func(impl string, knobs ...string) lab.Cell {
		labels := []lab.Label{{Key: "impl", Value: impl}}
		note := 0.0
		for _, k := range knobs {
			if v := value[k]; v != "0" && v != "" {
				labels = append(labels, lab.Label{Key: k, Value: v})
				n, _ := strconv.ParseFloat(v, 64)
				note = 1000*note + n
			}
		}
		return newCell(append(labels, lab.Label{Key: "rate", Value: "max"}), worker{note: note})
	}
	return []lab.Comparison{{
		Family: "queue", Title: "pipeline queue, " + value["readers"] + " readers", Input: "input " + value["readers"],
		Cells: []lab.Cell{at("takes", "batch", "readers"), at("plain", "readers")},
	}}, nil
}

var (
	batch   = experiment.Axis{Label: "batch", Values: []string{"1", "10", "100"}}
	readers = experiment.Axis{Label: "readers", Values: []string{"0", "4"}}
)

func names(cells []lab.Cell) []string {
	var out []string
	for _, c := range cells {
		r := lab.CellResult{Name: c.Name, Labels: c.Labels}
		out = append(out, r.BenchName())
	}
	return out
}

func TestGrid(t *testing.T) {
	all, err := experiment.Grid([]experiment.Axis{batch, readers}, build)
	if err != nil || len(all) != 1 {
		t.Fatal(len(all), err)
	}
	c := all[0]
	want := []string{
		"Queue/impl=takes/batch=1/readers=0/rate=max", "Queue/impl=plain/readers=0/rate=max",
		"Queue/impl=takes/batch=1/readers=4/rate=max", "Queue/impl=plain/readers=4/rate=max",
		"Queue/impl=takes/batch=10/readers=0/rate=max", "Queue/impl=takes/batch=10/readers=4/rate=max",
		"Queue/impl=takes/batch=100/readers=0/rate=max", "Queue/impl=takes/batch=100/readers=4/rate=max",
	}
	if got := names(c.Cells); !slices.Equal(got, want) {
		t.Errorf("cells %q, want %q", got, want)
	}
	// The title has the common part of the points' titles and the axes.
	if want := "pipeline queue, over batch, over readers"; c.Title != want {
		t.Errorf("title %q, want %q", c.Title, want)
	}
	if c.Input == "" {
		t.Error("no digest of the workload")
	}
	fewer := experiment.Axis{Label: "readers", Values: []string{"0"}}
	if other, err := experiment.Grid([]experiment.Axis{batch, fewer}, build); err != nil || other[0].Input == c.Input {
		t.Errorf("the digest is the same without readers (%v)", err)
	}
}

func TestGridBadInput(t *testing.T) {
	odd := func(point []lab.Label) ([]lab.Comparison, error) {
		c, err := build(point)
		if point[0].Value == "10" {
			c = append(c, c...)
		}
		return c, err
	}
	if _, err := experiment.Grid([]experiment.Axis{batch}, odd); !errors.Is(err, experiment.ErrSpec) {
		t.Errorf("other tables: %v", err)
	}
	want := errors.New("no storm")
	if _, err := experiment.Grid([]experiment.Axis{batch}, func([]lab.Label) ([]lab.Comparison, error) { return nil, want }); !errors.Is(err, want) {
		t.Errorf("build's error: %v", err)
	}
}

func TestSurfaces(t *testing.T) {
	all, err := experiment.Grid([]experiment.Axis{batch, readers}, build)
	if err != nil {
		t.Fatal(err)
	}
	o, err := lab.Run(t.Context(), all, lab.Options{Rounds: 2, IgnoreHost: true})
	if err != nil {
		t.Fatal(err)
	}
	got := experiment.Surfaces(&o.Comparisons[0], batch, readers, "widgets")
	if len(got) != 1 {
		t.Fatalf("%d surfaces, want none for plain, which takes no batch: %+v", len(got), got)
	}
	s := got[0]
	if s.Cell != "Queue/impl=takes/rate=max" || s.Impl != "takes" || s.X != "batch" || s.Y != "readers" || s.Unit != "widgets" ||
		!slices.Equal(s.Xs, batch.Values) || !slices.Equal(s.Ys, readers.Values) {
		t.Errorf("%+v", s)
	}
	for y, row := range [][]float64{{1, 10, 100}, {1004, 10004, 100004}} {
		for x, want := range row {
			if p := s.Points[y][x]; p == nil || p.Median != want || p.N != 2 {
				t.Errorf("readers=%s, batch=%s: %+v, want %v in 2 rounds", s.Ys[y], s.Xs[x], p, want)
			}
		}
	}
}

// TestSurfaceOfInvalidCell: surfaces leave out invalid cells.
func TestSurfaceOfInvalidCell(t *testing.T) {
	all, err := experiment.Grid([]experiment.Axis{batch, readers}, func(point []lab.Label) ([]lab.Comparison, error) {
		c, err := build(point)
		if point[0].Value == "10" && point[1].Value == "4" {
			labels := c[0].Cells[0].Labels
			c[0].Cells[0] = newCell(labels, worker{check: lab.ErrLost})
		}
		return c, err
	})
	if err != nil {
		t.Fatal(err)
	}
	o, err := lab.Run(t.Context(), all, lab.Options{Rounds: 1, IgnoreHost: true})
	if err != nil {
		t.Fatal(err)
	}
	s := experiment.Surfaces(&o.Comparisons[0], batch, readers, "widgets")[0]
	for y := range s.Ys {
		for x := range s.Xs {
			if lost := y == 1 && x == 1; (s.Points[y][x] == nil) != lost {
				t.Errorf("readers=%s, batch=%s: %+v", s.Ys[y], s.Xs[x], s.Points[y][x])
			}
		}
	}
}

// scaling returns an outcome whose throughput follows the law exactly.
func scaling(t *testing.T, ns []float64, invalid float64) *lab.ComparisonResult {
	t.Helper()
	const lambda, sigma, kappa = 1000, 0.1, 0.01
	c := &lab.ComparisonResult{}
	for i := range ns {
		n := ns[len(ns)-1-i]
		cl := lab.CellResult{Name: "Queue", Labels: []lab.Label{
			{Key: "impl", Value: "ring"}, {Key: "producers", Value: strconv.FormatFloat(n, 'f', -1, 64)}, {Key: "rate", Value: "max"},
		}}
		perSecond := lambda * n / (1 + sigma*(n-1) + kappa*n*(n-1))
		if n != invalid {
			for _, noise := range []float64{0.99, 1, 1.01} {
				cl.Rounds = append(cl.Rounds, lab.Round{Result: cell.Result{EventsIn: 1, Elapsed: 1, EventsPerSecond: perSecond * noise}})
			}
		}
		c.Cells = append(c.Cells, cl)
		paced := cl
		paced.Labels = append(slices.Clone(cl.Labels[:2]), lab.Label{Key: "rate", Value: "100"})
		again := cl
		again.Repeats = cl.BenchName()
		c.Cells = append(c.Cells, paced, again)
	}
	c.Cells = append(c.Cells, lab.CellResult{Name: "Queue", Labels: []lab.Label{{Key: "impl", Value: "other"}, {Key: "rate", Value: "max"}}, Rounds: c.Cells[0].Rounds})
	return c
}

func TestScalings(t *testing.T) {
	ns := []float64{1, 2, 4, 8, 16}
	got := experiment.Scalings(scaling(t, ns, 0), "producers", true)
	if len(got) != 1 {
		t.Fatalf("%d scalings: %+v", len(got), got)
	}
	s := got[0]
	if s.Cell != "Queue/impl=ring/rate=max" || s.Impl != "ring" || s.Over != "producers" || s.Why != "" || s.Fit == nil {
		t.Fatalf("%+v", s)
	}
	for i, p := range s.Points {
		if p.N != ns[i] || len(p.EventsPerSecond) != 3 {
			t.Errorf("point %d: %+v", i, p)
		}
	}
	for _, e := range []struct {
		what      string
		got, want float64
	}{{"lambda", s.Fit.Lambda.Value, 1000}, {"sigma", s.Fit.Sigma.Value, 0.1}, {"kappa", s.Fit.Kappa.Value, 0.01}, {"peak", s.Fit.Peak, math.Sqrt(90)}} {
		if math.Abs(e.got-e.want) > 0.01*e.want {
			t.Errorf("%s %v, want %v", e.what, e.got, e.want)
		}
	}
}

func TestScalingsWithoutFit(t *testing.T) {
	if s := experiment.Scalings(scaling(t, []float64{1, 2, 4, 8}, 0), "producers", false)[0]; s.Fit != nil || s.Why == "" {
		t.Errorf("a scaling without workers: %+v", s)
	}
	// Invalid cells are no points; three points are too few.
	s := experiment.Scalings(scaling(t, []float64{1, 2, 4, 8}, 4), "producers", true)[0]
	if s.Fit != nil || s.Why == "" || len(s.Points) != 3 || s.Points[2].N != 8 {
		t.Errorf("%+v", s)
	}
	if got := experiment.Scalings(scaling(t, []float64{1}, 0), "producers", true); len(got) != 0 {
		t.Errorf("a scaling of one value: %+v", got)
	}
	if got := experiment.Scalings(scaling(t, []float64{1, 2}, 0), "shards", false); len(got) != 0 {
		t.Errorf("no variant has shards: %+v", got)
	}
}
