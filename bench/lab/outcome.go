package lab

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"watchlab/bench/cell"
	"watchlab/bench/stats"
)

// Format is the version of run.json that this package writes.
const Format = 1

// The names of the files in a results folder.
const (
	RunFile    = "run.json"
	EnvFile    = "env.json"
	BenchFile  = "bench.txt"
	ReportFile = "report.md"
	// ExperimentFile holds [Outcome].Experiment as YAML.
	ExperimentFile = "experiment.yaml"
	LatencyDir     = "latency"
)

// Outcome is a run: what was played, what was measured, what may be believed.
// Its JSON form is run.json, except for Env, which is env.json.
//
// A cell whose verdict is invalid has neither rounds nor medians: nothing that
// it measured is kept.
type Outcome struct {
	Format      int           `json:"format"` // see [Format]
	Name        string        `json:"name"`   // such as "quick"
	Started     time.Time     `json:"started"`
	Ended       *time.Time    `json:"ended,omitempty"`    // nil while the run goes on, or if it was killed
	Seed        int64         `json:"seed"`               // of the order of the cells
	Rounds      int           `json:"rounds"`             // without the warm-up; with a Budget, those of the longest comparison
	Budget      time.Duration `json:"budgetNs,omitempty"` // 0: none
	Spent       time.Duration `json:"spentNs,omitempty"`  // over all resumptions
	Fresh       bool          `json:"fresh,omitempty"`    // each play had its own process and no warm-up
	Interrupted bool          `json:"interrupted"`        // the run ended before all rounds were played

	// Experiment is [Options].Experiment.
	Experiment  json.RawMessage    `json:"experiment,omitempty"`
	Comparisons []ComparisonResult `json:"comparisons"`     // in the order of play
	Knees       []stats.Knee       `json:"knees,omitempty"` // results of searches over the cells
	Scalings    []stats.Scaling    `json:"scalings,omitempty"`
	Surfaces    []stats.Surface    `json:"surfaces,omitempty"`
	Merged      *Merged            `json:"merged,omitempty"` // nil for a run of one process
	Env         Env                `json:"-"`                // where it ran; env.json

	// Dir is the results folder; empty where nothing is written.
	Dir string `json:"-"`
}

// ComparisonResult is what came of a [Comparison].
type ComparisonResult struct {
	Family  string        `json:"family"`
	Title   string        `json:"title"`
	Latency cell.Boundary `json:"latency,omitempty"` // see [Comparison]
	Input   string        `json:"input,omitempty"`   // digest of the input
	Rounds  int           `json:"rounds,omitempty"`  // that its cells should have; 0: those of the run
	Cells   []CellResult  `json:"cells"`
}

// CellResult is what came of a [Cell].
type CellResult struct {
	Name       string                   `json:"name"`
	Labels     []Label                  `json:"labels"`
	Guarantees string                   `json:"guarantees,omitempty"` // as tables show them
	Class      string                   `json:"class,omitempty"`      // see [Cell]
	Repeats    string                   `json:"repeats,omitempty"`    // the cell that this one repeats, for an A/A pair
	Baseline   bool                     `json:"baseline,omitempty"`   // ratios are taken against this cell
	Seed       int64                    `json:"seed"`                 // the run's
	Verdict    Verdict                  `json:"verdict"`
	Rounds     []Round                  `json:"rounds,omitempty"`  // finished rounds in order
	Lag        *cell.Lag                `json:"lag,omitempty"`     // of the median round; kept of an "invalid: generator" cell, too
	Latency    []cell.Latency           `json:"latency,omitempty"` // of all rounds together, an entry per boundary
	Medians    map[string]stats.Summary `json:"medians,omitempty"` // over the rounds, by the units of bench.txt
}

// Round is one cell's measurement in one round.
type Round struct {
	Round   int           `json:"round"`            // from 1; the warm-up, 0, is never here
	Place   int           `json:"place"`            // in the order of the round, from 1
	Started time.Time     `json:"started"`          // when Setup began
	Took    time.Duration `json:"tookNs,omitempty"` // from Setup to Teardown
	Result  cell.Result   `json:"result"`
}

// Status is the short form of a verdict.
type Status string

// The verdicts.
const (
	// Valid: all rounds held the invariants, the generator kept its schedule,
	// and the rounds agree within [MaxSpread].
	Valid Status = "valid"
	// Noisy: as Valid, but the rounds' events/s lie further apart.
	Noisy Status = "noisy"
	// Invalid: the figures mean nothing and are not kept.
	Invalid Status = "invalid"
	// Unplayed: the run ended before the cell finished a round.
	Unplayed Status = "unplayed"
)

// Cause says why a cell is invalid.
type Cause string

// The causes. Several broken invariants are joined with "+".
const (
	CauseLost       Cause = "lost"
	CauseReordered  Cause = "reordered"
	CauseDuplicated Cause = "duplicated"
	CauseDiverged   Cause = "diverged"
	CauseError      Cause = "error"
	CauseGenerator  Cause = "generator"
	// CauseSteal: the hypervisor gave the machine's CPU time to others.
	CauseSteal Cause = "steal"
	// CauseThrottled: the control group held the process back.
	CauseThrottled Cause = "throttled"
	// CauseGCLimit: the heap was at its limit, and the collector was limited.
	CauseGCLimit Cause = "gc-limit"
	// CauseShares: shares are missing that were to measure a part of it.
	CauseShares Cause = "shares"
)

