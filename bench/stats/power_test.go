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
				found, held, promised := 0, 0, 0
				for range repeats {
					base, slow := draw(rng, noise, rounds, 1e6, deviation), draw(rng, noise, rounds, slowdown*1e6, deviation)
					c := Compare(base, slow)
					if c.Significant && c.Ratio < 1 {
						found++
					}
					if c.Lo <= slowdown && slowdown <= c.Hi {
						held++
					}
					if share, ok := MinDetectable(base, slow); ok && share < 1/slowdown-1 {
						promised++
					}
				}
				if found < repeats*3/4 {
					t.Errorf("found in %d of %d comparisons", found, repeats)
				}
				if held < repeats*90/100 {
					t.Errorf("the interval contains the slowdown in %d of %d comparisons", held, repeats)
				}
				if promised < repeats/2 {
					t.Errorf("predicted as detectable in %d of %d comparisons", promised, repeats)
				}
			})
		}
	}
}

func TestMinDetectable(t *testing.T) {
	wide := []float64{90, 100, 110, 95, 105}
	narrow := []float64{99, 100, 101, 99.5, 100.5}
	w, ok1 := MinDetectable(wide, wide)
	n, ok2 := MinDetectable(narrow, narrow)
	if !ok1 || !ok2 || w < 8*n || w < 0.1 || w > 0.3 {
		t.Errorf("%v %v, %v %v: want ten times the detectable change with ten times the noise", w, ok1, n, ok2)
	}
	many := append(append(append(wide[:5:5], wide...), wide...), wide...)
	if m, ok := MinDetectable(many, many); !ok || m > w/2 {
		t.Errorf("four times the rounds detect %v, want %v %v", w, m, ok)
	}
	if again, _ := MinDetectable(wide, wide); again != w {
		t.Errorf("%v, then %v", w, again)
	}
	if s, ok := MinDetectable([]float64{7, 7, 7, 7}, []float64{7, 7, 7, 7}); !ok || s != 0 {
		t.Errorf("without noise: %v %v, want 0", s, ok)
	}
	// The sums of squares are 2 and 0, on 6 degrees of freedom.
	e := math.E
	if s, _ := MinDetectable([]float64{1 / e, 1, e, 1}, []float64{5, 5, 5, 5}); math.Abs(s-math.Expm1(detectableShift(4, 4)*math.Sqrt(2.0/6))) > 1e-9 {
		t.Errorf("%v of noise that is known", s)
	}
	for name, tc := range map[string][2][]float64{
		"3 rounds": {wide[:3], wide[:3]}, "none": {nil, wide}, "one": {wide[:1], wide}, "zero": {{0, 1, 2, 3}, wide[:4]}, "no figure": {wide, {1, 2, 3, math.NaN()}},
	} {
		if s, ok := MinDetectable(tc[0], tc[1]); ok {
			t.Errorf("%s: %v", name, s)
		}
	}
}

// TestCritical: the test is significant with u ordered pairs, and not with u-1.
func TestCritical(t *testing.T) {
	for _, s := range []sizes{{4, 4}, {3, 5}, {5, 5}, {6, 9}, {12, 12}, {60, 60}} {
		u := critical(s.n, s.m)
		if !significantAt(s.n, s.m, u) || significantAt(s.n, s.m, u-1) {
			t.Errorf("%+v: %d", s, u)
		}
	}
	// From the tables of Mann and Whitney's U: 5 and 5 rounds allow 2 pairs out of
	// order, 10 and 10 allow 23.
	for s, out := range map[sizes]int{{5, 5}: 2, {10, 10}: 23} {
		if got := s.n*s.m - critical(s.n, s.m); got != out {
			t.Errorf("%+v: %d pairs may be out of order, want %d", s, got, out)
		}
	}
}

func TestBetter(t *testing.T) {
	for unit, want := range map[string]Direction{
		"events/s": Higher, "reads/s": Higher, "ns/op": Lower, "sec/op": Lower, "p99-ns": Lower, "list-p99-sec": Lower, "B/queued-event": Lower,
		"drain-ns/event": Lower, "peak-heap-B": Lower, "cycles/op": Lower, "lock-hold-max-ns": Lower, "gcs/run": Lower, "late/release": Lower,
		"relists": Unknown, "deltas/event": Unknown, "steal/run": Unknown,
	} {
		if got := Better(unit); got != want {
			t.Errorf("%s: %q, want %q", unit, got, want)
		}
	}
}
