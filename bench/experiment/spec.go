// Package experiment describes runs and plans them. It is not a public API.
//
//  1. A [Spec] is read from YAML ([manifest.ReadStrict]) or set by flags ([AddFlags]). With both, flags
//     win.
//  2. [New] validates it, loads the storm, and returns a [Plan]: the comparisons and the
//     options for package lab.
//  3. The results folder keeps the Spec as experiment.yaml. A resumed run, a process
//     of --memory and a pod of a load Job plan the same comparisons from it.
//  4. A [Search] varies the experiment: a [Knee] derives the next rate from earlier
//     results, a [Scale] plays the values of a knob. [Plan.Finish] computes the result from
//     the outcome alone, so that a resumed run has the same result.
//  5. A Spec may have a question and the [Claim]s that answer it. [Plan.Finish] judges them. [Experiments]
//     returns the built-in ones, of the folder experiments.
package experiment

import (
	"cmp"
	"encoding/json"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"watchlab/bench/pipeline"
	"watchlab/impls"
	"watchlab/loadgen/manifest"
)

// Spec describes an experiment. A zero field takes its default.
//
// A tag "flag" names the flag that fills the field, "help" describes it, "min" is the
// least value, "enum" has the allowed values, and "source" the source that it applies
// to. A comment says what the help has no room for.
type Spec struct {
	// Name of the run, and the end of its default results folder's name (default: run, or the search's kind).
	Name string `json:"name,omitempty"`
	// Title of the tables of an experiment with parts (default: derived from the Spec).
	Title string `json:"title,omitempty"`

	// Question that the claims answer, in one sentence.
	Question string `json:"question,omitempty"`
	// Claims are comparisons of two cells. The run judges each: confirmed, refuted or not answered.
	Claims []Claim `json:"claims,omitempty"`

	// Config selects variants, pipeline, source and load.
	pipeline.Config

	// Storm that is played.
	Storm Storm `json:"storm,omitzero"`
	// Paces at which events are released, one cell each: max, RATE, poisson:RATE, trace or trace:SPEEDx (default: max).
	Paces []string `json:"paces,omitempty" flag:"pace,common,run" help:"event paces, one cell each: max, RATE, trace (default max)"`
	// Duration of the schedule of a paced round (default: 2s; 1s in a knee search).
	Duration metav1.Duration `json:"duration,omitzero" flag:"duration" help:"schedule of a paced round (default 2s, knee 1s)" min:"0"`
	// LagBudget is the limit of release lag; beyond it the verdict is "invalid: generator" (default: 1 % of the time between two events, at least 1ms).
	LagBudget metav1.Duration `json:"lagBudget,omitzero" flag:"lag-budget" help:"release lag that still counts (default 1 % of the gap, 1ms at least)" min:"1"`

	// HandlerCost is the processor time that the handler takes for each event (default: 0).
	HandlerCost metav1.Duration `json:"handlerCost,omitzero" flag:"handler-cost" help:"processor time of the handler, each event (default 0)" family:"deltafifo,queue"`
	// Faults between client and server, for source apiserver, as in disconnect:every=2s,count=10.
	Faults []string `json:"faults,omitempty" flag:"faults,array" help:"faults for --source apiserver, as in disconnect:every=2s" source:"apiserver"`
	// Share of the storm that this process plays, as in 0/4, the first of four (default: the whole storm).
	Share string `json:"share,omitempty" flag:"share,run" help:"share of the storm's keys, as in 0/4 (default all)"`

	// Rounds that count; one more warms up (default: 5; 3 for a knee).
	Rounds int `json:"rounds,omitempty" flag:"rounds,common" help:"rounds that count, after a warm-up (default 5)" min:"1"`
	// Budget of time, in place of Rounds: as many rounds as fit, at least one.
	Budget metav1.Duration `json:"budget,omitzero" flag:"budget,common" help:"time budget in place of --rounds (default none)" min:"1"`
	// Processes that share the rounds, one after the other; they need a results folder (default: with a folder one a round, 6 with a budget; else, and in a knee search, 1).
	Processes int `json:"processes,omitempty" flag:"processes,common" help:"processes that share the rounds (default: one a round)" min:"1"`
	// Memory plays each cell of each round in its own process and reports its peak heap and resident memory (default: false).
	Memory bool `json:"memory,omitempty" flag:"memory,common" help:"a process for each cell, with peak memory (default false)"`
	// Profiles are kinds of pprof profiles of one more, uncounted round of each cell: cpu, heap, allocs, mutex, block or all (default: none).
	Profiles []string `json:"profiles,omitempty" flag:"profile,common" help:"pprof profiles of an extra round: cpu, heap, all, …"`
	// IgnoreHost omits steal and throttling from the verdicts, for tests on a busy machine; the results say so (default: false).
	IgnoreHost bool `json:"ignoreHost,omitempty" flag:"ignore-host" help:"omit steal and throttling from verdicts, for tests (default false)"`

	// Search varies what is played: a knee or a scale.
	Search *Search `json:"search,omitempty"`
	// Parts are played side by side; each inherits the fields that it does not set. The cells of one family are one table.
	Parts []Spec `json:"parts,omitempty"`
}

