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
	Setup(ctx context.Context) error

	Run(ctx context.Context, rec *cell.Recorder) error

	Check() error

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
	Name       string
	Labels     []Label
	Guarantees string
	Class      string
	Baseline   bool
	New        func() (Workload, error)
}

// BenchName returns the cell's name as benchmarks have it; see
// [CellResult.BenchName].
func (c Cell) BenchName() string { return benchName(c.Name, c.Labels) }

// Comparison is a set of cells that are measured side by side and shown as one
// table. Cells whose labels are equal save for "rate" are one row: throughput
// is taken from the unpaced cell, latency from the paced one, where there are
// both.
type Comparison struct {
	Family   string
	Title    string
	Latency  cell.Boundary
	Input    string
	Whole    string
	Cells    []Cell
	Together bool
	Begin    func(cells int) error
	More     func(played []CellResult) []Cell
}
