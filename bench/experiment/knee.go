package experiment

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// Knee searches for the highest rate at which each variant meets an objective.
//
// The search starts at From and doubles the rate until the objective fails or the rate
// reaches To. Then it bisects between the highest rate that held and the lowest that
// failed, at their geometric mean, until the two are within Resolution. That takes about
// log2(knee/From) + log2(1/Resolution) steps. Each step plays Rounds rounds for each
// unfinished variant.
//
// A rate holds if the verdict is not invalid and more than half of the rounds meet the
// objective. A round meets it if the objective's quantile, from the intended time, is
// within the objective. The result is a bracket, [stats.Knee].Held and Failed, not a
// point: latency near the knee varies, and another search may end one step higher or
// lower.
//
// A Knee serves one comparison and is not safe for concurrent use.
type Knee struct {
	// Objectives are searched one by one; each played rate counts for all of them.
	Objectives []stats.Objective
	// From and To bound the rates, in events a second.
	From, To float64
	// Resolution is the largest allowed width of the bracket, relative to its lower end.
	Resolution float64
	// At returns the comparison with a cell for each variant at a rate. The cells' label
	// "rate" is that rate, formatted by [Rate].
	At func(rate float64) (lab.Comparison, error)

	// headline is the boundary of the objectives' latency.
	headline cell.Boundary
	// err is the first error of At; it ends the search.
	err error
}

// Rate formats a rate as the label "rate" does.
func Rate(rate float64) string { return strconv.FormatFloat(rate, 'f', -1, 64) }

// Comparison returns the comparison for the lab. The error wraps [ErrSpec] or is At's.
func (k *Knee) Comparison() (lab.Comparison, error) {
	switch {
	case len(k.Objectives) == 0:
		return lab.Comparison{}, fmt.Errorf("%w: no objective", ErrSpec)
	case !(k.From > 0) || math.IsInf(k.To, 0) || !(k.To >= k.From):
		return lab.Comparison{}, fmt.Errorf("%w: rates from %v to %v", ErrSpec, k.From, k.To)
	case !(k.Resolution > 0):
		return lab.Comparison{}, fmt.Errorf("%w: resolution %v", ErrSpec, k.Resolution)
	}
	c, err := k.At(k.From)
	if err != nil {
		return lab.Comparison{}, err
	}
	if err := checkRates(c.Cells, k.From); err != nil {
		return lab.Comparison{}, err
	}
	k.headline = c.Latency
	c.More = k.more
	return c, nil
}

// Err returns the error of At that ended the search early; nil for none.
func (k *Knee) Err() error { return k.err }

// Knees returns a knee for every variant and objective, from what the
// comparison measured.
func (k *Knee) Knees(c *lab.ComparisonResult) []stats.Knee {
	var knees []stats.Knee
	for _, v := range variantsOf(c.Cells, c.Latency) {
		for _, o := range k.Objectives {
			knees = append(knees, k.knee(v, o))
		}
	}
	return knees
}

// more returns the cells of the next step: the next rate of each unfinished variant;
// none when all are finished.
func (k *Knee) more(played []lab.CellResult) []lab.Cell {
	at := map[float64][]lab.Cell{}
	var next []lab.Cell
	for _, v := range variantsOf(played, k.headline) {
		rate, ok := k.next(v)
		if !ok || k.err != nil {
			continue
		}
		if at[rate] == nil {
			c, err := k.At(rate)
			if err == nil {
				err = checkRates(c.Cells, rate)
			}
			if err != nil {
				k.err = err
				continue
			}
			at[rate] = c.Cells
		}
		for _, cl := range at[rate] {
			r := lab.CellResult{Name: cl.Name, Labels: cl.Labels}
			if r.NameWithout("rate") == v.name {
				next = append(next, cl)
			}
		}
	}
	return next
}

// checkRates checks that each cell's label "rate" is the rate.
func checkRates(cells []lab.Cell, rate float64) error {
	for _, c := range cells {
		r := lab.CellResult{Name: c.Name, Labels: c.Labels}
		if got := r.Label("rate"); got != Rate(rate) {
			return fmt.Errorf("%w: cell %s is not at rate %s", ErrSpec, r.BenchName(), Rate(rate))
		}
	}
	return nil
}

// searched is one variant with the rates at which it was played, ascending.
type searched struct {
	name, impl string
	points     []tried
}

// tried is a played rate with its result.
type tried struct {
	rate    float64
	cell    *lab.CellResult
	samples stats.Samples
}

