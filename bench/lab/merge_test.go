package lab_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
)

// part holds the measurements of one process in one play.
type part struct {
	latencies, lags []time.Duration
}

// measured returns a recorder's result for a part with the given duration.
func measured(p part, takes time.Duration) cell.Result {
	rec := new(cell.Recorder)
	rec.Begin()
	rec.End()
	n := uint64(len(p.latencies))
	rec.Count(max(n, 1), 2*n)
	for _, d := range p.latencies {
		rec.Latency("intended→handled", d)
		rec.Latency("popped→handled", d/2)
	}
	if p.lags != nil {
		rec.Schedule(time.Millisecond, time.Second)
		for i, d := range p.lags {
			rec.Lag(d, time.Duration(i))
		}
	}
	rec.Note("relists", float64(n))
	rec.Note("reads/s", float64(2*n))
	rec.Note("wire-B/event", float64(n))
	rec.Note("staleness-p99-events", float64(n))
	r, err := rec.Result()
	if err != nil {
		panic(err)
	}
	// Figures that depend on the machine are set to constants.
	r.Elapsed = takes
	r.EventsPerSecond = float64(r.EventsIn) / takes.Seconds()
	r.AllocsPerEvent, r.BytesPerEvent, r.CPUSecondsPerEvent = float64(n), float64(3*n), float64(n)/1e6
	r.PaidBytesPerEvent, r.GCNsPerByte = float64(n), 0.5
	r.GCs, r.GCPause, r.GCPauseMax, r.LockWait = uint32(n), time.Duration(n), time.Duration(n), time.Duration(n)
	r.Host = cell.Host{}
	return r
}

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// oneCell returns a share with one cell, played over the rounds with a common start.
func oneCell(index, of int, labels []lab.Label, rounds ...cell.Result) lab.Share {
	ended := began.Add(time.Hour)
	result := lab.CellResult{Name: "Queue", Labels: labels, Guarantees: "order total", Verdict: lab.Verdict{Status: lab.Valid}}
	s := lab.Share{Index: index, Of: of, Pod: fmt.Sprintf("pod-%d", index), Node: "node-a"}
	name := result.BenchName()
	for i, r := range rounds {
		result.Rounds = append(result.Rounds, lab.Round{Round: i + 1, Place: 1, Started: began.Add(time.Duration(index) * time.Second), Took: r.Elapsed, Result: r})
		s.Starts = append(s.Starts, lab.Start{Cell: name, Round: i + 1})
	}
	s.Outcome = &lab.Outcome{
		Format: lab.Format, Name: "run", Started: began.Add(time.Duration(index) * time.Second), Ended: &ended, Seed: 7, Rounds: len(rounds), Spent: time.Minute,
		Env: lab.Env{Build: lab.Build{Commit: "abc"}, GoVersion: "go1.26", CPU: "Some CPU", Cores: 2, GOMAXPROCS: 2, Args: []string{"run"}},
		Comparisons: []lab.ComparisonResult{{
			Family: "queue", Title: "fakes", Input: "storm", Cells: []lab.CellResult{result},
		}},
	}
	return s
}

var unpaced = []lab.Label{{Key: "impl", Value: "a"}}

// steadyShares returns shares with the same number of events and the given durations,
// over three rounds.
func steadyShares(takes ...time.Duration) []lab.Share {
	var shares []lab.Share
	for i, d := range takes {
		r := measured(part{latencies: []time.Duration{time.Microsecond, time.Millisecond}}, d)
		shares = append(shares, oneCell(i, len(takes), unpaced, r, r, r))
	}
	return shares
}

// merge merges shares that are in memory.
func merge(shares []lab.Share, opts lab.MergeOptions) (*lab.Outcome, error) {
	var attempts []lab.Attempt
	for _, s := range shares {
		a := lab.Attempt{Index: s.Index, Number: s.Attempt}
		if o := s.Outcome; o != nil {
			a.Started, a.Finished = o.Started, o.Ended != nil && !o.Interrupted
		}
		attempts = append(attempts, a)
	}
	return lab.Merge(attempts, func(i int) (*lab.Share, error) { return &shares[i], nil }, opts)
}

func mustMerge(t *testing.T, shares []lab.Share, opts lab.MergeOptions) *lab.Outcome {
	t.Helper()
	o := must(merge(shares, opts))(t)
	return o
}

