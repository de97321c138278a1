package experiment_test

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"testing"

	"watchlab/bench/cell"
	"watchlab/bench/experiment"
	"watchlab/bench/lab"
)

// build returns a comparison at a value of batch: "takes" has the knob, "plain" has not.
func build(at lab.Label) ([]lab.Comparison, error) {
	cell := func(impl string, knobs ...lab.Label) lab.Cell {
		labels := append([]lab.Label{{Key: "impl", Value: impl}}, knobs...)
		return lab.Cell{Name: "Queue", Labels: append(labels, lab.Label{Key: "rate", Value: "max"})}
	}
	takes := cell("takes", at)
	if at.Value == "0" {
		takes = cell("takes")
	}
	return []lab.Comparison{{
		Family: "queue", Title: "pipeline queue, batches of " + at.Value, Input: "input " + at.Value,
		Cells: []lab.Cell{takes, cell("plain")},
	}}, nil
}

var batch = experiment.Axis{Label: "batch", Values: []string{"0", "10", "100"}}

func names(cells []lab.Cell) []string {
	var out []string
	for _, c := range cells {
		r := lab.CellResult{Name: c.Name, Labels: c.Labels}
		out = append(out, r.BenchName())
	}
	return out
}

func TestAlongAxis(t *testing.T) {
	all, err := experiment.AlongAxis(batch, build)
	if err != nil || len(all) != 1 {
		t.Fatal(len(all), err)
	}
	c := all[0]
	want := []string{
		"Queue/impl=takes/batch=0/rate=max", "Queue/impl=plain/batch=0/rate=max",
		"Queue/impl=takes/batch=10/rate=max", "Queue/impl=takes/batch=100/rate=max",
	}
	if got := names(c.Cells); !slices.Equal(got, want) {
		t.Errorf("cells %q, want %q", got, want)
	}
	// The title has the common part of the values' titles and the axis.
	if want := "pipeline queue, over batch"; c.Title != want {
		t.Errorf("title %q, want %q", c.Title, want)
	}
	if c.Input == "" {
		t.Error("no digest of the workload")
	}
	fewer := experiment.Axis{Label: "batch", Values: []string{"0", "10"}}
	if other, err := experiment.AlongAxis(fewer, build); err != nil || other[0].Input == c.Input {
		t.Errorf("the digest is the same without batch=100 (%v)", err)
	}
}

func TestAlongAxisBadInput(t *testing.T) {
	odd := func(at lab.Label) ([]lab.Comparison, error) {
		c, err := build(at)
		if at.Value == "10" {
			c = append(c, c...)
		}
		return c, err
	}
	if _, err := experiment.AlongAxis(batch, odd); err == nil {
		t.Errorf("other tables: %v", err)
	}
	want := errors.New("no storm")
	if _, err := experiment.AlongAxis(batch, func(lab.Label) ([]lab.Comparison, error) { return nil, want }); !errors.Is(err, want) {
		t.Errorf("build's error: %v", err)
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
