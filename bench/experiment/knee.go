package experiment

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"watchlab/bench/lab"
	"watchlab/bench/pipeline"
	"watchlab/bench/stats"
	"watchlab/loadgen/manifest"
	"watchlab/loadgen/pace"
)

// kneeEvents bounds the events, and so the schedule, of a round: all rates are in memory at once.
const kneeEvents = 200_000

// resolution is the largest allowed width of a bracket, relative to its lower end.
const resolution = 0.05

// Knee searches for the highest rate at which each variant meets an objective.
//
// The search starts at From and doubles the rate until the objective fails or the rate reaches To.
// Then it bisects between the highest rate that held and the lowest that failed, at their geometric
// mean, until the two are within resolution. That takes about log2(knee/From) + log2(1/resolution)
// steps. Each step plays Rounds rounds for each unfinished variant.
//
// A rate holds if the verdict is not invalid and more than half of the rounds meet the objective. A
// round meets it if the objective's quantile, from the intended time, is within the objective. The
// result is a bracket, [stats.Knee].Held and Failed, not a point: latency near the knee varies, and
// another search may end higher or lower. [stats.Knee.Interval] says how far.
type Knee struct {
	Objectives []stats.Objective // searched one by one; each played rate counts for all of them
	From, To   pace.Rate         // bounds of the rates
	// At returns the comparison with a cell for each variant at a rate, their label "rate".
	At func(pace.Rate) (lab.Comparison, error)
}

// Comparison returns the comparison for the lab.
func (k *Knee) Comparison() (lab.Comparison, error) {
	c, err := k.At(k.From)
	c.NextCells = func(played []lab.CellResult) ([]lab.Cell, error) { return k.more(searchedOf(played)) }
	return c, err
}

// Knees returns a knee for every variant and objective.
func (k *Knee) Knees(c *lab.ComparisonResult) []stats.Knee {
	var knees []stats.Knee
	for _, v := range searchedOf(c.Cells) {
		for _, o := range k.Objectives {
			knees = append(knees, k.knee(v, o))
		}
	}
	return knees
}

// more returns the cells of the next step: the next rate of each unfinished variant.
func (k *Knee) more(variants []searched) ([]lab.Cell, error) {
	at := map[pace.Rate][]lab.Cell{}
	var next []lab.Cell
	for _, v := range variants {
		rate, ok := k.next(v)
		if !ok {
			continue
		}
		if at[rate] == nil {
			c, err := k.At(rate)
			if err != nil {
				return nil, err
			}
			at[rate] = c.Cells
		}
		for _, cl := range at[rate] {
			if cl.NameExcept("rate") == v.name {
				next = append(next, cl)
			}
		}
	}
	return next, nil
}

// searched is one variant with the rates at which it was played, ascending.
type searched struct {
	name, impl string
	points     []tried
}

// tried is a played rate with its result.
type tried struct {
	rate    pace.Rate
	cell    *lab.CellResult
	samples stats.Samples
}

// searchedOf groups the cells with a rate by variant, without A/A pairs.
func searchedOf(cells []lab.CellResult) []searched {
	var all []searched
	for _, group := range groups(cells, "rate") {
		v := searched{name: group[0].NameExcept("rate"), impl: group[0].Impl()}
		for _, c := range group {
			text, paced := c.Rate()
			if rate, err := strconv.ParseFloat(text, 64); paced && err == nil {
				v.points = append(v.points, tried{rate: pace.Rate(rate), cell: c, samples: c.Samples()})
			}
		}
		slices.SortFunc(v.points, func(a, b tried) int { return cmp.Compare(a.rate, b.rate) })
		if len(v.points) > 0 {
			all = append(all, v)
		}
	}
	return all
}

// broken reports whether a variant broke an invariant.
func (v searched) broken() bool {
	return slices.ContainsFunc(v.points, func(p tried) bool {
		return p.cell.Verdict.Failed() && p.cell.Verdict.Cause != lab.CauseError
	})
}

// holds counts the rounds in which a point was within the objective.
func (t tried) holds(o stats.Objective) int {
	n := 0
	for _, v := range t.samples[o.Unit] {
		if v <= float64(o.Most.Nanoseconds()) {
			n++
		}
	}
	return n
}

// bracket returns the highest point up to which all points hold in the majority of their rounds,
// and the next point above; nil for none. An invalid cell has no samples, so it does not hold.
// Cells that were never played do not count.
func bracket(points []tried, o stats.Objective) (held, failed *tried) {
	for i := range points {
		p := &points[i]
		switch {
		case p.cell.Verdict.Status == lab.Unplayed:
		case 2*p.holds(o) <= len(p.cell.Rounds):
			return held, p
		default:
			held = p
		}
	}
	return held, nil
}

// next returns the next rate of a variant; false if the search is finished. A cell that
// breaks an invariant or cannot be played at one rate ends it.
func (k *Knee) next(v searched) (pace.Rate, bool) {
	if v.broken() || slices.ContainsFunc(v.points, func(p tried) bool { return p.cell.Verdict.Status == lab.Unplayed }) {
		return 0, false
	}
	for _, o := range k.Objectives {
		if rate, ok := k.between(bracket(v.points, o)); ok {
			return rate, true
		}
	}
	return 0, false
}

