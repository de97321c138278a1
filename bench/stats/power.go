package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"sync"

	moremath "github.com/aclements/go-moremath/stats"
	"golang.org/x/perf/benchmath"
)

// Power is the probability of detecting a difference of [MinDetectable]'s size.
const Power = 0.8

// MinDetectable returns the smallest relative change that [Compare] detects in 80 % of
// runs ([Power]) with the same number of rounds and the same noise. 0.04 stands for a
// ratio of 1.04 or 1/1.04. It returns false below 4 rounds on each side, where no
// outcome is significant, or if a figure is not above 0.
//
// Noise is the pooled standard deviation of the logarithms. From few rounds this is a
// rough estimate: with 5 on each side, errors of 25 % are common. The required change
// is simulated with normal noise from a fixed seed, so the result is deterministic.
// Noise with heavier tails makes the result too large rather than too small.
//
// Time: O(n+m), plus O(simulations · n·m) once for each pair of n and m.
func MinDetectable(base, values []float64) (share float64, ok bool) {
	n, m := len(base), len(values)
	if n < 2 || m < 2 || !positive(base) || !positive(values) || smallestP(n, m) >= Alpha {
		return 0, false
	}
	variance := (squares(base) + squares(values)) / float64(n+m-2)
	return math.Expm1(detectableShift(n, m) * math.Sqrt(variance)), true
}

func positive(values []float64) bool {
	return !slices.ContainsFunc(values, func(v float64) bool { return !(v > 0) || math.IsInf(v, 1) })
}

// squares is the sum of squared deviations of the logarithms from their mean.
func squares(values []float64) float64 {
	logs := make([]float64, len(values))
	for i, v := range values {
		logs[i] = math.Log(v)
	}
	return moremath.Variance(logs) * float64(len(logs)-1)
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

// detectableShift is the distance of the two sides, in standard deviations, that the
// test detects in a share of Power of all draws.
//
// The test depends only on the number of ordered pairs out of n·m. So each draw has a
// smallest significant shift: the one that orders the critical-th pair. The result is
// the quantile of those shifts; no search is needed.
var detectableShift = memo(func(s sizes) float64 {
	const work, most, least = 4_000_000, 4000, 200
	rng := rand.New(rand.NewPCG(uint64(s.n), uint64(s.m)))
	found := make([]float64, min(most, max(least, work/(s.n*s.m))))
	gaps, base := make([]float64, s.n*s.m), make([]float64, s.n)
	need := critical(s.n, s.m)
	for d := range found {
		for i := range base {
			base[i] = rng.NormFloat64()
		}
		for j := range s.m {
			v := rng.NormFloat64()
			for i, b := range base {
				gaps[j*s.n+i] = b - v
			}
		}
		slices.Sort(gaps)
		found[d] = gaps[need-1]
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
	return benchmath.AssumeNothing.Compare(sampleOf(base), sampleOf(values)).P < Alpha
}

// ratioInterval returns the 95 % confidence interval of the ratio of values to base, or
// zeros if it is not testable.
func ratioInterval(base, values []float64) (lo, hi float64) {
	n, m := len(base), len(values)
	if n == 0 || m == 0 || smallestP(n, m) >= Alpha || !positive(base) || !positive(values) {
		return 0, 0
	}
	ratios := make([]float64, 0, n*m)
	for _, b := range base {
		for _, v := range values {
			ratios = append(ratios, v/b)
		}
	}
	slices.Sort(ratios)
	outside := n*m - critical(n, m) // how many pairs may be out of order
	return ratios[outside], ratios[n*m-1-outside]
}
