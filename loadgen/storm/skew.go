package storm

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Skew is the distribution of updates over keys. The zero value is uniform.
type Skew struct {
	exponent float64 // exponent of the zipf distribution; 0 means uniform
}

// ErrSkew is wrapped by the errors for invalid skews.
var ErrSkew = errors.New("invalid skew")

// Zipf returns the skew that draws the key of rank r in proportion to r^-exponent. The seed
// assigns ranks to keys.
func Zipf(exponent float64) Skew { return Skew{exponent: exponent} }

// ParseSkew reads "uniform" or "zipf:EXPONENT"; 0 < EXPONENT ≤ 10. The error wraps [ErrSkew].
func ParseSkew(s string) (Skew, error) {
	if s == "uniform" {
		return Skew{}, nil
	}
	if text, ok := strings.CutPrefix(s, "zipf:"); ok && strings.Trim(text, "0123456789.") == "" {
		if v, err := strconv.ParseFloat(text, 64); err == nil && v > 0 && v <= 10 {
			return Zipf(v), nil
		}
	}
	return Skew{}, fmt.Errorf("%w %q (allowed: uniform, or zipf:EXPONENT such as zipf:1.1, up to 10)", ErrSkew, s)
}

// String returns the skew in the format of [ParseSkew].
func (s Skew) String() string {
	if s.exponent == 0 {
		return "uniform"
	}
	return "zipf:" + strconv.FormatFloat(s.exponent, 'f', -1, 64)
}

// alias is a column of Walker's alias table: a number up to keep selects the column itself,
// any other selects other.
type alias struct {
	keep  uint32
	other int32
}

// newAlias returns the zipf table over n keys; a draw costs O(1). The seed assigns the ranks. O(n).
func newAlias(n int, exponent float64, seed uint64) []alias {
	weights := make([]float64, n)
	sum := 0.0
	for i := range weights {
		weights[i] = math.Pow(float64(i+1), -exponent)
		sum += weights[i]
	}
	// Fisher-Yates shuffle: hot keys get random positions.
	for i := n - 1; i > 0; i-- {
		seed = mix(seed)
		j := int((seed >> 32) * uint64(i+1) >> 32)
		weights[i], weights[j] = weights[j], weights[i]
	}
	// Vose's algorithm fills each column below the mean from one above it.
	table := make([]alias, n)
	var low, high []int32
	for i := range weights {
		weights[i] *= float64(n) / sum
		if weights[i] < 1 {
			low = append(low, int32(i))
		} else {
			high = append(high, int32(i))
		}
	}
	for len(low) > 0 && len(high) > 0 {
		l, h := low[len(low)-1], high[len(high)-1]
		low = low[:len(low)-1]
		table[l] = alias{keep: uint32(weights[l] * math.MaxUint32), other: h}
		if weights[h] -= 1 - weights[l]; weights[h] < 1 {
			high = high[:len(high)-1]
			low = append(low, h)
		}
	}
	for _, i := range append(low, high...) {
		table[i] = alias{keep: math.MaxUint32, other: i}
	}
	return table
}

// pick draws a key with 64 random bits: 32 select the column, 32 decide within it.
func pick(table []alias, random uint64) int64 {
	column := (random >> 32) * uint64(len(table)) >> 32
	a := table[column]
	if uint32(random) <= a.keep {
		return int64(column)
	}
	return int64(a.other)
}
