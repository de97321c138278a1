package report

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"watchlab/bench/chart"
	"watchlab/bench/stats"
)

// perSecond writes the median throughput and the spread of its rounds.
func perSecond(s stats.Samples) string {
	sum := stats.Summarize(s[stats.UnitEventsPerSec])
	switch {
	case sum.N == 0:
		return chart.None
	case sum.Spread == nil:
		return chart.Decimal(sum.Median) + " ±  ?"
	}
	return fmt.Sprintf("%s ±%2.0f%%", chart.Decimal(sum.Median), *sum.Spread*100)
}

// unitFormat returns the format of a unit of bench.txt.
func unitFormat(unit string) func(float64) string {
	if unit == stats.UnitEventsPerSec {
		return chart.Count
	}
	name, _, _ := strings.Cut(unit, "/")
	switch name[strings.LastIndexByte(name, '-')+1:] {
	case "ns":
		return chart.Nanoseconds
	case "B":
		return chart.Bytes
	}
	return chart.Number
}

// ratio writes the ratio to the baseline, or "no difference" if it is not significant.
func ratio(c stats.Comparison) string {
	switch {
	case !c.Testable:
		return chart.Times(c.Ratio) + "?"
	case !c.Significant:
		return "no difference"
	}
	return chart.Times(c.Ratio)
}

// span writes the 95 % confidence interval of a ratio, or none.
func span(c stats.Comparison) string {
	if c.Lo <= 0 {
		return chart.None
	}
	return strings.TrimSuffix(chart.Times(c.Lo), "×") + "–" + chart.Times(c.Hi)
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

// wrap breaks a text into lines at spaces.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines = append(lines, line)
			line = ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return append(lines, line)
}
