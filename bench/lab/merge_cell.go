package lab

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"watchlab/bench/cell"
)

// mergedCell accumulates one cell over the shares.
type mergedCell struct {
	// comparison is the index of the comparison, and place the cell's index in it.
	comparison, place int
	result            CellResult
	rounds            map[int]*mergedRound // by number
	shares            int                  // number of shares so far
	verdicts          []shareVerdict       // other than valid
	lag               *cell.Lag            // worst lag of the invalid shares
}

// shareVerdict is a verdict with the index of its share.
type shareVerdict struct {
	share int
	Verdict
}

// mergedRound accumulates one round over the shares that have it.
type mergedRound struct {
	Round
	shares int // number of shares that have the round
	together
}

// fold adds shares to the cell.
func (c *mergedCell) fold(shares []pendingShare) error {
	parts := map[int][]cell.Result{}
	for _, s := range shares {
		found := &s.Outcome.Comparisons[c.comparison].Cells[c.place]
		c.shares++
		if found.Verdict.Status != Valid {
			c.verdicts = append(c.verdicts, shareVerdict{s.Index, found.Verdict})
		}
		if found.Verdict.Status == Invalid {
			c.lag = worstLag(c.lag, found.Lag)
		}
		for _, r := range found.Rounds {
			if r.Result.EventsIn == 0 || r.Result.Elapsed <= 0 {
				return fmt.Errorf("%w: share %d measured nothing in round %d of %s", ErrShares, s.Index, r.Round, found.BenchName())
			}
			parts[r.Round] = append(parts[r.Round], lift(r.Result))
			c.round(r).recordStart(s, startKey{c.comparison, found.BenchName(), r.Round})
		}
	}
	// An invalid cell shows no figures, so skip the sums.
	if slices.ContainsFunc(c.verdicts, func(v shareVerdict) bool { return v.Status == Invalid }) {
		c.rounds = map[int]*mergedRound{}
		return nil
	}
	for number, results := range parts {
		r := c.rounds[number]
		if r.shares > len(results) {
			results = append(results, r.Result)
		}
		var err error
		if r.Result, err = mergeResults(results); err != nil {
			return fmt.Errorf("%s, round %d: %w", c.result.BenchName(), number, err)
		}
	}
	return nil
}

// round adds a share's round to the count and the times.
func (c *mergedCell) round(r Round) *mergedRound {
	m := c.rounds[r.Round]
	if m == nil {
		m = &mergedRound{Round: Round{Round: r.Round, Place: r.Place, Started: r.Started}}
		c.rounds[r.Round] = m
	}
	m.shares++
	if r.Started.Before(m.Started) {
		m.Started = r.Started
	}
	m.Took = max(m.Took, r.Took)
	return m
}

// finish returns the merged cell.
func (c *mergedCell) finish(of Merged, headline cell.Boundary) CellResult {
	var rounds []Round
	for _, r := range c.rounds {
		if r.shares == c.shares {
			rounds = append(rounds, r.Round)
		}
	}
	slices.SortFunc(rounds, func(a, b Round) int { return a.Round - b.Round })
	var apart []string
	for _, r := range rounds {
		if reason := c.rounds[r.Round].apart(r.Result.Elapsed); reason != "" {
			apart = append(apart, reason)
		}
	}
	why := ""
	if len(apart) > 0 {
		why = fmt.Sprintf("not played at the same time in %d of %d rounds: %s", len(apart), len(rounds), apart[0])
	}
	result := c.result
	result.set(c.verdict(of, rounds, why), rounds, headline)
	if result.Verdict.Status == Invalid {
		result.Withheld = nil
		result.Lag = worstLag(c.lag, result.Lag)
	}
	return result
}

