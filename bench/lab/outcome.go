package lab

import (
	"cmp"
	"encoding/json"
	"iter"
	"slices"
	"time"

	"watchlab/bench/cell"
	"watchlab/bench/stats"
)

// Format is the version of run.json that this package writes.
const Format = 1

// The names of the files in a results folder.
const (
	RunFile        = "run.json"
	EnvFile        = "env.json"
	BenchFile      = "bench.txt"
	ReportFile     = "report.md"
	ExperimentFile = "experiment.yaml" // [Outcome].Experiment as YAML
)

// Outcome is the result of a run: the cells, their figures and their verdicts. Its JSON
// form is run.json, except for Env, which is env.json.
//
// A cell with an invalid verdict has neither Rounds nor Medians.
type Outcome struct {
	Format      int                `json:"format"`               // file version; see [Format]
	Name        string             `json:"name"`                 // run name, such as "quick"
	Started     time.Time          `json:"started"`              // start of the run
	Ended       *time.Time         `json:"ended,omitempty"`      // nil while the run is in progress, and if it was killed
	Seed        int64              `json:"seed"`                 // seed of the order of the cells
	Rounds      int                `json:"rounds"`               // without the warm-up; with a Budget, those of the longest comparison
	Budget      time.Duration      `json:"budgetNs,omitempty"`   // 0: none
	Spent       time.Duration      `json:"spentNs,omitempty"`    // over all resumptions
	Fresh       bool               `json:"fresh,omitempty"`      // each play had its own process and no warm-up
	Processes   int                `json:"processes,omitempty"`  // planned, to share the rounds; 0 in old files: one
	Paused      bool               `json:"paused,omitempty"`     // the process has played its share; the next one resumes the run
	Interrupted bool               `json:"interrupted"`          // the run ended before all rounds were played
	Experiment  json.RawMessage    `json:"experiment,omitempty"` // [Options].Experiment: the Spec as JSON
	Comparisons []ComparisonResult `json:"comparisons"`          // in the order of play
	Knees       []stats.Knee       `json:"knees,omitempty"`      // results of knee searches
	Scalings    []stats.Scaling    `json:"scalings,omitempty"`   // results of scaling sweeps
	Claims      []stats.Claim      `json:"claims,omitempty"`     // claims of the experiment, judged
	Merged      *Merged            `json:"merged,omitempty"`     // nil for a run of one process
	Env         Env                `json:"-"`                    // environment; stored in env.json
	Dir         string             `json:"-"`                    // results folder; empty if nothing is written

	files fileSystem // of Dir; nil: the system's
}

func (o *Outcome) disk() fileSystem { return cmp.Or[fileSystem](o.files, osFiles{}) }

// ComparisonResult is the result of a [Comparison].
type ComparisonResult struct {
	Family string       `json:"family"`           // heading of the table
	Title  string       `json:"title"`            // one line: variants and storm
	Input  string       `json:"input,omitempty"`  // digest of the input
	Rounds int          `json:"rounds,omitempty"` // planned rounds of its cells, with a Budget those started; 0: those of the run
	Cells  []CellResult `json:"cells"`            // in the order of the comparison
}

// Against returns the cell that cl is compared with: the repeated cell for the second of
// an A/A pair, or else the baseline with the same labels; see [CellResult.BaselineKey]. It returns nil if there is none.
func (c *ComparisonResult) Against(cl *CellResult) *CellResult {
	for i := range c.Cells {
		b := &c.Cells[i]
		if cl.Repeats != "" && b.BenchName() == cl.Repeats ||
			cl.Repeats == "" && b.Baseline && !cl.Baseline && b.NameExcept("impl") == cl.BaselineKey(b, "impl") {
			return b
		}
	}
	return nil
}

