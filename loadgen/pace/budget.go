package pace

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// Budget is the maximum lag of a release that does not count against the generator. It is a
// fraction of the time between two events, or a fixed time, whichever is longer. The zero
// value means [DefaultBudget].
type Budget struct {
	Share float64       // fraction of the mean time between two events: 0.01 for 1 %
	Fixed time.Duration // absolute lag
}

// DefaultBudget is 1 % of the time between two events, or 1 ms.
func DefaultBudget() Budget { return Budget{Share: 0.01, Fixed: time.Millisecond} }

// ErrBudget is wrapped by the errors for invalid budgets.
var ErrBudget = errors.New("invalid budget")

// ParseBudget reads a budget: a percentage of the time between two events, a duration, or
// both, such as "1%,1ms". The error wraps [ErrBudget].
func ParseBudget(s string) (Budget, error) {
	fail := func() (Budget, error) {
		return Budget{}, fmt.Errorf("%w %q (allowed: a percentage above 0, up to 100, a duration above 0, up to 1h, or both, such as 1%%,1ms)", ErrBudget, s)
	}
	var b Budget
	for part := range strings.SplitSeq(s, ",") {
		if text, ok := strings.CutSuffix(part, "%"); ok {
			v, ok := parseNumber(text, math.SmallestNonzeroFloat64, 100)
			if !ok || b.Share > 0 {
				return fail()
			}
			b.Share = v / 100
			continue
		}
		d, err := time.ParseDuration(part)
		if err != nil || d <= 0 || d > time.Hour || b.Fixed > 0 {
			return fail()
		}
		b.Fixed = d
	}
	return b, nil
}

// String returns the budget in the format of [ParseBudget].
func (b Budget) String() string {
	b = b.orDefault()
	var parts []string
	if b.Share > 0 {
		parts = append(parts, formatNumber(b.Share*100)+"%")
	}
	if b.Fixed > 0 {
		parts = append(parts, b.Fixed.String())
	}
	return strings.Join(parts, ",")
}

func (b Budget) orDefault() Budget {
	if b == (Budget{}) {
		return DefaultBudget()
	}
	return b
}

// Limit returns the maximum lag for each event of a schedule, from the mean time between two
// events. O(1).
func (b Budget) Limit(s Schedule, events int) time.Duration {
	b = b.orDefault()
	var gap time.Duration
	if events > 1 {
		gap = (s.Intended(events-1) - s.Intended(0)) / time.Duration(events-1)
	}
	return max(time.Duration(b.Share*float64(gap)), b.Fixed, 1)
}