// between returns the next rate; false if the bracket is within resolution, or if From failed.
func (k *Knee) between(held, failed *tried) (pace.Rate, bool) {
	switch {
	case held == nil:
		return 0, false
	case failed == nil:
		return min(2*held.rate, k.To), held.rate < k.To
	case float64(failed.rate) <= float64(held.rate)*(1+resolution):
		return 0, false
	}
	// Three significant digits, for readable labels.
	text := strconv.FormatFloat(math.Sqrt(float64(held.rate*failed.rate)), 'g', 3, 64)
	middle, err := strconv.ParseFloat(text, 64)
	rate := pace.Rate(middle)
	return rate, err == nil && rate > held.rate && rate < failed.rate
}

func (k *Knee) knee(v searched, o stats.Objective) stats.Knee {
	held, failed := bracket(v.points, o)
	n := stats.Knee{Cell: v.name, Impl: v.impl, Objective: o, Limit: k.limit(v, held, failed)}
	if held != nil {
		n.Held = float64(held.rate)
	}
	if failed != nil {
		n.Failed = float64(failed.rate)
	}
	for _, p := range v.points {
		point := stats.KneePoint{Rate: float64(p.rate), Rounds: len(p.cell.Rounds), Holds: p.holds(o)}
		for _, q := range quantiles {
			if s, ok := p.cell.Medians[q.unit]; ok {
				if point.Latency == nil {
					point.Latency = map[string]float64{}
				}
				point.Latency[q.unit] = s.Median
			}
		}
		if s := p.cell.Verdict.Status; s == lab.Invalid || s == lab.Unplayed {
			point.Verdict = p.cell.Verdict.Short()
		}
		n.Points = append(n.Points, point)
	}
	return n
}

// limit describes what prevents higher rates.
func (k *Knee) limit(v searched, held, failed *tried) string {
	_, open := k.between(held, failed)
	switch {
	case v.broken():
		return "invariant"
	case open || held == nil && failed == nil:
		return "time"
	case failed == nil:
		return "search"
	case failed.cell.Verdict.Status == lab.Invalid:
		return string(failed.cell.Verdict.Cause)
	}
	return "latency"
}

// knee returns the search of a Spec with its defaults, without At.
func (s *Spec) knee() (Knee, error) {
	const in = "search.knee."
	spec := s.Search.Knee
	k := Knee{From: pace.Rate(spec.From), To: pace.Rate(spec.To)}
	var err error
	if k.Objectives, err = parseObjectives(spec.SLO); err != nil {
		return k, manifest.BadField(in+"slo", err)
	}
	for i, rate := range []pace.Rate{k.From, k.To} {
		if _, err := pace.Parse(rate.String()); err != nil {
			return k, manifest.Bad(in+[]string{"from", "to"}[i], "%v is no rate (allowed: events per second from 0.001 to 1000000000)", rate)
		}
	}
	if k.To < k.From {
		return k, manifest.Bad(in+"to", "%v is below --from %v", spec.To, spec.From)
	}
	return k, nil
}

func (p *planner) planKnee(plan *Plan) error {
	k, err := plan.Spec.knee()
	if err != nil {
		return err
	}
	config, err := p.config(plan.Spec)
	if err != nil {
		return err
	}
	first, err := compare(atRate(config, k.From))
	if err != nil {
		return err
	}
	for i := range first {
		k.At = func(rate pace.Rate) (lab.Comparison, error) {
			if rate == k.From {
				return first[i], nil
			}
			all, err := compare(atRate(config, rate))
			if err != nil {
				return lab.Comparison{}, err
			}
			return all[i], nil
		}
		search := k
		c, err := search.Comparison()
		if err != nil {
			return err
		}
		c.Title += ", knee for " + plan.Spec.Search.Knee.SLO
		plan.Comparisons = append(plan.Comparisons, c)
	}
	plan.objectives = k.Objectives
	plan.finish = func(o *lab.Outcome) {
		for i := range o.Comparisons {
			o.Knees = append(o.Knees, k.Knees(&o.Comparisons[i])...)
		}
	}
	return nil
}

// atRate returns the config at one rate, with at most kneeEvents events.
func atRate(c pipeline.Config, rate pace.Rate) pipeline.Config {
	c.Paces = []pace.Pace{rate.Pace()}
	c.Duration = min(c.Duration, time.Duration(kneeEvents/float64(rate)*float64(time.Second)))
	return c
}

// quantiles are the allowed quantiles of an objective.
var quantiles = []struct{ name, unit string }{
	{"p50", stats.UnitP50}, {"p90", stats.UnitP90}, {"p99", stats.UnitP99}, {"p99.9", stats.UnitP999}, {"max", stats.UnitMax},
}

// parseObjectives reads QUANTILE=DURATION,…
func parseObjectives(text string) ([]stats.Objective, error) {
	var out []stats.Objective
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		at := slices.IndexFunc(quantiles, func(q struct{ name, unit string }) bool { return q.name == name })
		most, err := time.ParseDuration(value)
		if at < 0 || err != nil || most <= 0 {
			return nil, fmt.Errorf("%q is not QUANTILE=DURATION, such as p99=1ms (quantiles: p50, p90, p99, p99.9, max)", part)
		}
		o := stats.Objective{Unit: quantiles[at].unit, Most: most}
		if slices.ContainsFunc(out, func(have stats.Objective) bool { return have.Unit == o.Unit }) {
			return nil, fmt.Errorf("%s is named twice", name)
		}
		out = append(out, o)
	}
	return out, nil
}
