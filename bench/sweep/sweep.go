// Package sweep finds things out by going through cells: the highest rate at
// which a variant holds an objective, how throughput goes with a number of
// workers, how it lies over two knobs. It knows nothing of what is played.
//
//  1. [Knee] makes a comparison whose cells are chosen as the run goes on
//     ([lab.Comparison].More): the rate is doubled until it doesn't hold, and the
//     gap is halved until it is as narrow as asked for. The variants are searched
//     side by side, a rate of each in every step.
//  2. [Grid] makes comparisons of all combinations of one or two knobs' values,
//     all of them interleaved.
//  3. Package lab plays them. [Knee.Knees], [Scalings] and [Surfaces] read the
//     answer off what it measured.
//
// What is read off depends on the outcome alone, so that a run that was broken
// off and taken up again answers as one that wasn't.
package sweep

import (
	"errors"
	"strings"

	"watchlab/bench/lab"
)

// ErrSweep is wrapped by the errors for sweeps that make no sense.
var ErrSweep = errors.New("invalid sweep")

// nameOf is the cell's name as benchmarks have it.
func nameOf(c lab.Cell) string {
	r := lab.CellResult{Name: c.Name, Labels: c.Labels}
	return r.BenchName()
}

// nameWithout is a cell's name as benchmarks have it, without some labels: what
// is swept over is no part of who is swept.
func nameWithout(c *lab.CellResult, keys ...string) string {
	var b strings.Builder
	b.WriteString(c.Name)
	for _, l := range c.Without(keys...) {
		b.WriteString("/" + l.Key + "=" + l.Value)
	}
	return b.String()
}

// implOf is the variant's name; the cell's where it has none.
func implOf(c *lab.CellResult) string {
	if v := c.Label("impl"); v != "" {
		return v
	}
	return c.Name
}
