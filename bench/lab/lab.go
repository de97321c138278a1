// Package lab runs comparisons: it plays their cells in interleaved rounds, gives each
// cell a verdict, and writes the results folder.
//
//  1. Each comparison gets an A/A pair: one of its cells is played twice.
//  2. Round 0 warms up and does not count. Each further round plays all cells once, in
//     an order drawn from the seed, for as many rounds as the options or the budget
//     say.
//  3. After each play the cell's verdict is computed from all its rounds, and the
//     results folder is updated. A killed process loses no finished round, and
//     [Options].Resume plays the rest.
//  4. [Comparison].More may add cells, depending on the results.
//  5. With [Options].Profile, each cell is played again for its pprof profiles.
//
// Figures of a cell that broke an invariant are not kept. Figures that the machine
// spoiled are not shown, but kept until the end of the run: the next round may change
// the verdict.
package lab

import (
	"context"
	"errors"

	"watchlab/bench/cell"
)

// Workload is one play of a cell.
type Workload interface {
	Setup(ctx context.Context) error // builds what is not measured

	Run(ctx context.Context, rec *cell.Recorder) error // plays between rec.Begin and rec.End; returns ctx's error soon after ctx ends

	Check() error // called after a Run without error; wraps the broken invariants

	Teardown() error // called once after Setup, even if that failed
}

// The invariants, by name.
var (
	// ErrLost: an event that went in never came out, nor did a newer one of
	// its key where the variant coalesces.
	ErrLost = errors.New("lost")
	// ErrReordered: events of a key came out in another order than they went
	// in, or, where the order is total, any two events did.
	ErrReordered = errors.New("reordered")
	// ErrDuplicated: an event came out more than once.
	ErrDuplicated = errors.New("duplicated")
	// ErrDiverged: the final state is not that of the storm.
	ErrDiverged = errors.New("diverged")
)

// Label is one part of a cell's name, key=value.
type Label struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Cell is one variant × one storm × one set of knobs.
type Cell struct {
	Name       string                   // without "Benchmark", such as "DeltaFIFO"
	Labels     []Label                  // in the order of the name; "impl" is the variant, "rate" the pace
	Guarantees string                   // as tables show them
	Class      string                   // guarantees that must be equal for a ratio
	Baseline   bool                     // ratios are taken against this variant
	New        func() (Workload, error) // a fresh workload for one round
}

// BenchName returns the cell's name as benchmarks have it; see
// [CellResult.BenchName].
func (c Cell) BenchName() string { return benchName(c.Name, c.Labels) }

// Comparison is a set of cells that are measured side by side and shown as one table.
// Cells whose labels differ only in "rate" share a row: throughput comes from the
// unpaced cell, latency from the paced one, where there are both.
type Comparison struct {
	Family  string        // heading of the table
	Title   string        // one line: what is compared on what
	Latency cell.Boundary // boundary of the latency columns; empty: see [stats.Headline]
	Input   string        // digest of the input, which resuming checks; empty if unknown
	Whole   string        // digest of the whole input, where Input is one share of it
	Cells   []Cell
	// Together plays the cells of a round at the same time, for input that comes only
	// once, such as the events of a live cluster. What they cost the process cannot be
	// told apart then ([cell.Result].Shared).
	Together bool
	// Begin, if not nil, is called before each round with the number of cells that
	// the round plays. Its error ends the run.
	Begin func(cells int) error
	// More, if not nil, gets all results when all cells so far have all their rounds,
	// in the order in which the cells were added. The cells that it returns are
	// interleaved by themselves; none ends the comparison. It must return the same
	// cells for the same results: a resumed run calls it again.
	More func(played []CellResult) []Cell
}