// blameless are the causes that tell of the machine, not of the variant.
var blameless = []Cause{CauseGenerator, CauseSteal, CauseThrottled, CauseGCLimit, CauseShares}

// Verdict says whether a cell's figures may be believed, and why not.
type Verdict struct {
	Status Status `json:"status"`
	Cause  Cause  `json:"cause,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// Failed reports whether the variant broke an invariant or ended in an error. A
// generator that fell behind, steal, throttling and the collector's limit make a
// verdict invalid, too, but tell of the machine.
func (v Verdict) Failed() bool {
	return v.Status == Invalid && !slices.Contains(blameless, v.Cause)
}

// Short returns the verdict without its detail: "valid", "invalid: lost".
func (v Verdict) Short() string {
	if v.Cause == "" {
		return string(v.Status)
	}
	return string(v.Status) + ": " + string(v.Cause)
}

// String returns the verdict with its detail on one line.
func (v Verdict) String() string {
	if v.Detail == "" {
		return v.Short()
	}
	return v.Short() + ": " + v.Detail
}

// BenchName returns the cell's name as benchmarks have it, without "Benchmark"
// and the GOMAXPROCS suffix: "DeltaFIFO/impl=cond/keys=10000".
func (c CellResult) BenchName() string { return benchName(c.Name, c.Labels) }

// original is the name of the cell that this one repeats, its own where it
// repeats none.
func (c CellResult) original() string {
	if c.Repeats != "" {
		return c.Repeats
	}
	return c.BenchName()
}

// NameWithout returns the cell's name as BenchName does, without the labels of
// the given keys: equal for cells that differ in nothing else.
func (c CellResult) NameWithout(keys ...string) string { return benchName(c.Name, c.Without(keys...)) }

// Impl returns the variant's name; the cell's where it has none.
func (c CellResult) Impl() string {
	if v := c.Label("impl"); v != "" {
		return v
	}
	return c.Name
}

// Without returns the cell's labels save for those of the given keys.
func (c CellResult) Without(keys ...string) []Label { return without(c.Labels, keys...) }

// Label returns the value of the label of that key, "" where there is none.
func (c CellResult) Label(key string) string { return labelOf(c.Labels, key) }

// Rate returns the pace and true for a paced cell: one with a label "rate"
// other than [Unpaced].
func (c CellResult) Rate() (string, bool) { return rateOf(c.Labels) }

// Samples returns the figures of the rounds, by unit; none of an invalid cell.
func (c CellResult) Samples(headline cell.Boundary) stats.Samples {
	results := make([]cell.Result, 0, len(c.Rounds))
	for _, r := range c.Rounds {
		results = append(results, r.Result)
	}
	return stats.Collect(results, headline)
}

// Unpaced is the value of the label "rate" of cells that are played as fast as
// they go; so are cells without the label.
const Unpaced = "max"

func benchName(name string, labels []Label) string {
	var b strings.Builder
	b.WriteString(name)
	for _, l := range labels {
		b.WriteString("/" + l.Key + "=" + l.Value)
	}
	return b.String()
}

// without returns the labels whose key is none of keys.
func without(labels []Label, keys ...string) []Label {
	var out []Label
	for _, l := range labels {
		if !slices.Contains(keys, l.Key) {
			out = append(out, l)
		}
	}
	return out
}

func labelOf(labels []Label, key string) string {
	for _, l := range labels {
		if l.Key == key {
			return l.Value
		}
	}
	return ""
}

func rateOf(labels []Label) (string, bool) {
	rate := labelOf(labels, "rate")
	return rate, rate != "" && rate != Unpaced
}

// Failed returns the names of the cells that broke an invariant or ended in an
// error, each with its verdict ([Verdict.Failed]).
func (o *Outcome) Failed() []string {
	var failed []string
	for _, c := range o.Comparisons {
		for _, cl := range c.Cells {
			if cl.Verdict.Failed() {
				failed = append(failed, cl.BenchName()+": "+cl.Verdict.String())
			}
		}
	}
	return failed
}

// Finished returns how many cells have all their rounds, and how many there
// are. A cell that became invalid is not among the finished.
func (o *Outcome) Finished() (finished, all int) {
	for _, c := range o.Comparisons {
		for _, cl := range c.Cells {
			all++
			if n := len(cl.Rounds); n > 0 && n == o.RoundsOf(c) {
				finished++
			}
		}
	}
	return finished, all
}

// RoundsOf returns how many rounds the cells of one of its comparisons were to
// have.
func (o *Outcome) RoundsOf(c ComparisonResult) int {
	if c.Rounds == 0 && o.Budget == 0 {
		return o.Rounds
	}
	return c.Rounds
}

// BenchConfig returns the head of the run's benchfmt file.
func (o *Outcome) BenchConfig() stats.Config {
	return stats.Config{
		GOOS: o.Env.GOOS, GOARCH: o.Env.GOARCH, Pkg: "watchlab", CPU: o.Env.CPU,
		Commit: o.Env.Commit, GOMAXPROCS: o.Env.GOMAXPROCS, Shares: o.shares(),
	}
}

// shares is how many the run was merged of, and of how many; empty for a run of one
// process.
func (o *Outcome) shares() string {
	if o.Merged == nil {
		return ""
	}
	return o.Merged.String()
}
