package lab

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"watchlab/bench/cell"
)

type mergedCell struct {
	comparison, place int // index of the comparison, and of the cell in it
	result            *CellResult
	rounds            map[int]*mergedRound // by number
	verdicts          []shareVerdict       // other than valid
	lag               *cell.Lag            // worst lag of the invalid shares
}

type shareVerdict struct {
	share int
	Verdict
}

// mergedRound accumulates one round over the shares that have it.
type mergedRound struct {
	Round
	starts []shareStart
}

// shareStart describes how a share began a round; without a common start, it has no Cell.
type shareStart struct {
	share int
	Start
}

// start returns the start of a play.
func (s *Share) start(comparison int, cell string, round int) shareStart {
	for _, st := range s.Starts {
		if st.Comparison == comparison && st.Round == round && st.Cell == cell {
			return shareStart{s.Index, st}
		}
	}
	return shareStart{share: s.Index}
}

func (c *mergedCell) fold(shares []*Share) error {
	parts := map[int][]cell.Result{}
	for _, s := range shares {
		found := &s.Outcome.Comparisons[c.comparison].Cells[c.place]
		name := found.BenchName()
		if found.Verdict.Status != Valid {
			c.verdicts = append(c.verdicts, shareVerdict{s.Index, found.Verdict})
		}
		if found.Verdict.Status == Invalid {
			c.lag = worstLag(c.lag, found.Lag)
		}
		for _, r := range found.Rounds {
			if r.Result.EventsIn == 0 || r.Result.Elapsed <= 0 {
				return fmt.Errorf("%w: share %d measured nothing in round %d of %s", ErrShares, s.Index, r.Round, name)
			}
			m := c.rounds[r.Round]
			switch {
			case m == nil:
				m = &mergedRound{Round: Round{Round: r.Round, Process: r.Process, Place: r.Place, Started: r.Started}}
				c.rounds[r.Round] = m
			case parts[r.Round] == nil:
				parts[r.Round] = []cell.Result{m.Result} // the sum of the earlier shares
			}
			parts[r.Round] = append(parts[r.Round], r.Result)
			m.starts = append(m.starts, s.start(c.comparison, name, r.Round))
			if r.Started.Before(m.Started) {
				m.Started = r.Started
			}
			m.Took = max(m.Took, r.Took)
		}
	}
	// An invalid cell shows no figures, so skip the sums.
	if slices.ContainsFunc(c.verdicts, func(v shareVerdict) bool { return v.Status == Invalid }) {
		c.rounds = map[int]*mergedRound{}
		return nil
	}
	for number, results := range parts {
		var err error
		if c.rounds[number].Result, err = mergeResults(results); err != nil {
			return fmt.Errorf("%s, round %d: %w", c.result.BenchName(), number, err)
		}
	}
	return nil
}

func (c *mergedCell) finish(of Merged) {
	var rounds []Round
	var apart []string
	for _, number := range slices.Sorted(maps.Keys(c.rounds)) {
		r := c.rounds[number]
		if len(r.starts) < len(of.Shares) {
			continue
		}
		rounds = append(rounds, r.Round)
		if reason := r.apart(); reason != "" {
			apart = append(apart, reason)
		}
	}
	why := ""
	if len(apart) > 0 {
		why = fmt.Sprintf("not played at the same time in %d of %d rounds: %s", len(apart), len(rounds), apart[0])
	}
	c.result.set(c.verdict(of, rounds, why), rounds, results(rounds))
	if c.result.Verdict.Status == Invalid {
		c.result.Withheld = nil
		c.result.Lag = worstLag(c.lag, c.result.Lag)
	}
}

// weight orders verdicts other than valid: the worst is the heaviest.
func (v Verdict) weight() int {
	switch {
	case v.Failed():
		return 3
	case v.Status == Invalid:
		return 2
	case v.Status == Unplayed:
		return 1
	}
	return 0
}

func (c *mergedCell) verdict(of Merged, rounds []Round, apart string) Verdict {
	worst := -1
	for _, v := range c.verdicts {
		worst = max(worst, v.weight())
	}
	bad := slices.DeleteFunc(slices.Clone(c.verdicts), func(v shareVerdict) bool { return v.weight() < worst })
	detail := shareDetails(bad, of.Of)
	v := c.result.verdictOf(rounds)
	switch {
	case worst >= 2:
		var causes []string
		for _, b := range bad {
			causes = append(causes, strings.Split(string(b.Cause), "+")...)
		}
		order := func(cause string) uint { // that of others is the largest
			return uint(slices.IndexFunc(Invariants, func(e error) bool { return e.Error() == cause }))
		}
		slices.SortFunc(causes, func(a, b string) int { return cmp.Or(cmp.Compare(order(a), order(b)), cmp.Compare(a, b)) })
		v = Verdict{Invalid, Cause(strings.Join(slices.Compact(causes), "+")), detail}
	case worst == 1:
		v = Verdict{Status: Unplayed, Detail: detail}
	case len(rounds) == 0:
		v.Detail = "no round was finished by all shares"
	case v.Status != Invalid && (apart != "" || worst == 0):
		v = Verdict{Status: Noisy, Detail: join(apart, v.Detail, detail)}
	}
	if len(of.Missing) > 0 {
		v.Detail = join(fmt.Sprintf("%s (missing %s)", of, ShareNumbers(of.Missing)), v.Detail)
	}
	return v
}

func join(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "; ")
}

// shareDetails formats the first share's verdict and the indexes of the others; "" for none.
func shareDetails(verdicts []shareVerdict, of int) string {
	if len(verdicts) == 0 {
		return ""
	}
	first := fmt.Sprintf("share %d/%d: %s", verdicts[0].share, of, verdicts[0].Verdict)
	var others []int
	for _, v := range verdicts[1:] {
		others = append(others, v.share)
	}
	if len(others) > 0 {
		first += "; and in " + ShareNumbers(others)
	}
	return first
}

// ShareNumbers lists the indexes of shares, at most eight or nine of them.
func ShareNumbers(indexes []int) string {
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

// apart returns the reason why the round did not begin at the same time in all shares;
// empty if it did. A single share always returns "".
func (r *mergedRound) apart() string {
	var alone []int // without a common start, or later than the others waited
	for _, s := range r.starts {
		if s.Cell == "" {
			alone = append(alone, s.share)
		}
		for _, i := range s.Absent {
			if slices.ContainsFunc(r.starts, func(s shareStart) bool { return s.share == i }) {
				alone = append(alone, i)
			}
		}
	}
	slices.Sort(alone)
	alone = slices.Compact(alone)
	byLate := func(a, b shareStart) int { return cmp.Compare(a.Late, b.Late) }
	last := slices.MaxFunc(r.starts, byLate)
	between, elapsed := last.Late-slices.MinFunc(r.starts, byLate).Late, r.Result.Elapsed
	switch {
	case len(r.starts) == 1:
		return ""
	case len(alone) == len(r.starts):
		return "the shares did not wait for each other"
	case len(alone) > 0:
		return ShareNumbers(alone) + " had no start in common with the others"
	case float64(between) > MaxSpread*float64(elapsed):
		return fmt.Sprintf("share %d began %v after the first (allowed: %.0f %% of %v)", last.share, between.Round(time.Microsecond), MaxSpread*100, elapsed.Round(time.Microsecond))
	}
	return ""
}
