package stats

import (
	"math"
	"slices"
	"sort"
	"sync"
)

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
