package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"

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
	mean := 0.0
	for _, v := range values {
		mean += math.Log(v) / float64(len(values))
	}
	sum := 0.0
	for _, v := range values {
		d := math.Log(v) - mean
		sum += d * d
	}
	return sum
}

// sizes are the numbers of rounds on the two sides.
type sizes struct{ n, m int }

// shifts and criticals cache results per pair of sizes.
var (
	shifts    sync.Map // sizes → float64
	criticals sync.Map // sizes → int
)

// detectableShift is the distance of the two sides, in standard deviations, that the
// test detects in a share of Power of all draws.
//
// The test depends only on the number of ordered pairs out of n·m. So each draw has a
// smallest significant shift: the one that orders the critical-th pair. The result is
// the quantile of those shifts; no search is needed.
func detectableShift(n, m int) float64 {
	key := sizes{n, m}
	if v, ok := shifts.Load(key); ok {
		return v.(float64)
	}
	const work, most, least = 4_000_000, 4000, 200
	draws := min(most, max(least, work/(n*m)))
	need := critical(n, m)
	rng := rand.New(rand.NewPCG(uint64(n), uint64(m)))
	found := make([]float64, draws)
	gaps := make([]float64, n*m)
	base := make([]float64, n)
	for d := range found {
		for i := range base {
			base[i] = rng.NormFloat64()
		}
		for j := range m {
			v := rng.NormFloat64()
			for i, b := range base {
				gaps[j*n+i] = b - v
			}
		}
		slices.Sort(gaps)
		found[d] = gaps[need-1]
	}
	slices.Sort(found)
	shift := math.Max(0, quantile(found, Power))
	shifts.Store(key, shift)
	return shift
}

// critical is the smallest number of ordered pairs, out of n·m, that the test calls
// significant. It calls the same test as Compare. n and m must allow a significant
// outcome.
func critical(n, m int) int {
	key := sizes{n, m}
	if v, ok := criticals.Load(key); ok {
		return v.(int)
	}
	lo, hi := n*m/2, n*m // not significant, significant
	for hi-lo > 1 {
		if u := (lo + hi) / 2; significantAt(n, m, u) {
			hi = u
		} else {
			lo = u
		}
	}
	criticals.Store(key, hi)
	return hi
}

// significantAt tests two sides without ties that have u ordered pairs.
func significantAt(n, m, u int) bool {
	base, values := make([]float64, n), make([]float64, m)
	for i := range base {
		base[i] = float64(i + 1)
	}
	for j := range values {
		// Place each value above as many base values as u allows; the term with j
		// prevents ties.
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