// CellResult is the result of a [Cell].
type CellResult struct {
	Name       string          `json:"name"` // benchmark name without "Benchmark"
	Labels     `json:"labels"` // the cell's knobs
	Guarantees string          `json:"guarantees,omitempty"` // shown in tables
	Class      string          `json:"class,omitempty"`      // no ratio is computed between classes; see [Cell]
	Repeats    string          `json:"repeats,omitempty"`    // name of the repeated cell (A/A pair); empty for all other cells
	Baseline   bool            `json:"baseline,omitempty"`   // ratios are relative to this cell
	Verdict    Verdict         `json:"verdict"`              // valid, noisy, invalid or unplayed
	// ByProcess: the rounds of one process are one replicate, as they have more in common than those
	// of two. Without it, in a run of one process, each round is a replicate.
	ByProcess  bool    `json:"byProcess,omitempty"`
	IgnoreHost bool    `json:"ignoreHost,omitempty"` // the verdict omits steal and throttling
	Rounds     []Round `json:"rounds,omitempty"`     // finished rounds in order
	// Withheld are the finished rounds of a cell that is invalid but has not failed.
	// A further round may change the verdict. They are dropped at the end of the run.
	Withheld []Round                  `json:"withheld,omitempty"`
	Lag      *cell.Lag                `json:"lag,omitempty"`     // of the median round; all that an "invalid: generator" cell keeps
	Latency  []cell.Latency           `json:"latency,omitempty"` // one entry per boundary, over all rounds
	Medians  map[string]stats.Summary `json:"medians,omitempty"` // over the rounds, by the units of bench.txt
}

// Round is one cell's measurement in one round.
type Round struct {
	Round   int           `json:"round"`             // from 1; the warm-up (0) is not stored
	Process int           `json:"process,omitempty"` // process of the run that played it, from 1; 0 in old files
	Place   int           `json:"place"`             // position in the order of the round, from 1
	Started time.Time     `json:"started"`           // start of Setup
	Took    time.Duration `json:"tookNs,omitempty"`  // from Setup to Teardown
	Result  cell.Result   `json:"result"`            // the measurement
}

// Status is the short form of a verdict.
type Status string

// The verdicts.
const (
	// Valid: all rounds held the invariants, the generator kept its schedule, and the
	// rounds agree within [MaxSpread].
	Valid    Status = "valid"
	Noisy    Status = "noisy"    // as Valid, but the spread of the rounds' events/s exceeds [MaxSpread]
	Invalid  Status = "invalid"  // the figures are meaningless and are discarded
	Unplayed Status = "unplayed" // the run ended before the cell finished a round
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
	CauseGenerator  Cause = "generator" // late releases
	CauseSteal      Cause = "steal"     // the hypervisor gave too much CPU time to other machines
	CauseThrottled  Cause = "throttled" // the control group throttled the process
	CauseGCLimit    Cause = "gc-limit"  // the heap was at its limit, and the runtime limited the collector
)

// blameless are the causes outside the variant, such as the machine or the generator.
var blameless = []Cause{CauseGenerator, CauseSteal, CauseThrottled, CauseGCLimit}

// Verdict says whether a cell's figures are usable, and if not, why.
type Verdict struct {
	Status Status `json:"status"`           // short form
	Cause  Cause  `json:"cause,omitempty"`  // set if Status is Invalid
	Detail string `json:"detail,omitempty"` // one line, such as the error or the spread; may be empty
}

// Failed reports whether the variant broke an invariant or returned an error. Lag of
// the generator, steal, throttling and the collector's limit also make a verdict
// invalid, but they are not failures of the variant.
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

// BenchName returns the cell's benchmark name without "Benchmark" and the GOMAXPROCS
// suffix: "DeltaFIFO/impl=cond/keys=10000".
func (c CellResult) BenchName() string { return c.name(c.Name) }

// NameExcept returns BenchName without the labels with the given keys. Cells that
// differ only in these labels share it.
func (c CellResult) NameExcept(keys ...string) string { return c.Without(keys...).name(c.Name) }

// BaselineKey is NameExcept for a comparison with a baseline: also without the knobs that the baseline
// lacks. client-go's own informer is the baseline of informers with any store, its queue of any batch.
func (c CellResult) BaselineKey(base *CellResult, keys ...string) string {
	for _, l := range c.Labels {
		if !slices.ContainsFunc(base.Labels, func(b Label) bool { return b.Key == l.Key }) {
			keys = append(keys, l.Key)
		}
	}
	return c.NameExcept(keys...)
}

// Impl returns the variant's name; the cell's name if it has no variant.
func (c CellResult) Impl() string {
	if v := c.Label("impl"); v != "" {
		return v
	}
	return c.Name
}

// Samples returns the figures of the replicates, by unit. An invalid cell has none.
func (c CellResult) Samples() stats.Samples {
	s := stats.Samples{}
	for _, rounds := range c.Replicates() {
		s.Add(stats.Replicate(results(rounds)))
	}
	return s
}

