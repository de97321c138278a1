package storm

import (
	"errors"
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"
)

// Skew is the distribution of updates over keys: uniform for 0, else zipf. It draws the key of rank r in proportion to
// r^-Skew. The seed assigns ranks to keys.
type Skew float64

// ErrSkew is wrapped by the errors for invalid skews.
var ErrSkew = errors.New("invalid skew")

// ParseSkew reads "uniform" or "zipf:EXPONENT"; 0 < EXPONENT ≤ 10. The error wraps [ErrSkew].
func ParseSkew(s string) (Skew, error) {
	if s == "uniform" {
		return 0, nil
	}
	if text, ok := strings.CutPrefix(s, "zipf:"); ok && strings.Trim(text, "0123456789.") == "" {
		if v, err := strconv.ParseFloat(text, 64); err == nil && v > 0 && v <= 10 {
			return Skew(v), nil
		}
	}
	return 0, fmt.Errorf("%w %q (allowed: uniform, or zipf:EXPONENT such as zipf:1.1, up to 10)", ErrSkew, s)
}

// String returns the skew in the format of [ParseSkew].
func (s Skew) String() string {
	if s == 0 {
		return "uniform"
	}
	return "zipf:" + strconv.FormatFloat(float64(s), 'f', -1, 64)
}

// newRanks returns the zipf distribution over n keys, as the sum of the weights up to each key. The seed assigns
// the ranks to keys. O(n).
func newRanks(n int, exponent float64, seed uint64) []float64 {
	sums := make([]float64, n)
	for i := range sums {
		sums[i] = math.Pow(float64(i+1), -exponent)
	}
	// Fisher-Yates shuffle: hot keys get random positions.
	for i := n - 1; i > 0; i-- {
		seed = mix(seed)
		j := int((seed >> 32) * uint64(i+1) >> 32)
		sums[i], sums[j] = sums[j], sums[i]
	}
	for i := 1; i < n; i++ {
		sums[i] += sums[i-1]
	}
	return sums
}

// pick draws a key with 64 random bits. O(log n).
func pick(sums []float64, random uint64) int64 {
	at := float64(random>>11) / (1 << 53) * sums[len(sums)-1]
	// A key has the numbers from the sum before it up to its own, without that.
	return int64(min(sort.Search(len(sums), func(i int) bool { return sums[i] > at }), len(sums)-1))
}
