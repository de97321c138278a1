package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"watchlab/bench/lab"
	"watchlab/bench/pipeline"
	"watchlab/bench/stats"
	"watchlab/bench/sweep"
	"watchlab/loadgen/pace"
)

const (
	// defaultKneeRounds of a rate: the fewest that have a majority.
	defaultKneeRounds = 3
	// kneeEvents end the schedule of a round before its duration: the events of
	// all rates of a search are in memory at once.
	kneeEvents = 200_000
)

// kneeFlags are the flags of knee.
type kneeFlags struct {
	runFlags
	slo        string
	from, to   float64
	resolution string
	duration   time.Duration
}

func newKnee(args []string) *cobra.Command {
	f := kneeFlags{}
	cmd := &cobra.Command{
		Use:   "knee",
		Short: "Find the highest rate at which each variant holds a latency",
		Long: `knee plays a storm at one rate after the other, doubling it until the objective
isn't held and then halving the gap, and prints the highest rate that each variant
holds, with the latency at every rate that was tried. The variants are searched side
by side.

A rate is held where the quantile of the latency, from the time at which an event
was meant to be released, is within the objective in more than half of the rounds,
nothing was lost, and the generator kept its schedule. Where it didn't, the limit is
"generator": it is the machine's then, or the variant's that held the producer up.`,
		Example: `  # Up to which rate is the 99th percentile below a millisecond?
  watchlab knee --family deltafifo --delivery in-order --slo p99=1ms

  # Two objectives, in an informer whose handler takes 10 µs an event
  watchlab knee --family deltafifo --impl clientgo-realfifo-batch,ring --pipeline informer \
    --handler-cost 10us --slo p99=1ms,p99.9=5ms --out results/knee`,
		Args: noArgs,
		RunE: plays(args, f.plan),
	}
	f.add(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.slo, "slo", "p99=1ms", "what is to be held, each searched for by itself: QUANTILE=DURATION,…, with p50, p90, p99, p99.9 and max")
	fl.Float64Var(&f.from, "from", 1_000, "lowest rate, in events a second")
	fl.Float64Var(&f.to, "to", 1_000_000, "highest rate")
	fl.StringVar(&f.resolution, "resolution", "5%", "how far apart the rates may be between which the knee is found")
	fl.DurationVar(&f.duration, "duration", time.Second, fmt.Sprintf("how long a round's schedule is, or until %d events", kneeEvents))
	return cmd
}

// plan checks the flags and makes a search of each comparison.
func (f *kneeFlags) plan(cmd *cobra.Command) (*plan, error) {
	p, err := f.check(cmd)
	if err != nil {
		return nil, err
	}
	objectives, err := parseObjectives(f.slo)
	if err != nil {
		return nil, badFlag("slo", err)
	}
	resolution, err := parseShare(f.resolution)
	if err != nil {
		return nil, badFlag("resolution", err)
	}
	for _, r := range []struct {
		flag string
		rate float64
	}{{"from", f.from}, {"to", f.to}} {
		if _, err := pace.ParseRate(sweep.Rate(r.rate)); err != nil {
			return nil, badFlag(r.flag, err)
		}
	}
	switch {
	case f.to < f.from:
		return nil, badFlag("to", fmt.Errorf("%v is below --from %v", f.to, f.from))
	case f.duration <= 0:
		return nil, badFlag("duration", fmt.Errorf("%v is not above 0", f.duration))
	}
	if err := f.refuseLive(); err != nil {
		return nil, err
	}
	f.sweptFamily()
	spec, err := f.loaded(cmd)
	if err != nil {
		return nil, err
	}
	first, err := f.at(spec, f.from)
	if err != nil {
		return nil, err
	}
	var searches []*sweep.Knee
	for i := range first {
		k := &sweep.Knee{Objectives: objectives, From: f.from, To: f.to, Resolution: resolution}
		k.At = func(rate float64) (lab.Comparison, error) {
			if rate == f.from {
				return first[i], nil
			}
			all, err := f.at(spec, rate)
			if err != nil {
				return lab.Comparison{}, err
			}
			return all[i], nil
		}
		c, err := k.Comparison()
		if err != nil {
			return nil, usageError{err}
		}
		c.Title += ", knee for " + f.slo
		searches = append(searches, k)
		p.comparisons = append(p.comparisons, c)
	}
	p.name, p.noAA = "knee", true
	if p.rounds == 0 {
		p.rounds = defaultKneeRounds
	}
	p.finish = func(o *lab.Outcome) error {
		var errs []error
		for i, k := range searches {
			errs = append(errs, k.Err())
			o.Knees = append(o.Knees, k.Knees(&o.Comparisons[i])...)
		}
		return errors.Join(errs...)
	}
	return p, nil
}

// at returns the comparisons at a rate.
func (f *kneeFlags) at(spec pipeline.Config, rate float64) ([]lab.Comparison, error) {
	spec.Paces = []pace.Pace{pace.Rate(rate).Pace()}
	spec.Duration = min(f.duration, time.Duration(kneeEvents/rate*float64(time.Second)))
	return compare(spec)
}

// objectiveUnits are the quantiles that an objective can be of.
var objectiveUnits = []struct{ name, unit string }{
	{"p50", stats.UnitP50}, {"p90", stats.UnitP90}, {"p99", stats.UnitP99}, {"p99.9", stats.UnitP999}, {"max", stats.UnitMax},
}

// parseObjectives reads QUANTILE=DURATION,…
func parseObjectives(text string) ([]stats.Objective, error) {
	var out []stats.Objective
	for _, part := range strings.Split(text, ",") {
		name, value, ok := strings.Cut(part, "=")
		at := slices.IndexFunc(objectiveUnits, func(u struct{ name, unit string }) bool { return u.name == name })
		most, err := time.ParseDuration(value)
		if !ok || at < 0 || err != nil || most <= 0 {
			return nil, fmt.Errorf("%q is not QUANTILE=DURATION, such as p99=1ms (quantiles: p50, p90, p99, p99.9, max)", part)
		}
		o := stats.Objective{Unit: objectiveUnits[at].unit, Most: most}
		if slices.ContainsFunc(out, func(have stats.Objective) bool { return have.Unit == o.Unit }) {
			return nil, fmt.Errorf("%s stands there twice", name)
		}
		out = append(out, o)
	}
	return out, nil
}

// parseShare reads a percentage above 0, up to 100.
func parseShare(text string) (float64, error) {
	number, ok := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(v > 0) || v > 100 {
		return 0, fmt.Errorf("%q is not a percentage above 0, up to 100, such as 5%%", text)
	}
	return v / 100, nil
}
