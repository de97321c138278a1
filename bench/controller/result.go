package controller

import (
	"strings"

	"watchlab/bench/cell"
	"watchlab/bench/controller/record"
	"watchlab/bench/controller/verdict"
	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// Result is the outcome of a run: result.json of the results folder.
type Result struct {
	Sentence string   `json:"sentence"` // answer in one sentence
	Env      lab.Env  `json:"env"`
	Spec     Spec     `json:"spec"`
	Programs []string `json:"programs"` // labels, the baseline of --against first
	Plays    []Play   `json:"plays"`    // in the order in which they were played
	// Shrunk is set if a play failed with faults.
	Shrunk *Shrunk `json:"shrunk,omitempty"`
	// Compared are the figures of two programs, empty for one.
	Compared    []Compared `json:"compared,omitempty"`
	Interrupted bool       `json:"interrupted,omitempty"`
}

// Play is one play in numbers.
type Play struct {
	record.Play
	Name     string            `json:"name"`  // as in program=new/faults=relist/round=1
	Plan     string            `json:"plan"`  // name of the fault plan: none, all, or a fault
	Round    int               `json:"round"` // from 1
	Verdicts []verdict.Verdict `json:"verdicts"`
	// Figures are the values of the benchmark line, by unit; see docs/controller.md.
	Figures   map[string]float64 `json:"figures"`
	Latencies []Latency          `json:"latencies,omitempty"`
	Requests  []Requests         `json:"requests,omitempty"`
	Series    []Series           `json:"series,omitempty"`
	// LoggedErrors are the errors in the programs' logs.
	LoggedErrors int    `json:"loggedErrors,omitempty"`
	Folder       string `json:"folder"` // of its requests and logs, below the results folder
}

// Explored reports whether the plan is one of [PlanExplore].
func (p *Play) Explored() bool { return strings.HasPrefix(p.Plan, PlanExplore+"-") }

// FaultText is the plan as --faults takes it.
func (p *Play) FaultText() string { return plan{faults: p.Faults}.text() }

// Failed reports whether a verdict failed.
func (p *Play) Failed() bool { return p.Failure() != nil }

// Failure returns the first failed verdict, nil if the play passed.
func (p *Play) Failure() *verdict.Verdict {
	for i := range p.Verdicts {
		if p.Verdicts[i].Failed {
			return &p.Verdicts[i]
		}
	}
	return nil
}

// Latency is the distribution of the reconcile latency of one rule, kind and phase.
type Latency struct {
	Rule       string         `json:"rule"`
	Resource   string         `json:"resource"` // of the events
	Phase      string         `json:"phase,omitempty"`
	Answered   int            `json:"answered"`
	Unanswered int            `json:"unanswered"`
	Quantiles  cell.Quantiles `json:"quantiles"`
}

// Requests counts the requests of one verb on one resource.
type Requests struct {
	Verb      string `json:"verb"`
	Resource  string `json:"resource"` // with the subresource, as in pods/status
	Count     int    `json:"count"`
	Conflicts int    `json:"conflicts,omitempty"` // answers 409, but to a create
	Throttled int    `json:"throttled,omitempty"` // answers 429
	Errors    int    `json:"errors,omitempty"`    // other answers of 400 and more
	Retries   int    `json:"retries,omitempty"`   // repetitions of a failed request
	Unchanged int    `json:"unchanged,omitempty"` // writes without a change
	Bytes     int64  `json:"bytes,omitempty"`     // of the answers
}

// Series is a figure over the time of a play, for charts.
type Series struct {
	Name   string    `json:"name"` // such as latency, requests, lag, rss, cpu, files
	Unit   string    `json:"unit"`
	Client string    `json:"client,omitempty"` // name of the replica
	Points []float64 `json:"points"`           // time in seconds and value, in turn
}

// Shrunk is the smallest fault plan that still fails. If [Result].Interrupted is set, shrinking has not ended, and
// it is the smallest one so far.
type Shrunk struct {
	Plan     string   `json:"plan"`     // failed plan that it comes from
	Verdict  string   `json:"verdict"`  // that it keeps
	Faults   []string `json:"faults"`   // as --faults takes them; empty if the storm alone fails
	Of       int      `json:"of"`       // occurrences in the failed plan
	Plays    int      `json:"plays"`    // played to find it
	Failed   int      `json:"failed"`   // of Repeated
	Repeated int      `json:"repeated"` // plays of the smallest plan
	Command  string   `json:"command"`  // that plays it again
}

// Compared is one figure of two programs.
type Compared struct {
	Cell  string           `json:"cell"` // as in faults=none
	Unit  string           `json:"unit"`
	Stats stats.Comparison `json:"stats"` // whose ratio is 0 where From is 0: JSON has no NaN
	Lost  bool             `json:"lost"`  // significantly worse than the baseline
	Won   bool             `json:"won"`
}