// TestMergeEqualsWholeRun: merged shares equal the measurement of the whole storm in one process.
// Every count and every bucket is equal, for any division of the storm and any order of the shares.
func TestMergeEqualsWholeRun(t *testing.T) {
	t.Parallel()
	// The last is more shares than are merged at once.
	for seed, of := range []int{1, 2, 5, 18} {
		rng := rand.New(rand.NewPCG(uint64(seed), 7))
		shares := make([]lab.Share, of)
		parts := make([]cell.Result, of)
		var whole part
		var longest time.Duration
		for i := range shares {
			var p part
			for range 1 + rng.IntN(5) {
				// Also negative latencies, and latencies beyond the histogram's hour.
				p.latencies = append(p.latencies, time.Duration(rng.ExpFloat64()*float64(30*time.Minute))-time.Minute)
			}
			p.lags = p.latencies
			whole.latencies = append(whole.latencies, p.latencies...)
			takes := time.Duration(100+rng.IntN(5)) * time.Millisecond
			longest = max(longest, takes)
			parts[i] = measured(p, takes)
			shares[i] = oneCell(i, of, unpaced, parts[i])
		}
		whole.lags = whole.latencies
		want := measured(whole, longest)
		rng.Shuffle(of, func(i, j int) { shares[i], shares[j] = shares[j], shares[i] })
		o := mustMerge(t, shares, lab.MergeOptions{})
		c := o.Comparisons[0].Cells[0]
		if c.Verdict.Status != lab.Valid || len(c.Rounds) != 1 {
			t.Fatalf("seed %d: %s, %d rounds", seed, c.Verdict, len(c.Rounds))
		}
		got := c.Rounds[0].Result
		sum := 0.0
		for _, p := range parts {
			sum += float64(p.EventsIn * p.EventsIn)
		}
		near := func(what string, a, b float64) {
			if math.Abs(a-b) > 1e-9*math.Abs(b) {
				t.Errorf("seed %d: %s is %v, want %v", seed, what, a, b)
			}
		}
		perEvent := sum / float64(want.EventsIn)
		near("allocations", got.AllocsPerEvent, perEvent)
		near("bytes", got.BytesPerEvent, 3*perEvent)
		near("priced CPU", got.PricedCPUSecondsPerEvent(), perEvent/1e6+2*perEvent*0.5/1e9)
		near("CPU", got.CPUSecondsPerEvent, perEvent/1e6)
		near("events/s", got.EventsPerSecond, want.EventsPerSecond)
		// The merged figures equal the whole's. The ignored ones cannot be merged this
		// way; see above and TestMergedFigures.
		ignored := cmpopts.IgnoreFields(cell.Result{}, "AllocsPerEvent", "BytesPerEvent", "CPUSecondsPerEvent", "PaidBytesPerEvent", "GCNsPerByte", "EventsPerSecond", "Notes", "GCPauseMax")
		if diff := cmp.Diff(want, got, ignored); diff != "" {
			t.Errorf("seed %d: %d shares differ from the whole (-whole +merged):\n%s", seed, of, diff)
		}
	}
}

