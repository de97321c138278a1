// Package lab runs comparisons: it plays the cells of one comparison round by
// round, interleaved, judges each, and keeps what it measured.
//
// The way of a run:
//
//  1. Each comparison gets an A/A pair: one of its cells is there twice.
//  2. Round 0 warms up and is never counted. Then all cells are played once in each
//     round, in an order drawn for it from the seed, as many rounds as were asked for
//     or as the budget allows.
//  3. After each play the cell is judged by all its rounds so far, and the results
//     folder brought up to date: whatever kills the process, what was finished is
//     there, and [Options].Resume plays what is missing.
//  4. [Comparison].More may ask for further cells, by what was found.
//  5. With [Options].Profile, each cell is played once more for its profiles.
//
// What a cell measured that broke an invariant is kept nowhere. What the machine
// spoiled is shown nowhere, but kept until the run is over, as the verdict may turn
// with the next round.
package lab

import (
	"context"
	"errors"

	"watchlab/bench/cell"
)

// Workload is what the lab can measure: anything that can be set up, run with
// a recorder, checked and torn down. A Workload is used for one run.
type Workload interface {
	// Setup builds everything that is not to be measured.
	Setup(ctx context.Context) error
	// Run plays to the end, between rec.Begin and rec.End. If ctx ends, it
	// returns ctx's error soon and the cell is dropped.
	Run(ctx context.Context, rec *cell.Recorder) error
	// Check judges what came out: nil, or an error wrapping the invariants
	// that were broken ([ErrLost], [ErrReordered], [ErrDuplicated],
	// [ErrDiverged]). It is called after a Run that returned nil.
	Check() error
	// Teardown frees what Setup and Run took. It is called once after Setup,
	// whether or not that succeeded.
	Teardown() error
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
	// Name is the benchmark name without "Benchmark", such as "DeltaFIFO".
	Name string
	// Labels in the order in which they stand in the name; the label "impl"
	// names the variant, "rate" the pace ("max" where unpaced).
	Labels []Label
	// Guarantees of the variant in this cell, as tables show them.
	Guarantees string
	// Class is what the variant promises, as far as it decides what may be
	// compared: no ratio is taken between cells of different classes.
	Class string
	// Baseline is true where ratios are taken against this cell's variant.
	Baseline bool
	// New builds a fresh workload for one round.
	New func() (Workload, error)
}

// BenchName returns the cell's name as benchmarks have it; see
// [CellResult.BenchName].
func (c Cell) BenchName() string { return benchName(c.Name, c.Labels) }

// Comparison is a set of cells that are measured side by side and shown as one
// table. Cells whose labels are equal save for "rate" are one row: throughput
// is taken from the unpaced cell, latency from the paced one, where there are
// both.
type Comparison struct {
	// Family that is compared; the table's heading.
	Family string
	// Title says what is compared on what, in one line.
	Title string
	// Latency is the boundary whose latency the table shows; empty for the
	// last-named that begins at the intended time (see stats.Headline).
	Latency cell.Boundary
	// Input is a digest of what is played, by which a run that is taken up again
	// knows that it is the same; empty where that can't be told.
	Input string
	// Whole, where it is a share of something that is played, is the digest of what all
	// shares together play; empty else.
	Whole string
	Cells []Cell
	// Together: the cells of a round are played at the same time rather than
	// one after the other, for what comes in comes only once, as the events of
	// a live cluster do. What they cost the process is then none's of them, and
	// not told ([cell.Result].Shared).
	Together bool
	// Begin, if not nil, is called before each round with how many cells are
	// going to be played in it, those left out that broke an invariant. Its
	// error ends the run.
	Begin func(cells int) error
	// More, if not nil, is asked for further cells each time that all so far have
	// been played over all rounds, and is told what came of them, those of earlier
	// answers included, in the order in which they were asked for. What it returns
	// is played next, interleaved by itself; a cell whose variant has been played
	// in this comparison is not warmed up again. None ends the comparison. It must
	// return the same cells for the same results, as a run that is taken up again
	// asks it again.
	More func(played []CellResult) []Cell
}