// verdict returns the worst of the verdicts on the shares and on the merged cell.
func (c *mergedCell) verdict(of Merged, rounds []Round, apart string) Verdict {
	var failed, blameless, unplayed, noisy []shareVerdict
	for _, v := range c.verdicts {
		switch {
		case v.Failed():
			failed = append(failed, v)
		case v.Status == Invalid:
			blameless = append(blameless, v)
		case v.Status == Unplayed:
			unplayed = append(unplayed, v)
		default:
			noisy = append(noisy, v)
		}
	}
	v := verdictOf(c.result.Labels, rounds)
	switch {
	case len(failed) > 0:
		v = Verdict{Invalid, causesOf(failed), shareDetails(failed, of.Of)}
	case len(of.Missing) > 0 && !of.Partial:
		return Verdict{Invalid, CauseShares, fmt.Sprintf("%s: missing %s", of, numbers(of.Missing))}
	case len(blameless) > 0:
		v = Verdict{Invalid, blameless[0].Cause, shareDetails(blameless, of.Of)}
	case len(unplayed) > 0:
		v = Verdict{Status: Unplayed, Detail: shareDetails(unplayed, of.Of)}
	case len(rounds) == 0:
		v.Detail = "no round was finished by all shares"
	case v.Status != Invalid && (apart != "" || len(noisy) > 0):
		v = Verdict{Status: Noisy, Detail: join("; ", apart, v.Detail, shareDetails(noisy, of.Of))}
	}
	if len(of.Missing) > 0 {
		v.Detail = join("; ", fmt.Sprintf("%s (missing %s)", of, numbers(of.Missing)), v.Detail)
	}
	return v
}

// join joins the parts that are not empty.
func join(separator string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), separator)
}

// causesOf joins the causes of several shares, in the order of the invariants.
func causesOf(verdicts []shareVerdict) Cause {
	var found, out []Cause
	for _, v := range verdicts {
		for c := range strings.SplitSeq(string(v.Cause), "+") {
			found = append(found, Cause(c))
		}
	}
	for _, c := range []Cause{CauseLost, CauseReordered, CauseDuplicated, CauseDiverged, CauseError} {
		if slices.Contains(found, c) {
			out = append(out, c)
		}
	}
	return joinCauses(out)
}

// shareDetails formats the first share's verdict and the indexes of the others; "" for
// none.
func shareDetails(verdicts []shareVerdict, of int) string {
	slices.SortFunc(verdicts, func(a, b shareVerdict) int { return a.share - b.share })
	var first string
	var others []int
	for i, v := range verdicts {
		if i == 0 {
			first = fmt.Sprintf("share %d/%d: %s", v.share, of, v.Verdict)
		} else {
			others = append(others, v.share)
		}
	}
	if len(others) > 0 {
		first += "; and in " + numbers(others)
	}
	return first
}

// numbers lists the indexes of shares, at most eight or nine of them.
func numbers(indexes []int) string {
	const most = 8
	if len(indexes) == 1 {
		return fmt.Sprintf("share %d", indexes[0])
	}
	rest := ""
	if n := len(indexes) - most; n > 1 {
		indexes, rest = indexes[:most], fmt.Sprintf(" and %d more", n)
	}
	return "shares " + strings.ReplaceAll(strings.Trim(fmt.Sprint(indexes), "[]"), " ", ", ") + rest
}

// together records whether shares began a play at the same time.
type together struct {
	common           int           // number of shares with a common start
	alone            []int         // shares without a common start
	absent           []int         // shares that a start did not wait for
	earliest, latest time.Duration // delays after the common start
	last             int           // share with the latest start
	played           []int         // all shares
}

// recordStart records the start of a share. A start without a cell applies to all cells of
// the round.
func (t *together) recordStart(s pendingShare, key startKey) {
	t.played = append(t.played, s.Index)
	start, ok := s.starts[key]
	if !ok {
		start, ok = s.starts[startKey{comparison: key.comparison, round: key.round}]
	}
	if !ok {
		t.alone = append(t.alone, s.Index)
		return
	}
	t.absent = append(t.absent, start.Absent...)
	if t.common == 0 || start.Late < t.earliest {
		t.earliest = start.Late
	}
	if t.common == 0 || start.Late > t.latest {
		t.latest, t.last = start.Late, s.Index
	}
	t.common++
}

// apart returns the reason why a play of this length did not begin at the same time in
// all shares; empty if it did. A single share always returns "".
func (t *together) apart(elapsed time.Duration) string {
	late := slices.DeleteFunc(slices.Clone(t.absent), func(i int) bool { return !slices.Contains(t.played, i) })
	slices.Sort(late)
	late = slices.Compact(late)
	slices.Sort(t.alone)
	between := t.latest - t.earliest
	switch {
	case len(t.played) == 1:
		return ""
	case t.common == 0:
		return "the shares did not wait for each other"
	case len(t.alone) > 0:
		return numbers(t.alone) + " had no start in common with the others"
	case float64(between) > MaxSpread*float64(elapsed):
		return fmt.Sprintf("share %d began %v after the first (allowed: %.0f %% of %v)", t.last, between.Round(time.Microsecond), MaxSpread*100, elapsed.Round(time.Microsecond))
	case len(late) > 0:
		return numbers(late) + " had not come when the others began"
	}
	return ""
}
