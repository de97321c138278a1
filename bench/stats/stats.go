// Package stats converts measurements to benchfmt, the format of `go test -bench`, and
// compares them.
//
//  1. [Values] assigns each figure of a measurement a unit ("events/s", "p99-ns").
//  2. [Writer] writes one line per round of a cell, and [Read] reads such a file.
//     benchstat reads the same file and shows the same medians.
//  3. [Summarize] summarises the rounds of a cell, and [Compare] compares them with the
//     baseline: medians and order-statistic confidence intervals as benchstat's, and a
//     difference only where both the Mann-Whitney U test and Welch's test see one.
//  4. [FitUSL] fits the Universal Scalability Law to the throughputs of a sweep. [Knee]
//     describes the result of the other search.
//
// Package compare contains the table of whole runs and the regression gate.
package stats

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"golang.org/x/perf/benchmath"
)

// Confidence of the intervals, and Alpha of the tests.
const (
	Confidence = 0.95
	Alpha      = 0.05
)

// Summary summarises one figure over the rounds.
type Summary struct {
	N      int      `json:"n"`            // number of rounds
	Median float64  `json:"median"`       // over the rounds
	Lo     *float64 `json:"lo,omitempty"` // 95 % confidence interval of the median, with Hi; nil below 6 rounds
	Hi     *float64 `json:"hi,omitempty"` // nil like Lo
	// Spread is the interquartile range over the median; nil for one round or a median
	// of 0. Unlike the interval, it is defined from 2 rounds on.
	Spread *float64 `json:"spread,omitempty"`
}

// Summarize summarises values, one per round, and does not modify them. For no values
// it returns the zero Summary.
func Summarize(values []float64) Summary {
	if len(values) == 0 {
		return Summary{}
	}
	sample := sampleOf(values)
	b := benchmath.AssumeNothing.Summary(sample, Confidence)
	s := Summary{N: len(values), Median: b.Center}
	if !math.IsInf(b.Lo, 0) && !math.IsInf(b.Hi, 0) {
		s.Lo, s.Hi = &b.Lo, &b.Hi
	}
	if len(values) > 1 && b.Center != 0 {
		s.Spread = new(math.Abs((quantile(sample.Values, 0.75) - quantile(sample.Values, 0.25)) / b.Center))
	}
	return s
}

// Median returns the median of values; 0 for no values.
func Median(values []float64) float64 { return Summarize(values).Median }

// Comparison compares one figure of a cell with that of the baseline.
type Comparison struct {
	From, To float64 // medians of the baseline and of the cell
	Ratio    float64 // To over From; NaN if From is 0
	// P is the probability of such a difference by chance: the larger p of the two-sided Mann-Whitney
	// U test, which assumes equal spread, and of Welch's (see [Shift]), which assumes normal noise.
	P           float64
	Testable    bool // false if no outcome could be significant: below 4 rounds on each side
	Significant bool // P < [Alpha]
	// Lo and Hi are the 95 % confidence interval of the ratio: both Hodges and Lehmann's, on the
	// ratios of all pairs, and Welch's lie in it. It excludes 1 if the difference is significant.
	// Both are 0 if the comparison is not testable or a figure is not above 0.
	Lo, Hi float64
	welch  float64 // p of Welch's test
}

// BestOf returns the comparison of a cell that was chosen as the best of n. Its difference is
// significant only after Bonferroni's correction of Welch's test: few rounds have no smaller p of ranks.
func (c Comparison) BestOf(n int) Comparison {
	c.Significant = c.Significant && c.welch*float64(n) < Alpha
	return c
}

// Compare compares values with base. It modifies neither.
func Compare(base, values []float64) Comparison {
	c := Comparison{From: Median(base), To: Median(values), P: 1}
	if c.Ratio = c.To / c.From; math.IsInf(c.Ratio, 0) {
		c.Ratio = math.NaN()
	}
	if c.Testable = Testable(len(base), len(values), Alpha); !c.Testable {
		return c
	}
	s := ShiftOf(base, values)
	c.welch = s.differs()
	c.P = max(mannWhitney(base, values), c.welch)
	if s.Logs {
		c.Lo, c.Hi = s.ratioInterval(base, values)
	}
	c.Significant = c.P < Alpha && !(0 < c.Lo && c.Lo <= 1 && 1 <= c.Hi)
	return c
}

// PText formats a p-value: "p=0.012", or "p<0.001" for values that would round to 0.
func PText(p float64) string {
	if p < 0.0005 {
		return "p<0.001"
	}
	return fmt.Sprintf("p=%.3f", p)
}

// Testable reports whether any outcome of n and m rounds is significant at alpha by the Mann-Whitney
// test. The most extreme one, all values of one side above the other's, has 2 of the (n+m choose n)
// orders. At 0.05, 4 and 4 rounds are testable, 3 and 4 are not.
func Testable(n, m int, alpha float64) bool {
	orders := 1.0
	for i := 1; i <= n; i++ {
		orders = orders * float64(m+i) / float64(i)
	}
	return n > 1 && m > 1 && 2/orders < alpha
}

// sampleOf copies the values, because benchmath sorts its input.
func sampleOf(values []float64) *benchmath.Sample {
	return benchmath.NewSample(slices.Clone(values), &benchmath.Thresholds{CompareAlpha: Alpha})
}

// quantile interpolates linearly between the order statistics of sorted values: type 7
// of Hyndman and Fan, the default of R and NumPy.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	i := int(math.Floor(at))
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

// Samples holds the replicates of one cell, rounds or processes: values by unit, in their order.
type Samples map[string][]float64

// Add adds the figures of one replicate.
func (s Samples) Add(values []Value) {
	for _, v := range values {
		s[v.Unit] = append(s[v.Unit], v.Value)
	}
}

// Units returns the units with values: those of every measurement, then the others sorted.
func (s Samples) Units() []string {
	rank := func(unit string) int {
		if i := slices.Index(fixedUnits, unit); i >= 0 {
			return i
		}
		return len(fixedUnits)
	}
	return slices.SortedFunc(maps.Keys(s), func(a, b string) int { return cmp.Or(rank(a)-rank(b), strings.Compare(a, b)) })
}

// Summaries summarises every unit.
func (s Samples) Summaries() map[string]Summary {
	out := make(map[string]Summary, len(s))
	for u, values := range s {
		out[u] = Summarize(values)
	}
	return out
}
