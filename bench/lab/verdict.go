package lab

import (
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
	// MaxThrottled is the largest share of time that the CPU quota may throttle the
	// process in the median round.
	MaxThrottled = 0.01
)

// invariants are the invariants that broken checks in the error of a Check, in this
// order.
var invariants = []struct {
	err   error
	cause Cause
}{
	{ErrLost, CauseLost},
	{ErrReordered, CauseReordered},
	{ErrDuplicated, CauseDuplicated},
	{ErrDiverged, CauseDiverged},
}

// broken is the verdict on a failed cell: the invariants that err wraps, or
// [CauseError].
func broken(err error) Verdict {
	var causes []string
	for _, inv := range invariants {
		if errors.Is(err, inv.err) {
			causes = append(causes, string(inv.cause))
		}
	}
	cause := CauseError
	if len(causes) > 0 {
		cause = Cause(strings.Join(causes, "+"))
	}
	// An error that only repeats the cause adds no detail.
	detail := strings.TrimPrefix(oneLine(err.Error()), string(cause))
	return Verdict{Status: Invalid, Cause: cause, Detail: strings.TrimPrefix(detail, ": ")}
}

// oneLine joins the lines of errors.Join.
func oneLine(s string) string {
	lines := strings.FieldsFunc(s, func(c rune) bool { return c == '\n' || c == '\r' })
	for i := range lines {
		lines[i] = strings.Join(strings.Fields(lines[i]), " ")
	}
	return strings.Join(lines, "; ")
}

// judge returns the verdict on a cell without a failure, from its finished rounds.
func judge(labels []Label, rounds []Round) Verdict {
	if len(rounds) == 0 {
		return Verdict{Status: Unplayed, Detail: "the run ended before it finished a round"}
	}
	// Check the host first: throttling and steal also delay the generator.
	if v, ok := judgeHost(rounds); !ok {
		return v
	}
	if v, ok := judgeGenerator(labels, rounds); !ok {
		return v
	}
	var perSecond []float64
	for _, r := range rounds {
		perSecond = append(perSecond, r.Result.EventsPerSecond)
	}
	if s := stats.Summarize(perSecond); s.Spread != nil && *s.Spread > MaxSpread {
		return Verdict{Status: Noisy, Detail: fmt.Sprintf("events/s of the rounds lie %.0f %% apart (allowed: %.0f %%)", *s.Spread*100, MaxSpread*100)}
	}
	return Verdict{Status: Valid}
}

// judgeHost returns false and a verdict if the machine or the process's limits
// disturbed the measurement.
func judgeHost(rounds []Round) (Verdict, bool) {
	median := func(of func(cell.Result) float64) float64 {
		values := make([]float64, 0, len(rounds))
		for _, r := range rounds {
			values = append(values, of(r.Result))
		}
		slices.Sort(values)
		return values[len(values)/2]
	}
	circumstance := func(c Cause, format string, args ...any) (Verdict, bool) {
		return Verdict{Status: Invalid, Cause: c, Detail: fmt.Sprintf(format, args...)}, false
	}
	if share := median(func(r cell.Result) float64 { return r.Host.StealShare }); share > MaxSteal {
		return circumstance(CauseSteal, "the host gave %.1f %% of the machine's CPU time to others in the median round (allowed: %.0f %%)", share*100, MaxSteal*100)
	}
	throttled := func(r cell.Result) float64 { return r.Host.Throttled.Seconds() / r.Elapsed.Seconds() }
	if share := median(throttled); share > MaxThrottled {
		return circumstance(CauseThrottled, "the control group was held back for its CPU quota for %.1f %% of the time in the median round (allowed: %.0f %%)", share*100, MaxThrottled*100)
	}
	limited := 0
	for _, r := range rounds {
		if r.Result.Host.GCLimited {
			limited++
		}
	}
	if 2*limited >= len(rounds) && limited > 0 {
		return circumstance(CauseGCLimit, "the heap was at its limit and the collector's limiter came into force in %d of %d rounds", limited, len(rounds))
	}
	return Verdict{}, true
}

// judgeGenerator returns false and a verdict if the generator missed its schedule.
func judgeGenerator(labels []Label, rounds []Round) (Verdict, bool) {
	rate, paced := rateOf(labels)
	if !paced {
		return Verdict{}, true
	}
	for _, r := range rounds {
		if r.Result.Lag == nil {
			return Verdict{Status: Invalid, Cause: CauseGenerator, Detail: "no release was reported, so that the pace cannot be judged"}, false
		}
	}
	lag := medianLag(rounds)
	if lag.LateShare <= MaxLateShare {
		return Verdict{}, true
	}
	detail := fmt.Sprintf("at rate %s, %.1f %% of the releases were more than %v late in the median round (allowed: %.0f %%)",
		rate, lag.LateShare*100, lag.Budget, MaxLateShare*100)
	if lag.Missed > 0 {
		detail += fmt.Sprintf("; %d of %d had not been released when the schedule was over", lag.Missed, lag.Count)
	}
	return Verdict{Status: Invalid, Cause: CauseGenerator, Detail: detail}, false
}

// medianLag returns the lag of the median round, ordered by the share of late releases.
// Of two middle rounds it returns the worse. It returns nil if no round has a lag.
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
	slices.SortStableFunc(lags, func(a, b *cell.Lag) int {
		switch {
		case a.LateShare < b.LateShare:
			return -1
		case a.LateShare > b.LateShare:
			return 1
		}
		return 0
	})
	return lags[len(lags)/2]
}
