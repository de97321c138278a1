package chart

import (
	"fmt"
	"math"
	"strconv"

	"golang.org/x/perf/benchunit"
)

// None replaces a missing figure.
const None = "-"

// unknown reports a ratio to 0, which is no figure.
func unknown(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }

// Number writes a figure with three significant digits, and without decimals from 100 on.
func Number(v float64) string {
	switch {
	case unknown(v):
		return None
	case v < 0:
		return "-" + Number(-v)
	case v == math.Trunc(v) && v < 1e6:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case v < 0.001:
		// Such a small figure comes from the machine, not from the variant.
		return "<0.001"
	case v >= 1e6:
		return Decimal(v)
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

// Decimal writes a figure with a decimal prefix.
func Decimal(v float64) string {
	if unknown(v) {
		return None
	}
	return benchunit.Scale(v, benchunit.Decimal)
}

// Percent writes a share.
func Percent(share float64) string { return Number(share*100) + " %" }

// Bytes writes a size with a binary prefix, without the B.
func Bytes(v float64) string {
	if v < 1024 || unknown(v) {
		return Number(v)
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

// Nanoseconds writes a duration in a suitable unit.
func Nanoseconds(v float64) string {
	if unknown(v) {
		return None
	}
	for _, u := range durations {
		// Compare the rounded figure, so that 999.7 µs becomes 1 ms.
		if math.Round(v*1000/u.size) >= 1000 || u.size == 1 {
			return Number(v/u.size) + u.name
		}
	}
	return ""
}

// Count writes a count on an axis, with few digits.
func Count(v float64) string {
	for _, u := range counts {
		if math.Abs(v) >= u.size*0.9999 || u.size == 1 {
			return strconv.FormatFloat(v/u.size, 'g', 3, 64) + u.name
		}
	}
	return ""
}

// Times writes a ratio; a small one as its inverse.
func Times(v float64) string {
	switch {
	case unknown(v):
		return None
	case 0 < v && v < 0.0995:
		return fmt.Sprintf("%s× lower", threeDigits(1/v))
	}
	return threeDigits(v) + "×"
}

// Ratio writes a ratio on an axis.
func Ratio(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) + "×" }
