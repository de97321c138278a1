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
	// MaxSpread is how far the rounds' events/s may lie apart: their
	// interquartile range over their median (stats.Summary.Spread).
	MaxSpread = 0.10
	// MaxLateShare is which share of a paced cell's releases may be later than
	// their budget (cell.Lag.Budget) in the median round.
	MaxLateShare = 0.01
)

// invariants are looked for in the error of a Check, in this order.
var invariants = []struct {
	err   error
	cause Cause
}{
	{ErrLost, CauseLost},
	{ErrReordered, CauseReordered},
	{ErrDuplicated, CauseDuplicated},
	{ErrDiverged, CauseDiverged},
}

// broken is the verdict on a cell that failed: by the invariants that err
// wraps, else as an error.
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
	// An error that does nothing but repeat the cause adds nothing to it.
	detail := strings.TrimPrefix(oneLine(err.Error()), string(cause))
	return Verdict{Status: Invalid, Cause: cause, Detail: strings.TrimPrefix(detail, ": ")}
}

// oneLine folds what errors.Join puts on several lines.
func oneLine(s string) string {
	lines := strings.FieldsFunc(s, func(c rune) bool { return c == '\n' || c == '\r' })
	for i := range lines {
		lines[i] = strings.Join(strings.Fields(lines[i]), " ")
	}
	return strings.Join(lines, "; ")
}

// judge is the verdict on a cell that has not failed, from the rounds that it
// finished.
func judge(labels []Label, rounds []Round) Verdict {
	if len(rounds) == 0 {
		return Verdict{Status: Unplayed, Detail: "the run ended before it finished a round"}
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

// judgeGenerator returns false and the verdict where a schedule was not kept.
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

// medianLag returns the lag of the median round by the share of late releases,
// of two middle ones the worse; nil where none was reported.
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
