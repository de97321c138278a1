// Package lab runs comparisons: it plays their cells in interleaved rounds, gives each
// cell a verdict, and writes the results folder.
//
//  1. Each comparison gets an A/A pair: one of its cells is played twice.
//  2. Round 0 warms up and does not count. Each further round plays the cells of all
//     comparisons once, those of a comparison in an order drawn from the seed. The
//     options or the budget set the number of rounds, which is the same for all.
//  3. After each play the lab computes the cell's verdict from all its rounds and updates
//     the results folder. Neither a killed process nor a power cut loses a finished round,
//     and [Options].Resume plays the rest.
//  4. When all rounds are played, [Comparison].NextCells may add cells, depending on the
//     results. They get rounds of their own.
//  5. With [Options].Profile, each cell is played again for its pprof profiles.
//
// Figures of a cell that broke an invariant are discarded. Figures that the machine disturbed are
// hidden but kept until the end of the run, because the next round may change the verdict.
package lab

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"

	"watchlab/bench/cell"
)

// Workload is one play of a cell. The lab uses each Workload once.
type Workload interface {
	// Setup builds everything that is not measured.
	Setup(ctx context.Context) error
	// Run plays the whole input between rec.Begin and rec.End. It returns ctx's error
	// soon after ctx ends; the lab then drops the cell.
	Run(ctx context.Context, rec *cell.Recorder) error
	// Check returns nil or an error that wraps the broken invariants. It is called
	// after a Run without error.
	Check() error
	// Teardown frees the resources of Setup and Run. It is called once after Setup,
	// even if Setup failed.
	Teardown() error
}

// The invariants, whose texts are the causes of verdicts.
var (
	// ErrLost: an input event has no output event. Where the variant coalesces, a newer
	// event of the same key also counts as output.
	ErrLost = errors.New(string(CauseLost))
	// ErrReordered: events of a key left the pipeline out of order. Where the variant
	// guarantees a total order, it applies to events of different keys, too.
	ErrReordered  = errors.New(string(CauseReordered))
	ErrDuplicated = errors.New(string(CauseDuplicated)) // an event left the pipeline more than once
	ErrDiverged   = errors.New(string(CauseDiverged))   // the final state differs from the storm's

	Invariants = []error{ErrLost, ErrReordered, ErrDuplicated, ErrDiverged} // in the order of verdicts and reports
)

// Label is one part of a cell's name, key=value.
type Label struct {
	Key   string `json:"key"`   // without "/" and "="
	Value string `json:"value"` // without "/" and "="
}

// Labels are the labels of a cell, in the order of its name. "impl" is the variant, "rate"
// the pace.
type Labels []Label

// Unpaced is the value of the label "rate" for cells played at full speed. Cells
// without the label are unpaced, too.
const Unpaced = "max"

// RateText says how cells of a rate are played: unpaced, at a number of events/s, or at another pace.
func RateText(rate string) string {
	switch v, err := strconv.ParseFloat(rate, 64); {
	case rate == Unpaced:
		return "unpaced"
	case err != nil || math.IsInf(v, 1):
		return "at pace " + rate
	}
	return "at " + rate + " events/s"
}

// Label returns the value of the label with the given key; "" if there is none.
func (l Labels) Label(key string) string {
	if at := slices.IndexFunc(l, func(l Label) bool { return l.Key == key }); at >= 0 {
		return l[at].Value
	}
	return ""
}

// Without returns the labels except those with the given keys.
func (l Labels) Without(keys ...string) Labels {
	return slices.DeleteFunc(slices.Clone(l), func(l Label) bool { return slices.Contains(keys, l.Key) })
}

// Rate returns the pace and true for a paced cell: one with a label "rate" other than [Unpaced].
func (l Labels) Rate() (string, bool) {
	rate := l.Label("rate")
	return rate, rate != "" && rate != Unpaced
}

func (l Labels) name(of string) string {
	for _, label := range l {
		of += "/" + label.Key + "=" + label.Value
	}
	return of
}

// Cell is one variant × one storm × one set of knobs.
type Cell struct {
	Name       string                   // benchmark name without "Benchmark", such as "DeltaFIFO"
	Labels                              // the knobs
	Guarantees string                   // shown in tables
	Class      string                   // no ratio is computed between cells of different classes
	Baseline   bool                     // ratios are relative to this cell's variant
	New        func() (Workload, error) // returns a fresh workload for one round
}

// BenchName returns the cell's benchmark name; see [CellResult.BenchName].
func (c Cell) BenchName() string { return c.name(c.Name) }

// NameExcept returns BenchName without labels; see [CellResult.NameExcept].
func (c Cell) NameExcept(keys ...string) string { return c.Without(keys...).name(c.Name) }

// Comparison is a set of cells measured side by side and shown as one table. Cells
// whose labels differ only in "rate" share a row. Throughput then comes from the
// unpaced cell and latency from the paced one.
type Comparison struct {
	Family string // heading of the table
	Title  string // one line: variants and storm
	Input  string // digest of the input, of all shares if it is one of several; checked on resume; empty if unknown
	Cells  []Cell // at least one; names must be unique in the run
	// NextCells, if not nil, returns further cells. It is called when the cells of all
	// comparisons have all their rounds, with this comparison's results in the order of
	// the cells; again after the rounds of the new cells. A variant that has already
	// been played gets no second warm-up. NextCells must return the same cells for the same
	// results, because a resumed run calls it again. Its error ends the run.
	NextCells func(played []CellResult) ([]Cell, error)
}
