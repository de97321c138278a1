package stats

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// noises are distributions of the logarithm of a round's figure, with variance of about 1.
var noises = map[string]func(*rand.Rand) float64{
	"normal": (*rand.Rand).NormFloat64,
	// skewed: most rounds are near the best, some are slow.
	"skewed": func(r *rand.Rand) float64 { return r.ExpFloat64() },
	// heavy tail: Student's t with 3 degrees of freedom, over its deviation √3.
	"heavy tail": func(r *rand.Rand) float64 {
		squares := 0.0
		for range 3 {
			v := r.NormFloat64()
			squares += v * v
		}
		return r.NormFloat64() / math.Sqrt(squares/3) / math.Sqrt(3)
	},
	// bimodal: a neighbour is there in half of the rounds.
	"bimodal": func(r *rand.Rand) float64 { return float64(2*r.IntN(2)-1) + 0.2*r.NormFloat64() },
	// outliers: one round in ten is far off.
	"outliers": func(r *rand.Rand) float64 {
		v := r.NormFloat64() / 2
		if r.IntN(10) == 0 {
			v += 3
		}
		return v
	},
}

func draw(r *rand.Rand, noise func(*rand.Rand) float64, rounds int, median, deviation float64) []float64 {
	values := make([]float64, rounds)
	for i := range values {
		values[i] = median * math.Exp(deviation*noise(r))
	}
	return values
}

// atMost returns the number that a binomial count exceeds in fewer than 1 of 10,000 cases.
func atMost(n int, p float64) int {
	rest, term := 1.0, math.Pow(1-p, float64(n))
	for k := 0; ; k++ {
		if rest -= term; rest < 1e-4 {
			return k
		}
		term *= float64(n-k) / float64(k+1) * p / (1 - p)
	}
}

// TestAANoDifference: comparing equal sides finds differences no more often than the
// confidence allows.
func TestAANoDifference(t *testing.T) {
	for name, noise := range noises {
		for _, rounds := range []int{5, 10} {
			for _, repeats := range []int{50, 2000} {
				t.Run(fmt.Sprintf("%s, %d rounds, %d times", name, rounds, repeats), func(t *testing.T) {
					rng := rand.New(rand.NewPCG(uint64(rounds), uint64(repeats)))
					found := 0
					for range repeats {
						c := Compare(draw(rng, noise, rounds, 1e6, 0.03), draw(rng, noise, rounds, 1e6, 0.03))
						if c.Significant {
							found++
						}
						if c.Significant != (c.Lo > 1 || c.Hi < 1) {
							t.Fatalf("significant: %v (p=%v), interval %v to %v", c.Significant, c.P, c.Lo, c.Hi)
						}
					}
					if most := atMost(repeats, Alpha); found > most {
						t.Errorf("%d of %d comparisons of equal samples differ, want at most %d", found, repeats, most)
					}
				})
			}
		}
	}
}

// TestPlantedSlowdown slows one side down by 5 %, with the noise and the rounds of a quiet machine.
func TestPlantedSlowdown(t *testing.T) {
	const repeats, slowdown, deviation = 400, 0.95, 0.02
	for name, noise := range noises {
		for _, rounds := range []int{6, 10} {
			t.Run(fmt.Sprintf("%s, %d rounds", name, rounds), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(3, uint64(rounds)))
				found, held := 0, 0
				for range repeats {
					base, slow := draw(rng, noise, rounds, 1e6, deviation), draw(rng, noise, rounds, slowdown*1e6, deviation)
					c := Compare(base, slow)
					if c.Significant && c.Ratio < 1 {
						found++
					}
					if c.Lo <= slowdown && slowdown <= c.Hi {
						held++
					}
				}
				if found < repeats*3/4 {
					t.Errorf("found in %d of %d comparisons", found, repeats)
				}
				if held < repeats*90/100 {
					t.Errorf("the interval contains the slowdown in %d of %d comparisons", held, repeats)
				}
			})
		}
	}
}

// TestCritical: the test is significant with u ordered pairs, and not with u-1.
func TestCritical(t *testing.T) {
	for _, s := range [][2]int{{4, 4}, {3, 5}, {5, 5}, {6, 9}, {12, 12}, {60, 60}} {
		u := critical(s[0], s[1])
		if !significantAt(s[0], s[1], u) || significantAt(s[0], s[1], u-1) {
			t.Errorf("%+v: %d", s, u)
		}
	}
	// From the tables of Mann and Whitney's U: 5 and 5 rounds allow 2 pairs out of
	// order, 10 and 10 allow 23.
	for s, out := range map[[2]int]int{{5, 5}: 2, {10, 10}: 23} {
		if got := s[0]*s[1] - critical(s[0], s[1]); got != out {
			t.Errorf("%+v: %d pairs may be out of order, want %d", s, got, out)
		}
	}
}

func TestBetter(t *testing.T) {
	for unit, want := range map[string]Direction{
		"events/s": Higher, "reads/s": Higher, "ns/op": Lower, "sec/op": Lower, "p99-ns": Lower, "list-p99-sec": Lower, "B/queued-event": Lower,
		"drain-ns/event": Lower, "peak-heap-B": Lower, "cycles/op": Lower, "gcs/run": Lower, "late/release": Lower,
		"relists": Unknown, "deltas/event": Unknown, "steal/run": Unknown,
	} {
		if got := Better(unit); got != want {
			t.Errorf("%s: %q, want %q", unit, got, want)
		}
	}
}
