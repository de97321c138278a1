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

// Knee is a search for the highest rate at which variants hold an objective.
//
// It begins at From, doubles the rate until the objective isn't held or To is
// reached, and then tries the geometric middle of the highest rate that was held
// and the lowest above that wasn't, until the two are no further apart than
// Resolution. That takes log2(knee/From) + log2(1/Resolution) steps or so, each
// of Rounds rounds for every variant that is not done.
//
// A rate is held where the verdict isn't invalid and the objective's quantile,
// from the intended time, is within it in more than half of the rounds. So the
// answer is a bracket, [stats.Knee].Held and Failed, not a point: latency near
// the knee is a matter of luck, and a search that is run again may end a step
// beside this one.
//
// A Knee is for one comparison and one goroutine.
type Knee struct {
	// Objectives that are each searched for; a rate that was tried for one counts
	// for all.
	Objectives []stats.Objective
	// From and To bound the rates, in events a second.
	From, To float64
	// Resolution is how far apart the ends of the bracket may be, as a share of
	// the lower one.
	Resolution float64
	// At returns the comparison with a cell of every variant at a rate. The label
	// "rate" of the cells is that rate, as [Rate] writes it.
	At func(rate float64) (lab.Comparison, error)

	// headline is the boundary that speaks for latency.
	headline cell.Boundary
	err      error
}

// Rate writes a rate as the label "rate" has it.
func Rate(rate float64) string { return strconv.FormatFloat(rate, 'f', -1, 64) }

// Comparison returns the comparison that the lab is to play. The error wraps
// [ErrSpec], or is At's.
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

// Err returns what ended the search before its time: an error of At.
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

// more returns the cells of the next step: the next rate of each variant whose
// search isn't over; none where all are.
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

// checkRates sees to it that cells can be told apart by their rate.
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

// tried is a rate with what was measured at it.
type tried struct {
	rate    float64
	cell    *lab.CellResult
	samples stats.Samples
}

// variantsOf sorts the cells by variant and rate. Those that have no rate are
// left out, as are repetitions.
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

// held reports whether the objective was, in the majority of rounds. A cell
// that is invalid has no samples.
func (t tried) held(o stats.Objective) bool { return 2*t.holds(o) > len(t.cell.Rounds) }

// bracket returns the highest point up to which all hold, and the next above; nil
// where there is none. A cell that was never played says nothing and is passed
// over.
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

// next returns the rate to try next; false where there is none.
func (k *Knee) next(v searched) (float64, bool) {
	for _, p := range v.points {
		// What broke an invariant isn't worth another rate, and what was not
		// played would not be played at another.
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

// between returns the rate to try in a bracket; false where it is narrow enough.
func (k *Knee) between(held, failed *tried) (float64, bool) {
	switch {
	case held == nil:
		// From didn't hold: there is nothing to look for.
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

// rounded keeps rates readable: three digits.
func rounded(v float64) float64 {
	text := strconv.FormatFloat(v, 'g', 3, 64)
	v, _ = strconv.ParseFloat(text, 64) // What was just written can be read.
	return v
}

// The limits of a knee that are not the cause of a verdict.
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

// quantileUnits are those of the headline latency.
var quantileUnits = map[string]bool{
	stats.UnitP50: true, stats.UnitP90: true, stats.UnitP99: true, stats.UnitP999: true, stats.UnitMax: true,
}

// limit says what stood in the way of higher rates.
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

// brokeInvariant reports whether a variant lost, reordered or duplicated
// something, or came to another end.
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
