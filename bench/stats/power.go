package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"sync"
)

// Power is the probability of detecting a difference of [MinDetectable]'s size.
const Power = 0.8

// MinDetectable returns the smallest relative change that [Compare] detects in 80 % of runs ([Power])
// with as many rounds and as much noise. 0.04 stands for a ratio of 1.04 or 1/1.04. It returns false
// if the rounds are not [Testable] or a figure is not above 0.
//
// The change is simulated, once for each n and m, with a fixed seed and normal noise, equal on both
// sides; reports say so beside the figure. The noise is estimated from the rounds: from 5 on each
// side, errors of 25 % are common. Other noise makes the result too small: with outliers, heavy tails
// or two modes, such a change is found in 50 to 80 % of runs.
func MinDetectable(base, values []float64) (share float64, ok bool) {
	n, m := len(base), len(values)
	if !Testable(n, m, Alpha) || !positive(base) || !positive(values) {
		return 0, false
	}
	return math.Expm1(detectableShift(n, m) * ShiftOf(base, values).Noise), true
}

func positive(values []float64) bool {
	return !slices.ContainsFunc(values, func(v float64) bool { return !(v > 0) || math.IsInf(v, 1) })
}

// sizes are the numbers of rounds on the two sides.
type sizes struct{ n, m int }

// memo caches the results of f.
func memo[V any](f func(sizes) V) func(n, m int) V {
	var cache sync.Map // sizes → V
	return func(n, m int) V {
		key := sizes{n, m}
		v, ok := cache.Load(key)
		if !ok {
			v, _ = cache.LoadOrStore(key, f(key))
		}
		return v.(V)
	}
}

// detectableShift is the distance of the two sides, in standard deviations, that the tests detect in
// a share of Power of all draws. Each draw has a smallest significant shift, the larger of two: the
// one that orders the critical-th of the n·m pairs, on which alone the Mann-Whitney test depends, and
// the half-width of Welch's interval. The result is the quantile of those shifts.
var detectableShift = memo(func(s sizes) float64 {
	const work, most, least = 4_000_000, 4000, 200
	rng := rand.New(rand.NewPCG(uint64(s.n), uint64(s.m)))
	found := make([]float64, min(most, max(least, work/(s.n*s.m))))
	gaps, base, values := make([]float64, s.n*s.m), make([]float64, s.n), make([]float64, s.m)
	need := critical(s.n, s.m)
	for d := range found {
		for i := range base {
			base[i] = rng.NormFloat64()
		}
		for j := range s.m {
			values[j] = rng.NormFloat64()
			for i, b := range base {
				gaps[j*s.n+i] = b - values[j]
			}
		}
		slices.Sort(gaps)
		found[d] = max(gaps[need-1], shiftOf(values, base, false).AtMost(1-Alpha/2))
	}
	slices.Sort(found)
	return math.Max(0, quantile(found, Power))
})

// critical is the smallest number of ordered pairs, out of n·m, that the test calls significant. It
// calls the same test as Compare. n and m must allow a significant outcome.
var critical = memo(func(s sizes) int {
	lo, hi := s.n*s.m/2, s.n*s.m // not significant, significant
	return lo + 1 + sort.Search(hi-lo-1, func(i int) bool { return significantAt(s.n, s.m, lo+1+i) })
})

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