// TestMergedFigures: each kind of figure is merged by its own rule.
func TestMergedFigures(t *testing.T) {
	one := measured(part{latencies: make([]time.Duration, 1)}, time.Second)
	three := measured(part{latencies: make([]time.Duration, 3)}, 2*time.Second)
	one.GCPauseMax, one.Host = 5, cell.Host{StealShare: 0.01, Throttled: 3}
	o := mustMerge(t, []lab.Share{oneCell(0, 2, unpaced, one), oneCell(1, 2, unpaced, three)}, lab.MergeOptions{})
	r := o.Comparisons[0].Cells[0].Rounds[0].Result
	if r.EventsIn != 4 || r.DeltasOut != 8 || r.Elapsed != 2*time.Second || r.EventsPerSecond != 2 || r.DeltasPerEvent != 2 {
		t.Errorf("%+v", r)
	}
	// (1·1 + 3·3) / 4 events = 2.5
	if r.AllocsPerEvent != 2.5 || r.BytesPerEvent != 7.5 {
		t.Errorf("per event: %+v", r)
	}
	if r.GCs != 4 || r.GCPause != 4 || r.GCPauseMax != 5 || r.LockWait != 4 || r.Host != (cell.Host{StealShare: 0.01, Throttled: 3}) {
		t.Errorf("%+v", r)
	}
	want := []cell.Note{
		{Unit: "relists", Value: 4}, {Unit: "reads/s", Value: 8}, {Unit: "wire-B/event", Value: 2.5}, {Unit: "staleness-p99-events", Value: 3},
	}
	if diff := cmp.Diff(want, r.Notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
	if m := o.Comparisons[0].Cells[0].Medians["events/s"]; m.Median != 2 {
		t.Errorf("median %+v", m)
	}
	if o.Started != began || o.Ended == nil || o.Comparisons[0].Input != "storm" {
		t.Errorf("%+v", o)
	}
}

// inPlace returns a change that keeps all shares.
func inPlace(change func([]lab.Share)) func([]lab.Share) []lab.Share {
	return func(s []lab.Share) []lab.Share {
		change(s)
		return s
	}
}

// TestMergedVerdicts: the worst verdict of the shares wins, with their indexes.
// Some verdicts need all shares.
func TestMergedVerdicts(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	verdict := func(shares []lab.Share, i int, v lab.Verdict) {
		c := &shares[i].Outcome.Comparisons[0].Cells[0]
		c.Verdict = v
		if v.Status == lab.Invalid || v.Status == lab.Unplayed {
			c.Rounds = nil
		}
	}
	for name, tc := range map[string]struct {
		change func([]lab.Share) []lab.Share
		short  string
		says   string
		rounds int
		failed bool
	}{
		"all is well": {nil, "valid", "", 3, false},
		"one lost events": {inPlace(func(s []lab.Share) {
			verdict(s, 1, lab.Verdict{Status: lab.Invalid, Cause: lab.CauseLost, Detail: "1 event"})
		}), "invalid: lost", "share 1/3: invalid: lost: 1 event", 0, true},
		"several broken invariants": {inPlace(func(s []lab.Share) {
			verdict(s, 0, lab.Verdict{Status: lab.Invalid, Cause: lab.CauseError, Detail: "no luck"})
			verdict(s, 1, lab.Verdict{Status: lab.Invalid, Cause: "lost+duplicated", Detail: "1 event"})
		}), "invalid: lost+duplicated+error", "share 0/3: invalid: error: no luck; and in share 1", 0, true},
		"variant error takes precedence": {func(s []lab.Share) []lab.Share {
			verdict(s, 0, lab.Verdict{Status: lab.Invalid, Cause: lab.CauseSteal})
			verdict(s, 2, lab.Verdict{Status: lab.Invalid, Cause: lab.CauseReordered})
			return s[:3]
		}, "invalid: reordered", "share 2/3", 0, true},
		"one is noisy":         {inPlace(func(s []lab.Share) { verdict(s, 2, lab.Verdict{Status: lab.Noisy, Detail: "11 % apart"}) }), "noisy", "share 2/3: noisy: 11 % apart", 3, false},
		"one pod did not play": {inPlace(func(s []lab.Share) { verdict(s, 0, lab.Verdict{Status: lab.Unplayed, Detail: "no time"}) }), "unplayed", "share 0/3: unplayed: no time", 0, false},
		"one lacks a round": {inPlace(func(s []lab.Share) {
			c := &s[1].Outcome.Comparisons[0].Cells[0]
			c.Rounds = slices.Delete(c.Rounds, 1, 2)
		}), "valid", "", 2, false},
		"one is missing": {func(s []lab.Share) []lab.Share { return []lab.Share{s[0], s[2]} },
			"valid", "2 of 3 shares (missing share 1)", 3, false},
		"one came late": {inPlace(func(s []lab.Share) { s[2].Starts[1].Late = 11 * ms }), "noisy", "in 1 of 3 rounds: share 2 began 11ms after the first (allowed: 10 % of 100ms)", 3, false},
		"all came late": {inPlace(func(s []lab.Share) {
			for i := range s {
				s[i].Starts[1].Late = time.Minute
			}
		}), "valid", "", 3, false},
		"no pod waited": {inPlace(func(s []lab.Share) {
			for i := range s {
				s[i].Starts = nil
			}
		}), "noisy", "in 3 of 3 rounds: the shares did not wait for each other", 3, false},
		"one pod skipped": {inPlace(func(s []lab.Share) { s[0].Starts[2].Absent = []int{1} }), "noisy", "in 1 of 3 rounds: share 1 had no start in common with the others", 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			shares := steadyShares(100*ms, 100*ms, 100*ms)
			if tc.change != nil {
				shares = tc.change(shares)
			}
			o := mustMerge(t, shares, lab.MergeOptions{})
			c := o.Comparisons[0].Cells[0]
			if c.Verdict.Short() != tc.short || !strings.Contains(c.Verdict.Detail, tc.says) || tc.says == "" && c.Verdict.Detail != "" {
				t.Errorf("verdict %q, want %s with %q", c.Verdict, tc.short, tc.says)
			}
			if len(c.Rounds) != tc.rounds || (len(c.Medians) > 0) != (tc.rounds > 0) {
				t.Errorf("%d rounds, %d medians", len(c.Rounds), len(c.Medians))
			}
			if failed := len(o.Failed()) > 0; failed != tc.failed {
				t.Errorf("failed: %v", o.Failed())
			}
		})
	}
}

