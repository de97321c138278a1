package experiment_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"watchlab/bench/cell"
	"watchlab/bench/experiment"
	"watchlab/bench/lab"
	"watchlab/bench/stats"
	"watchlab/loadgen/pace"
)

// server is an M/D/1 queue. Its figures are computed, so tests do not wait.
type server struct {
	// takes is the service time.
	takes time.Duration
	// generator is the highest rate without lag; 0 for any rate.
	generator float64
	// breaks is the lowest rate that loses events; 0 for none.
	breaks float64
	// slowPlays is the number of first plays at each rate that take twice as long.
	slowPlays int
	// noise returns the logarithm of a factor of a play's waiting times; nil for none.
	noise func() float64
}

// p99 is the 99th percentile of the waiting time plus the service time. The tail of
// M/D/1 falls about exponentially, with a mean of ρ·takes/2(1-ρ).
func (s server) p99(rate float64) time.Duration {
	load := rate * s.takes.Seconds()
	if load >= 1 {
		return time.Minute
	}
	mean := load * s.takes.Seconds() / (2 * (1 - load))
	return s.takes + time.Duration(math.Log(100)*mean*1e9)
}

// knee returns the rate at which p99 equals most.
func (s server) knee(most time.Duration) float64 {
	low, high := 0.0, 1/s.takes.Seconds()
	for range 100 {
		if mid := (low + high) / 2; s.p99(mid) <= most {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

// played is one play of a server at a rate.
type played struct {
	server
	rate float64
	play int
}

func (p *played) Setup(context.Context) error { return nil }
func (p *played) Teardown() error             { return nil }

func (p *played) Run(_ context.Context, rec *cell.Recorder) error {
	rec.Begin()
	for start := time.Now(); !time.Now().After(start); { // A measurement takes time, be it the least.
	}
	rec.End()
	rec.Count(100, 100)
	wait := p.p99(p.rate)
	if p.play <= p.slowPlays {
		wait *= 2
	}
	if p.noise != nil {
		wait = time.Duration(float64(wait) * math.Exp(p.noise()))
	}
	for i := range 100 {
		rec.Latency("intended→handled", wait)
		lag := time.Microsecond
		if p.generator > 0 && p.rate > p.generator && i < 10 {
			lag = 5 * time.Millisecond
		}
		rec.Lag(lag, 0)
	}
	return nil
}

func (p *played) Check() error {
	if p.breaks > 0 && p.rate >= p.breaks {
		return fmt.Errorf("%w: event 7", lab.ErrLost)
	}
	return nil
}

// servers returns the comparison of named servers at a rate.
func servers(rate float64, all map[string]server) lab.Comparison {
	c := lab.Comparison{Family: "queue", Title: "servers"}
	var names []string
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		play := 0
		c.Cells = append(c.Cells, lab.Cell{
			Name:   "Queue",
			Labels: []lab.Label{{Key: "impl", Value: name}, {Key: "rate", Value: pace.Rate(rate).String()}},
			New: func() (lab.Workload, error) {
				play++
				return &played{server: all[name], rate: rate, play: play}, nil
			},
		})
	}
	return c
}

const ms = time.Millisecond

func p99(most time.Duration) stats.Objective {
	return stats.Objective{Unit: stats.UnitP99, Most: most}
}

func searchOf(all map[string]server, objectives ...stats.Objective) *experiment.Knee {
	return &experiment.Knee{
		Objectives: objectives, From: 200, To: 4e5,
		At: func(rate pace.Rate) (lab.Comparison, error) { return servers(float64(rate), all), nil },
	}
}

func search(t *testing.T, k *experiment.Knee, rounds int) (*lab.Outcome, []stats.Knee) {
	t.Helper()
	c, err := k.Comparison()
	if err != nil {
		t.Fatal(err)
	}
	o, err := lab.Run(t.Context(), []lab.Comparison{c}, lab.Options{Name: "knee", Rounds: rounds, Seed: 1, NoAA: true, IgnoreHost: true})
	if err != nil {
		t.Fatal(err)
	}
	return o, k.Knees(&o.Comparisons[0])
}

func byImpl(t *testing.T, knees []stats.Knee, impl string) stats.Knee {
	t.Helper()
	for _, k := range knees {
		if k.Impl == impl {
			return k
		}
	}
	t.Fatalf("no knee of %s", impl)
	return stats.Knee{}
}

func TestKneeBracket(t *testing.T) {
	all := map[string]server{
		"slow":   {takes: ms},
		"middle": {takes: 100 * time.Microsecond},
		"fast":   {takes: 3 * time.Microsecond},
	}
	for most, rounds := range map[time.Duration]int{3 * ms: 3, 20 * ms: 1} {
		o, knees := search(t, searchOf(all, p99(most)), rounds)
		if len(knees) != len(all) {
			t.Fatalf("%d knees of %d variants", len(knees), len(all))
		}
		for name, s := range all {
			k, want := byImpl(t, knees, name), s.knee(most)
			if k.Held > want || k.Failed <= want {
				t.Errorf("%s, %v: between %v and %v, want %v in it", name, most, k.Held, k.Failed, want)
			}
			if k.Failed > k.Held*1.05 {
				t.Errorf("%s, %v: from %v to %v exceeds 5 %%", name, most, k.Held, k.Failed)
			}
			if k.Limit != "latency" || k.Objective != p99(most) || k.Cell != "Queue/impl="+name {
				t.Errorf("%s: %+v", name, k)
			}
			if !slices.IsSortedFunc(k.Points, func(a, b stats.KneePoint) int { return int(a.Rate - b.Rate) }) {
				t.Errorf("%s: points out of order: %+v", name, k.Points)
			}
			for _, p := range k.Points {
				if p.Rounds != rounds || p.Holds != rounds && p.Holds != 0 || (p.Rate <= want) != (p.Holds == rounds) {
					t.Errorf("%s at %v: held in %d of %d rounds with the knee at %v", name, p.Rate, p.Holds, p.Rounds, want)
				}
				// Histograms keep three digits.
				if got := p.Latency[stats.UnitP99]; math.Abs(got-float64(s.p99(p.Rate))) > got/500 {
					t.Errorf("%s at %v: p99 %v, want %v", name, p.Rate, got, s.p99(p.Rate))
				}
			}
		}
		// log2(knee/From) doublings, and five halvings from a factor of two to 5 %.
		if n := len(o.Comparisons[0].Cells); n > 3*20 {
			t.Errorf("%d cells were played", n)
		}
	}
}

// TestKneeOfItself repeats the search for one noisy variant, with three rounds. The brackets of many
// pairs of repeats are disjoint. Their intervals overlap, and contain the true knee.
func TestKneeOfItself(t *testing.T) {
	const repeats = 20
	rng := rand.New(rand.NewPCG(15, 15))
	s := server{takes: 100 * time.Microsecond, noise: func() float64 { return 0.3 * rng.NormFloat64() }}
	var found []stats.Knee
	for range repeats {
		k := searchOf(map[string]server{"a": s}, p99(ms))
		k.From = 2000
		_, knees := search(t, k, 3)
		found = append(found, knees[0])
	}
	brackets, intervals, pairs, missed := 0, 0, 0, 0
	for i, k := range found {
		lo, hi := k.Interval()
		if want := s.knee(ms); want < lo || hi > 0 && want > hi {
			missed++
		}
		if lo > k.Held || hi > 0 && hi < k.Failed {
			t.Errorf("%v to %v lies within the bracket %v to %v", lo, hi, k.Held, k.Failed)
		}
		for _, other := range found[:i] {
			pairs++
			if k.Failed <= other.Held || other.Failed <= k.Held {
				brackets++
			}
			if from, to := other.Interval(); hi > 0 && hi <= from || to > 0 && to <= lo {
				intervals++
			}
		}
	}
	t.Logf("of %d pairs, %d brackets and %d intervals are disjoint; %d of %d intervals miss the knee", pairs, brackets, intervals, missed, repeats)
	if brackets < pairs/4 || intervals > pairs/20 || missed > repeats/10 {
		t.Errorf("of %d pairs, %d brackets and %d intervals are disjoint; %d of %d intervals miss the knee", pairs, brackets, intervals, missed, repeats)
	}
}

func TestKneeSeveralObjectives(t *testing.T) {
	all := map[string]server{"a": {takes: 100 * time.Microsecond}}
	_, knees := search(t, searchOf(all, p99(ms), stats.Objective{Unit: stats.UnitP50, Most: 5 * ms}), 1)
	if len(knees) != 2 {
		t.Fatalf("%d knees of two objectives", len(knees))
	}
	for i, most := range []time.Duration{ms, 5 * ms} {
		want := all["a"].knee(most)
		if k := knees[i]; k.Held > want || k.Failed <= want || k.Failed > k.Held*1.05 {
			t.Errorf("%+v: want %v", k, want)
		}
	}
	if len(knees[0].Points) != len(knees[1].Points) {
		t.Errorf("points are not shared: %d and %d", len(knees[0].Points), len(knees[1].Points))
	}
}

func TestKneeLimits(t *testing.T) {
	takes := 100 * time.Microsecond
	all := map[string]server{
		"generator": {takes: takes, generator: 3000},
		"loses":     {takes: takes, breaks: 1000},
		"instant":   {takes: time.Nanosecond},
		"hopeless":  {takes: 20 * ms},
	}
	_, knees := search(t, searchOf(all, p99(5*ms)), 1)
	for name, want := range map[string]struct {
		limit        string
		held, failed float64
	}{
		"generator": {limit: "generator"},
		"loses":     {"invariant", 800, 1600},
		"instant":   {"search", 4e5, 0},
		"hopeless":  {"latency", 0, 200},
	} {
		k := byImpl(t, knees, name)
		if k.Limit != want.limit || want.held+want.failed > 0 && (k.Held != want.held || k.Failed != want.failed) {
			t.Errorf("%s: held %v, failed %v, limit %q; want %+v", name, k.Held, k.Failed, k.Limit, want)
		}
	}
	k := byImpl(t, knees, "generator")
	if k.Held > 3000 || k.Failed <= 3000 || k.Failed > k.Held*1.05 {
		t.Errorf("generator: %v to %v", k.Held, k.Failed)
	}
	// A rate beyond the generator has no latency, and the cause is reported.
	for _, p := range k.Points {
		if late := p.Rate > 3000; late != (p.Verdict == "invalid: generator") || late != (p.Latency == nil) {
			t.Errorf("%+v", p)
		}
	}
}

// TestKneeMajority: a rate holds if more than half of its rounds hold.
func TestKneeMajority(t *testing.T) {
	// The first play is the warm-up.
	for plays, holds := range map[int]int{1: 3, 2: 2, 3: 1, 4: 0} {
		k := searchOf(map[string]server{"a": {takes: ms, slowPlays: plays}}, p99(2*ms))
		k.To = k.From
		_, knees := search(t, k, 3)
		want := 0.0
		if holds >= 2 {
			want = float64(k.From)
		}
		if got := knees[0]; got.Points[0].Holds != holds || got.Held != want {
			t.Errorf("%d slow plays: held %v, %d of %d rounds; want %v, %d", plays, got.Held, got.Points[0].Holds, got.Points[0].Rounds, want, holds)
		}
	}
}

// TestKneeInterrupted: an incomplete search reports the reason.
func TestKneeInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	k := searchOf(map[string]server{"a": {takes: ms}}, p99(3*ms))
	c, err := k.Comparison()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	o, err := lab.Run(ctx, []lab.Comparison{c}, lab.Options{Rounds: 1, Seed: 1, NoAA: true, IgnoreHost: true, Progress: func(p lab.Progress) {
		if n++; n == 6 {
			cancel()
		}
	}})
	if err != nil || !o.Interrupted {
		t.Fatal(o.Interrupted, err)
	}
	if got := k.Knees(&o.Comparisons[0])[0]; got.Limit != "time" || got.Held != 400 || got.Failed != 0 {
		t.Errorf("%+v", got)
	}
}

// TestKneeErrorInSearch: an error of At ends the search and is returned.
func TestKneeErrorInSearch(t *testing.T) {
	want := errors.New("too much to prepare")
	all := map[string]server{"a": {takes: ms}}
	k := searchOf(all, p99(3*ms))
	k.At = func(rate pace.Rate) (lab.Comparison, error) {
		if rate > 400 {
			return lab.Comparison{}, want
		}
		return servers(float64(rate), all), nil
	}
	c, err := k.Comparison()
	if err != nil {
		t.Fatal(err)
	}
	o, err := lab.Run(t.Context(), []lab.Comparison{c}, lab.Options{Rounds: 1, NoAA: true, IgnoreHost: true})
	if !errors.Is(err, want) {
		t.Fatal(err)
	}
	if got := k.Knees(&o.Comparisons[0])[0]; got.Held != 400 || got.Limit != "time" {
		t.Errorf("%+v", got)
	}
}