// Storm selects the storm and its size.
type Storm struct {
	// Name of a profile, of a built-in recording, or the file of a trace (default: recorded-nodeloss).
	Name  string  `json:"name,omitempty" flag:"storm,common" help:"storm: a profile, a recording or a file"`
	Nodes int     `json:"nodes,omitempty" flag:"nodes,common" help:"nodes of the profile's cluster; pods and rates follow (default: the profile's)" min:"1"`
	Pods  int     `json:"pods,omitempty" flag:"pods" help:"pods of the profile's cluster; nodes and rates follow (default: the profile's)" min:"1"`
	Scale float64 `json:"scale,omitempty" flag:"scale,common" help:"factor on the profile's cluster and rates (default 1)"`
	Skew  string  `json:"skew,omitempty" flag:"skew" help:"skew of keys: uniform, zipf:EXPONENT (default: the profile's)"`
}

// Search varies what is played. One of its fields is set.
type Search struct {
	// Knee finds the highest rate at which each variant meets a latency objective.
	Knee *KneeSearch `json:"knee,omitempty"`
	// Scale plays the values of one knob.
	Scale *Scale `json:"scale,omitempty"`
}

// KneeSearch doubles the rate until the objective fails, then halves the gap.
type KneeSearch struct {
	// SLO lists objectives, each searched for by itself: QUANTILE=DURATION,…, with p50, p90, p99, p99.9 and max (default: p99=1ms).
	SLO string `json:"slo,omitempty" flag:"slo" help:"latency objectives: QUANTILE=DURATION,… (default p99=1ms)"`
	// From is the lowest rate, in events per second (default: 1000).
	From float64 `json:"from,omitempty" flag:"from" help:"lowest rate, in events per second (default 1000)" min:"1"`
	To   float64 `json:"to,omitempty" flag:"to" help:"highest rate, in events per second (default 1000000)" min:"1"`
}

// Scale plays a storm, unpaced, at each value of a knob.
type Scale struct {
	Over string `json:"over" flag:"over" help:"knob to vary, as in producers=1,2,4,8"`
}

// JSON returns the Spec in the form that package lab stores.
func (s Spec) JSON() json.RawMessage {
	data, err := json.Marshal(s)
	if err != nil {
		panic(err) // Strings, numbers and slices of them can be marshalled.
	}
	return data
}

// Parse reads a Spec from YAML or JSON; see [manifest.Strict].
func Parse(name string, data []byte) (Spec, error) {
	var s Spec
	err := manifest.Strict(name, data, &s)
	return s, err
}

// inherit returns a part with its zero fields set to those of the whole.
func (s Spec) inherit(part Spec) Spec {
	whole := s
	whole.Parts, whole.Title, whole.Claims = nil, "", nil
	if err := json.Unmarshal(part.JSON(), &whole); err != nil {
		panic(err) // It was marshalled from the same type.
	}
	return whole
}

func def[T comparable](to *T, value T) { *to = cmp.Or(*to, value) }

func (s Spec) withDefaults() Spec {
	s.Seed = cmp.Or(s.Seed, 1)
	rounds, name := 5, "run"
	switch {
	case s.isKnee():
		// The least number of rounds with a majority.
		rounds, name = 3, "knee"
		k := *s.Search.Knee
		def(&k.SLO, "p99=1ms")
		k.From, k.To = cmp.Or(k.From, 1_000), cmp.Or(k.To, 1_000_000)
		s.Duration.Duration = cmp.Or(s.Duration.Duration, time.Second)
		s.Search = &Search{Knee: &k}
	case s.Search != nil && s.Search.Scale != nil:
		name = "scale"
	}
	def(&s.Name, name)
	// A search adds cells during the run, so it needs rounds beside a budget.
	if s.Rounds == 0 && (s.Budget.Duration == 0 || name == "knee") {
		s.Rounds = rounds
	}
	if len(s.Parts) > 0 {
		return s
	}
	def(&s.Pipeline, pipeline.QueuePipeline)
	def(&s.Source, memorySource)
	family := impls.DeltaFIFO
	if s.Pipeline == pipeline.KubeletPipeline {
		family = impls.Merge
	}
	def(&s.Family, family)
	def(&s.Storm.Name, DefaultStorm)
	if len(s.Paces) == 0 && !s.isKnee() {
		s.Paces = []string{"max"}
	}
	return s
}

func isZero(v reflect.Value) bool { return v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0 }