// TestMergedLag: cells without figures keep the worst lag.
func TestMergedLag(t *testing.T) {
	shares := steadyShares(time.Second, time.Second, time.Second)
	for i, share := range []float64{0.02, 0.5, 0} {
		c := &shares[i].Outcome.Comparisons[0].Cells[0]
		if share > 0 {
			c.Verdict = lab.Verdict{Status: lab.Invalid, Cause: lab.CauseGenerator}
			c.Rounds, c.Lag = nil, &cell.Lag{LateShare: share}
		}
	}
	c := mustMerge(t, shares, lab.MergeOptions{}).Comparisons[0].Cells[0]
	if c.Verdict.Short() != "invalid: generator" || c.Lag == nil || c.Lag.LateShare != 0.5 || len(c.Rounds) > 0 {
		t.Errorf("%s, lag %+v", c.Verdict, c.Lag)
	}
}

func TestMergeRefusesShares(t *testing.T) {
	t.Parallel()
	set := func(change func(*lab.Outcome)) func([]lab.Share) []lab.Share {
		return inPlace(func(s []lab.Share) { change(s[1].Outcome) })
	}
	setCell := func(change func(*lab.CellResult)) func([]lab.Share) []lab.Share {
		return set(func(o *lab.Outcome) { change(&o.Comparisons[0].Cells[0]) })
	}
	for name, tc := range map[string]struct {
		change func([]lab.Share) []lab.Share
		mixed  bool
		says   string
	}{
		"none at all":            {func([]lab.Share) []lab.Share { return nil }, false, "there are none"},
		"no outcome":             {inPlace(func(s []lab.Share) { s[1].Outcome = nil }), false, "share 1 has no outcome"},
		"beyond the last":        {inPlace(func(s []lab.Share) { s[1].Index = 2 }), false, "no share 2 of 2"},
		"different share counts": {inPlace(func(s []lab.Share) { s[1].Of = 3 }), true, "number of shares"},
		"commits":                {set(func(o *lab.Outcome) { o.Env.Commit = "def" }), true, `the program's commit is "abc" in share 0, and "def" in share 1`},
		"seeds":                  {set(func(o *lab.Outcome) { o.Seed = 8 }), true, "Seed"},
		"comparisons":            {set(func(o *lab.Outcome) { o.Comparisons = nil }), true, "comparisons"},
		"more cells": {set(func(o *lab.Outcome) {
			c := &o.Comparisons[0]
			c.Cells = append(c.Cells, c.Cells[0])
		}), true, "number of cells"},
		"cells":            {setCell(func(c *lab.CellResult) { c.Labels = []lab.Label{{Key: "impl", Value: "b"}} }), true, `"Queue/impl=a" in share 0`},
		"guarantees":       {setCell(func(c *lab.CellResult) { c.Guarantees = "none" }), true, "guarantees"},
		"inputs":           {set(func(o *lab.Outcome) { o.Comparisons[0].Input = "other" }), true, "the input of comparison"},
		"nothing measured": {setCell(func(c *lab.CellResult) { c.Rounds[0].Result.EventsIn = 0 }), false, "measured nothing in round 1 of Queue/impl=a"},
		"histograms": {setCell(func(c *lab.CellResult) {
			r := &c.Rounds[0].Result
			r.Latency = slices.Clone(r.Latency)
			r.Latency[0].Histogram = ""
		}), false, "intended→handled"},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := merge(tc.change(steadyShares(time.Second, time.Second)), lab.MergeOptions{})
			if !errors.Is(err, lab.ErrShares) || !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), "in share 0, and") != tc.mixed || o != nil {
				t.Errorf("outcome %v, error %v; want %q, naming two shares: %v", o != nil, err, tc.says, tc.mixed)
			}
		})
	}
}

