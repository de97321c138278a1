package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"golang.org/x/perf/benchunit"

	"watchlab/bench/stats"
)

// none replaces a missing figure.
const none = "-"

// unknown reports a ratio to 0, which is no figure.
func unknown(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }

// number writes a non-negative figure with three significant digits, and without
// decimals from 100 on.
func number(v float64) string {
	switch {
	case unknown(v):
		return none
	case v == math.Trunc(v) && v < 1e6:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case v < 0.001:
		// Such a small figure comes from the machine, not from the variant.
		return "<0.001"
	case v >= 1e6:
		return decimal(v)
	case v >= 0.9995:
		return threeDigits(v)
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}

// threeDigits writes a figure with three digits: 1.23, 12.3, 123, 1234.
func threeDigits(v float64) string {
	digits := 2
	switch {
	case v >= 99.95:
		digits = 0
	case v >= 9.995:
		digits = 1
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}

// decimal writes a figure with a decimal prefix.
func decimal(v float64) string {
	if unknown(v) {
		return none
	}
	return benchunit.Scale(v, benchunit.Decimal)
}

func percent(share float64) string { return number(share*100) + " %" }

// perSecond writes the median throughput and the spread of its rounds.
func perSecond(s stats.Samples) string {
	sum := stats.Summarize(s[stats.UnitEventsPerSec])
	switch {
	case sum.N == 0:
		return none
	case sum.Spread == nil:
		return decimal(sum.Median) + " ±  ?"
	}
	return fmt.Sprintf("%s ±%2.0f%%", decimal(sum.Median), *sum.Spread*100)
}

// interval writes the confidence interval of the median throughput, or none.
func interval(s stats.Samples) string {
	sum := stats.Summarize(s[stats.UnitEventsPerSec])
	if sum.Lo == nil {
		return none
	}
	return decimal(*sum.Lo) + "–" + decimal(*sum.Hi)
}

func bytesCount(v float64) string {
	if v < 1024 || unknown(v) {
		return number(v)
	}
	return benchunit.Scale(v, benchunit.Binary)
}

// unit is a multiple of a unit.
type unit struct {
	size float64
	name string
}

var (
	counts    = []unit{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}, {1, ""}}
	durations = []unit{{1e9, "s"}, {1e6, "ms"}, {1e3, "µs"}, {1, "ns"}}
)

// nanoseconds writes a duration in a suitable unit.
func nanoseconds(v float64) string {
	if unknown(v) {
		return none
	}
	for _, u := range durations {
		// Compare the rounded figure, so that 999.7 µs becomes 1 ms.
		if math.Round(v*1000/u.size) >= 1000 || u.size == 1 {
			return number(v/u.size) + u.name
		}
	}
	return ""
}

// axisCount and axisTime write a count and a duration in nanoseconds on an axis, with few digits.
func axisCount(v float64) string { return axisText(v, counts) }
func axisTime(v float64) string  { return axisText(v, durations) }

func axisText(v float64, units []unit) string {
	for _, u := range units {
		if math.Abs(v) >= u.size*0.9999 || u.size == 1 {
			return strconv.FormatFloat(v/u.size, 'g', 3, 64) + u.name
		}
	}
	return ""
}

// wallTime writes a duration with three digits.
func wallTime(d time.Duration) string {
	for _, unit := range []time.Duration{time.Hour, time.Minute, time.Second, time.Millisecond, time.Microsecond} {
		if d >= unit {
			return d.Round(unit / 100).String()
		}
	}
	return d.String()
}

// unitFormat returns the format of a unit of bench.txt.
func unitFormat(unit string) func(float64) string {
	switch {
	case strings.HasSuffix(unit, "-ns") || strings.HasPrefix(unit, "ns/") || strings.HasSuffix(unit, "-ns/run"):
		return nanoseconds
	case strings.HasPrefix(unit, "B/") || strings.HasSuffix(unit, "-B") || strings.HasSuffix(unit, "-B/run"):
		return bytesCount
	case unit == stats.UnitEventsPerSec:
		return axisCount
	}
	return number
}

// ratio writes the ratio to the baseline, or "no difference" if it is not significant.
func ratio(c stats.Comparison) string {
	switch {
	case !c.Testable:
		return times(c.Ratio) + "?"
	case !c.Significant:
		return "no difference"
	}
	return times(c.Ratio)
}

func times(v float64) string {
	switch {
	case unknown(v):
		return none
	case v < 0.0995:
		return strconv.FormatFloat(v, 'f', 4, 64) + "×"
	}
	return threeDigits(v) + "×"
}

// seen writes the smallest change that the rounds of both sides detect.
func seen(c stats.Comparison) string {
	switch share := c.MinDetectable; {
	case share == nil:
		return none
	case *share < 0.0995:
		return fmt.Sprintf("%.1f %%", *share*100)
	default:
		return fmt.Sprintf("%.0f %%", *share*100)
	}
}

// estimate writes a figure with its confidence interval.
func estimate(e stats.Estimate, format func(float64) string) string {
	if e.Lo == e.Hi {
		return format(e.Value)
	}
	return fmt.Sprintf("%s [%s, %s]", format(e.Value), format(e.Lo), format(e.Hi))
}

// coefficient writes a figure that may be much smaller than 1.
func coefficient(v float64) string { return strconv.FormatFloat(v, 'g', 2, 64) }

// trimmed writes a number without trailing zeros, like a label.
func trimmed(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