// variantsOf groups the cells by variant and sorts them by rate. It leaves out cells
// without a rate and A/A pairs.
func variantsOf(cells []lab.CellResult, headline cell.Boundary) []searched {
	var all []searched
	for i := range cells {
		c := &cells[i]
		text, paced := c.Rate()
		rate, err := strconv.ParseFloat(text, 64)
		if !paced || err != nil || c.Repeats != "" {
			continue
		}
		name := c.NameWithout("rate")
		at := slices.IndexFunc(all, func(v searched) bool { return v.name == name })
		if at < 0 {
			at = len(all)
			all = append(all, searched{name: name, impl: c.Impl()})
		}
		all[at].points = append(all[at].points, tried{rate: rate, cell: c, samples: c.Samples(headline)})
	}
	for _, v := range all {
		slices.SortFunc(v.points, func(a, b tried) int {
			if a.rate < b.rate {
				return -1
			}
			return 1
		})
	}
	return all
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

// held reports whether the objective held in the majority of rounds. An invalid cell has
// no samples.
func (t tried) held(o stats.Objective) bool { return 2*t.holds(o) > len(t.cell.Rounds) }

// bracket returns the highest point up to which all points hold, and the next point
// above; nil for none. It skips cells that were never played.
func bracket(points []tried, o stats.Objective) (held, failed *tried) {
	for i := range points {
		p := &points[i]
		switch {
		case p.cell.Verdict.Status == lab.Unplayed:
		case !p.held(o):
			return held, p
		default:
			held = p
		}
	}
	return held, nil
}

// next returns the next rate of a variant; false if the search is finished.
func (k *Knee) next(v searched) (float64, bool) {
	for _, p := range v.points {
		// A broken invariant ends the search. A cell that could not be played at this
		// rate cannot be played at another.
		if p.cell.Verdict.Status == lab.Unplayed || brokeInvariant(p.cell.Verdict) {
			return 0, false
		}
	}
	for _, o := range k.Objectives {
		held, failed := bracket(v.points, o)
		if rate, ok := k.between(held, failed); ok {
			return rate, true
		}
	}
	return 0, false
}

// between returns the next rate within a bracket; false if the bracket is within
// Resolution.
func (k *Knee) between(held, failed *tried) (float64, bool) {
	switch {
	case held == nil:
		// From failed, so there is no bracket.
		return 0, false
	case failed == nil:
		return min(2*held.rate, k.To), held.rate < k.To
	}
	if failed.rate <= held.rate*(1+k.Resolution) {
		return 0, false
	}
	middle := rounded(math.Sqrt(held.rate * failed.rate))
	return middle, middle > held.rate && middle < failed.rate
}

// rounded rounds to three significant digits, for readable labels.
func rounded(v float64) float64 {
	text := strconv.FormatFloat(v, 'g', 3, 64)
	v, _ = strconv.ParseFloat(text, 64) // What was just written can be read.
	return v
}

// The limits of a knee other than a verdict's cause.
const (
	limitLatency   = "latency"
	limitInvariant = "invariant"
	limitSearch    = "search"
	limitTime      = "time"
)

func (k *Knee) knee(v searched, o stats.Objective) stats.Knee {
	n := stats.Knee{Cell: v.name, Impl: v.impl, Objective: o}
	for _, p := range v.points {
		point := stats.KneePoint{Rate: p.rate, Rounds: len(p.cell.Rounds), Holds: p.holds(o)}
		for unit, s := range p.cell.Medians {
			if quantileUnits[unit] {
				if point.Latency == nil {
					point.Latency = map[string]float64{}
				}
				point.Latency[unit] = s.Median
			}
		}
		if s := p.cell.Verdict.Status; s == lab.Invalid || s == lab.Unplayed {
			point.Verdict = p.cell.Verdict.Short()
		}
		n.Points = append(n.Points, point)
	}
	held, failed := bracket(v.points, o)
	if held != nil {
		n.Held = held.rate
	}
	if failed != nil {
		n.Failed = failed.rate
	}
	n.Limit = k.limit(v, held, failed)
	return n
}

// quantileUnits are the units of the headline latency.
var quantileUnits = map[string]bool{
	stats.UnitP50: true, stats.UnitP90: true, stats.UnitP99: true, stats.UnitP999: true, stats.UnitMax: true,
}

// limit describes what prevents higher rates.
func (k *Knee) limit(v searched, held, failed *tried) string {
	for _, p := range v.points {
		if brokeInvariant(p.cell.Verdict) {
			return limitInvariant
		}
	}
	if _, open := k.between(held, failed); open || held == nil && failed == nil {
		return limitTime
	}
	switch {
	case failed == nil:
		return limitSearch
	case failed.cell.Verdict.Status == lab.Invalid:
		return string(failed.cell.Verdict.Cause)
	}
	return limitLatency
}

// brokeInvariant reports whether a variant lost, reordered or duplicated events, or
// ended in another state.
func brokeInvariant(v lab.Verdict) bool {
	if v.Status != lab.Invalid {
		return false
	}
	for _, c := range []lab.Cause{lab.CauseLost, lab.CauseReordered, lab.CauseDuplicated, lab.CauseDiverged} {
		if slices.Contains(strings.Split(string(v.Cause), "+"), string(c)) {
			return true
		}
	}
	return false
}