// TestMergeNamesMachines: shares may run on different machines.
func TestMergeNamesMachines(t *testing.T) {
	shares := steadyShares(time.Second, time.Second)
	steal := 0.25
	env := &shares[1].Outcome.Env
	env.CPU, env.Cores, env.GOMAXPROCS, env.Kernel, env.StealShare = "Other CPU", 1, 1, "6.9", &steal
	shares[1].Node, shares[1].Starts[0].Late = "node-b", time.Millisecond
	o := mustMerge(t, shares, lab.MergeOptions{Name: "named", Args: []string{"cluster", "run"}})
	if o.Env.CPU != "2 kinds of processors" || o.Env.Cores != 1 || o.Env.GOMAXPROCS != 1 || *o.Env.StealShare != 0.25 {
		t.Errorf("%+v", o.Env)
	}
	if o.Name != "named" || o.Env.Args[0] != "cluster" {
		t.Errorf("%+v", o)
	}
	want := lab.MergedShare{
		Index: 1, Pod: "pod-1", Node: "node-b", Started: began.Add(time.Second), Spent: time.Minute,
		CPU: "Other CPU", Cores: 1, GOMAXPROCS: 1, StealShare: &steal, Starts: 3, Late: time.Millisecond,
	}
	if diff := cmp.Diff(want, o.Merged.Shares[1]); diff != "" || o.Merged.String() != "2 shares" {
		t.Errorf("%s (-want +got):\n%s", o.Merged, diff)
	}
}

func TestChoose(t *testing.T) {
	at := func(index, number int, minute int, finished bool) lab.Attempt {
		return lab.Attempt{Index: index, Number: number, Started: began.Add(time.Duration(minute) * time.Minute), Finished: finished}
	}
	for name, tc := range map[string]struct {
		attempts []lab.Attempt
		chosen   []int
	}{
		"none":           {nil, []int{}},
		"one each":       {[]lab.Attempt{at(1, 0, 0, true), at(0, 0, 0, true)}, []int{1, 0}},
		"first finished": {[]lab.Attempt{at(0, 2, 2, true), at(0, 0, 0, false), at(0, 1, 1, true)}, []int{2}},
		"none finished":  {[]lab.Attempt{at(0, 0, 0, false), at(0, 1, 1, false)}, []int{1}},
		"disrupted pod":  {[]lab.Attempt{at(0, 0, 1, true), at(0, 0, 0, true)}, []int{1}},
		"the same twice": {[]lab.Attempt{at(0, 0, 0, true), at(0, 0, 0, true)}, []int{0}},
	} {
		t.Run(name, func(t *testing.T) {
			if chosen := lab.Choose(tc.attempts); !slices.Equal(chosen, tc.chosen) {
				t.Errorf("chosen %v", chosen)
			}
		})
	}
}

// TestMergedFolder: a merged run is written as a normal results folder.
func TestMergedFolder(t *testing.T) {
	shares := steadyShares(time.Second, time.Second)
	retried := shares[0]
	retried.Attempt, retried.Pod = 1, "pod-0-again"
	merged := mustMerge(t, append(shares, retried), lab.MergeOptions{})
	if n := len(merged.Merged.Shares); n != 2 {
		t.Errorf("%d shares", n)
	}
	dir := filepath.Join(t.TempDir(), "results", "merged")
	noError(t, merged.Create(dir))
	if err := merged.Create(dir); !errors.Is(err, lab.ErrExists) {
		t.Errorf("created twice: %v", err)
	}
	read := must(lab.Load(dir))(t)
	if diff := cmp.Diff(merged, read, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(lab.Outcome{})); diff != "" {
		t.Errorf("read back (-merged +read):\n%s", diff)
	}
	files := readAll(t, dir)
	if got := holding(files, "shares: 2 shares"); !slices.Equal(got, []string{lab.BenchFile}) {
		t.Errorf("%v name the number of shares", got)
	}
}
