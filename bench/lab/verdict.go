package lab

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"watchlab/bench/cell"
	"watchlab/bench/stats"
)

// The bounds of a verdict.
const (
	// MaxSpread is the largest spread of the rounds' events/s: interquartile range over
	// median ([stats.Summary].Spread).
	MaxSpread = 0.10
	// MaxLateShare is the largest share of a paced cell's releases that may exceed
	// their budget ([cell.Lag].Budget) in the median round.
	MaxLateShare = 0.01
	// MaxSteal is the largest share of CPU time that the host may take in the median
	// round ([cell.Host].StealShare). It is half of MaxSpread: more steal would look
	// like a slower variant.
	MaxSteal = 0.05
	// MaxThrottled is the same for the time that the CPU quota throttles the process.
	MaxThrottled = 0.01
)

// failure is the verdict on a failed cell: the invariants that err wraps, or [CauseError].
func failure(err error) Verdict {
	if f, ok := errors.AsType[*failedPlay](err); ok {
		return f.Verdict
	}
	var broken []string
	for _, inv := range Invariants {
		if errors.Is(err, inv) {
			broken = append(broken, inv.Error())
		}
	}
	cause := Cause(cmp.Or(strings.Join(broken, "+"), string(CauseError)))
	// An error that only repeats the cause adds no detail.
	detail := strings.TrimPrefix(OneLine(Redact(err.Error())), string(cause))
	return Verdict{Status: Invalid, Cause: cause, Detail: strings.TrimPrefix(detail, ": ")}
}

// OneLine joins the lines of errors.Join.
func OneLine(s string) string {
	lines := strings.FieldsFunc(s, func(c rune) bool { return c == '\n' || c == '\r' })
	for i, l := range lines {
		lines[i] = strings.Join(strings.Fields(l), " ")
	}
	return strings.Join(lines, "; ")
}

// verdictOf returns the verdict on a cell without a failure, from its finished rounds.
func (c CellResult) verdictOf(rounds []Round) Verdict {
	if len(rounds) == 0 {
		return Verdict{Status: Unplayed, Detail: "the run ended before it finished a round"}
	}
	// Check the host first: throttling and steal also delay the generator.
	cause, detail := hostProblem(rounds, c.IgnoreHost)
	if cause == "" {
		if rate, paced := c.Rate(); paced {
			cause, detail = generatorProblem(rate, rounds)
		}
	}
	if cause != "" {
		return Verdict{Status: Invalid, Cause: cause, Detail: detail}
	}
	var perSecond []float64
	of := "rounds"
	for _, group := range c.replicates(rounds) {
		var same []float64
		for _, r := range group {
			same = append(same, r.Result.EventsPerSecond)
		}
		perSecond = append(perSecond, stats.LogMean(same))
	}
	if len(perSecond) < len(rounds) {
		of = "processes"
	}
	if s := stats.Summarize(perSecond); s.Spread != nil && *s.Spread > MaxSpread {
		return Verdict{Status: Noisy, Detail: fmt.Sprintf("events/s of the %s lie %.0f %% apart (allowed: %.0f %%)", of, *s.Spread*100, MaxSpread*100)}
	}
	return Verdict{Status: Valid}
}

// hostProblem returns a cause and its detail if machine or limits disturbed the rounds. ignored omits
// what the machine took.
func hostProblem(rounds []Round, ignored bool) (Cause, string) {
	var steal, throttled []float64
	limited := 0
	for _, r := range rounds {
		h := r.Result.Host
		steal = append(steal, h.StealShare)
		throttled = append(throttled, h.Throttled.Seconds()/r.Result.Elapsed.Seconds())
		if h.GCLimited {
			limited++
		}
	}
	slices.Sort(steal)
	slices.Sort(throttled)
	middle := len(rounds) / 2 // of an even number the worse
	switch {
	case !ignored && steal[middle] > MaxSteal:
		return CauseSteal, fmt.Sprintf("the host gave %.1f %% of the machine's CPU time to others in the median round (allowed: %.0f %%)", steal[middle]*100, MaxSteal*100)
	case !ignored && throttled[middle] > MaxThrottled:
		return CauseThrottled, fmt.Sprintf("the control group was held back for its CPU quota for %.1f %% of the time in the median round (allowed: %.0f %%)", throttled[middle]*100, MaxThrottled*100)
	case 2*limited >= len(rounds):
		return CauseGCLimit, fmt.Sprintf("the heap was at its limit and the collector's limiter came into force in %d of %d rounds", limited, len(rounds))
	}
	return "", ""
}

// generatorProblem returns a cause and its detail if the generator missed its schedule.
func generatorProblem(rate string, rounds []Round) (Cause, string) {
	if slices.ContainsFunc(rounds, func(r Round) bool { return r.Result.Lag == nil }) {
		return CauseGenerator, "no release was reported, so the pace is unknown"
	}
	lag := medianLag(rounds)
	if lag.LateShare <= MaxLateShare {
		return "", ""
	}
	detail := fmt.Sprintf("at rate %s, %.1f %% of the releases were more than %v late in the median round (allowed: %.0f %%)",
		rate, lag.LateShare*100, lag.Budget, MaxLateShare*100)
	if lag.Missed > 0 {
		detail += fmt.Sprintf("; %d of %d had not been released when the schedule was over", lag.Missed, lag.Count)
	}
	return CauseGenerator, detail
}

// medianLag returns the lag of the median round by the share of late releases, of two
// the worse; nil if no round has a lag.
func medianLag(rounds []Round) *cell.Lag {
	var lags []*cell.Lag
	for _, r := range rounds {
		if r.Result.Lag != nil {
			lags = append(lags, r.Result.Lag)
		}
	}
	if len(lags) == 0 {
		return nil
	}
	slices.SortStableFunc(lags, func(a, b *cell.Lag) int { return cmp.Compare(a.LateShare, b.LateShare) })
	return lags[len(lags)/2]
}
