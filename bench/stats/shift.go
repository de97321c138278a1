package stats

import (
	"math"
	"slices"
	"sort"
	"sync"

	moremath "github.com/aclements/go-moremath/stats"
	"golang.org/x/perf/benchmath"
)

// Shift is the difference of the means of two sides: of their logarithms, or of the plain figures
// if one is not above 0. Its interval and test are Welch's, which hold their level if one side is
// noisier. Mann and Whitney's do not: of 5 noisy and 20 quiet rounds, 25 % of equal pairs differ.
type Shift struct {
	By    float64 // values minus base; of logarithms, so that exp(By) is a ratio, if Logs
	Logs  bool    // all figures are above 0
	Noise float64 // standard deviation of a round
	error float64 // standard error of By; 0 for constant figures
	free  float64 // degrees of freedom
}

// ShiftOf needs 2 rounds on each side.
func ShiftOf(base, values []float64) Shift {
	s := Shift{Logs: positive(base) && positive(values)}
	moments := func(values []float64) (mean, variance, n float64) {
		all := make([]float64, len(values))
		for i, v := range values {
			if all[i] = v; s.Logs {
				all[i] = math.Log(v)
			}
		}
		return moremath.Mean(all), moremath.Variance(all), float64(len(all))
	}
	a, v, n := moments(base)
	b, w, m := moments(values)
	s.By, s.error = b-a, math.Sqrt(v/n+w/m)
	s.Noise = s.error / math.Sqrt(1/n+1/m)
	s.free = math.Pow(v/n+w/m, 2) / (math.Pow(v/n, 2)/(n-1) + math.Pow(w/m, 2)/(m-1))
	return s
}

func positive(values []float64) bool {
	return !slices.ContainsFunc(values, func(v float64) bool { return !(v > 0) || math.IsInf(v, 1) })
}

// AtMost returns the upper end of the one-sided interval.
func (s Shift) AtMost(confidence float64) float64 {
	if s.error == 0 {
		return s.By
	}
	return s.By + s.error*moremath.InvCDF(moremath.TDist{V: s.free})(confidence)
}

// Beyond returns the p of the hypothesis that the shift is at most limit.
func (s Shift) Beyond(limit float64) float64 {
	switch {
	case s.error > 0:
		return moremath.TDist{V: s.free}.CDF((limit - s.By) / s.error)
	case s.By > limit:
		return 0
	}
	return 1
}

// differs returns the two-sided p of no shift.
func (s Shift) differs() float64 {
	s.By = math.Abs(s.By)
	return min(1, 2*s.Beyond(0))
}

// RoundsFor returns about how many rounds on each side make AtMost(confidence) fit below limit, if
// noise and shift stay as they are; 0 if none do.
func (s Shift) RoundsFor(limit, confidence float64) int {
	if s.By >= limit {
		return 0
	}
	z := moremath.StdNormal.InvCDF(confidence)
	return int(math.Ceil(2*math.Pow(z*s.Noise/(limit-s.By), 2) + z*z/4))
}

// mannWhitney returns the two-sided p of Mann and Whitney's U test, as benchstat computes it.
func mannWhitney(base, values []float64) float64 {
	return benchmath.AssumeNothing.Compare(sampleOf(base), sampleOf(values)).P
}

// ratioInterval returns the 95 % confidence interval of the ratio: the one from the order of all
// pairs, widened to Welch's. The rounds must be [Testable].
func (s Shift) ratioInterval(base, values []float64) (lo, hi float64) {
	ratios := make([]float64, 0, len(base)*len(values))
	for _, b := range base {
		for _, v := range values {
			ratios = append(ratios, v/b)
		}
	}
	slices.Sort(ratios)
	outside := len(ratios) - critical(len(base), len(values)) // how many pairs may be out of order
	far := s.AtMost(1 - Alpha/2)
	return min(math.Exp(2*s.By-far), ratios[outside]), max(math.Exp(far), ratios[len(ratios)-1-outside])
}

// criticals caches the results of critical by the numbers of rounds.
var criticals sync.Map

// critical is the smallest number of ordered pairs, out of n·m, that the test calls significant. It
// calls the same test as Compare. n and m must allow a significant outcome.
func critical(n, m int) int {
	sizes := [2]int{n, m}
	if known, ok := criticals.Load(sizes); ok {
		return known.(int)
	}
	lo, hi := n*m/2, n*m // not significant, significant
	found := lo + 1 + sort.Search(hi-lo-1, func(i int) bool { return significantAt(n, m, lo+1+i) })
	criticals.Store(sizes, found)
	return found
}

// significantAt tests two sides without ties that have u ordered pairs.
func significantAt(n, m, u int) bool {
	base, values := make([]float64, n), make([]float64, m)
	for i := range base {
		base[i] = float64(i + 1)
	}
	for j := range values {
		// Place each value above as many base values as u allows; the term with j prevents ties.
		passed := min(n, u)
		u -= passed
		values[j] = float64(passed) + 0.5 + float64(j)/float64(4*m)
	}
	return mannWhitney(base, values) < Alpha
}