// Replicates groups the rounds: each group is one replicate for tests and intervals.
func (c CellResult) Replicates() [][]Round { return c.replicates(c.Rounds) }

func (c CellResult) replicates(rounds []Round) (groups [][]Round) {
	processes := processesOf(rounds)
	for i, r := range rounds {
		if at := slices.Index(processes, r.Process); c.ByProcess && at < len(groups) {
			groups[at] = append(groups[at], r)
		} else {
			groups = append(groups, rounds[i:i+1:i+1])
		}
	}
	return groups
}

// processesOf returns the processes of the rounds, in order of their first round.
func processesOf(rounds []Round) (processes []int) {
	for _, r := range rounds {
		if !slices.Contains(processes, r.Process) {
			processes = append(processes, r.Process)
		}
	}
	return processes
}

// OneProcess reports whether the rounds were not shared among processes, so that the intervals
// contain nothing of what differs between processes.
func (o *Outcome) OneProcess() bool { return o.Processes <= 1 && !o.Fresh && o.Merged == nil }

// played returns the finished rounds, shown or not.
func (c *CellResult) played() []Round {
	if c.Withheld != nil {
		return c.Withheld
	}
	return c.Rounds
}

// setRounds sets the finished rounds, and the figures and the verdict that follow from them.
func (c *CellResult) setRounds(rounds []Round) {
	c.set(c.verdictOf(rounds), rounds, results(rounds))
}

// addRound adds a finished round to the cell. The latencies of the rounds before are pooled already.
func (c *CellResult) addRound(r Round) {
	rounds := append(c.played(), r)
	parts := results(rounds)
	if c.Latency != nil {
		parts = []cell.Result{{Latency: c.Latency}, r.Result}
	}
	c.set(c.verdictOf(rounds), rounds, parts)
}

// set sets the verdict and the rounds. parts have the latencies of all rounds.
func (c *CellResult) set(v Verdict, rounds []Round, parts []cell.Result) {
	c.Verdict, c.Lag = v, medianLag(rounds)
	c.Rounds, c.Withheld, c.Latency, c.Medians = nil, nil, nil, nil
	switch {
	case v.Status == Invalid:
		c.Withheld = rounds
	case len(rounds) > 0:
		c.Rounds = rounds
		c.Latency, _ = mergeLatencies(parts) // none without their histograms
		c.Medians = c.Samples().Summaries()
	}
}

func results(rounds []Round) []cell.Result {
	all := make([]cell.Result, 0, len(rounds))
	for _, r := range rounds {
		all = append(all, r.Result)
	}
	return all
}

// Cells yields each cell with its comparison, in the order of play.
func (o *Outcome) Cells() iter.Seq2[*ComparisonResult, *CellResult] {
	return func(yield func(*ComparisonResult, *CellResult) bool) {
		for i := range o.Comparisons {
			c := &o.Comparisons[i]
			for j := range c.Cells {
				if !yield(c, &c.Cells[j]) {
					return
				}
			}
		}
	}
}

// Failed returns the cells with a failed verdict ([Verdict.Failed]): names and verdicts.
func (o *Outcome) Failed() []string {
	var failed []string
	for _, cl := range o.Cells() {
		if cl.Verdict.Failed() {
			failed = append(failed, cl.BenchName()+": "+cl.Verdict.String())
		}
	}
	return failed
}

// Finished returns the number of cells with all their rounds and the number of all
// cells. Invalid cells are not finished.
func (o *Outcome) Finished() (finished, all int) {
	for c, cl := range o.Cells() {
		all++
		if n := len(cl.Rounds); n > 0 && n == cmp.Or(c.Rounds, o.Rounds) {
			finished++
		}
	}
	return finished, all
}

// BenchConfig returns the head of the run's benchfmt file.
func (o *Outcome) BenchConfig() stats.Config {
	c := stats.Config{
		GOOS: o.Env.GOOS, GOARCH: o.Env.GOARCH, Pkg: "watchlab", CPU: o.Env.CPU, Commit: o.Env.Commit, GOMAXPROCS: o.Env.GOMAXPROCS,
	}
	if o.Merged != nil {
		c.Shares = o.Merged.String()
	}
	if o.Env.IgnoreHost {
		c.Host = "ignored"
	}
	return c
}
