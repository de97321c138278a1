package stats

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// TestUnequalSpread compares equal sides, of which one is noisier. The Mann-Whitney test alone calls
// 25 % of 5 noisy and 20 quiet rounds different.
func TestUnequalSpread(t *testing.T) {
	const repeats = 2000
	for _, name := range []string{"normal", "heavy tail", "outliers"} {
		for _, s := range []struct {
			n, m    int
			noisier float64
		}{{5, 20, 10}, {5, 20, 3}, {20, 5, 10}, {5, 5, 5}, {10, 10, 5}} {
			t.Run(fmt.Sprintf("%s, %v", name, s), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(11, uint64(s.n)))
				found, ranks := 0, 0
				for range repeats {
					base, values := draw(rng, noises[name], s.n, 1e6, 0.01*s.noisier), draw(rng, noises[name], s.m, 1e6, 0.01)
					if c := Compare(base, values); c.Significant {
						found++
						if c.Lo <= 1 && c.Hi >= 1 {
							t.Fatalf("significant with the interval %v to %v", c.Lo, c.Hi)
						}
					}
					if mannWhitney(base, values) < Alpha {
						ranks++
					}
				}
				t.Logf("%.1f %% differ, by ranks alone %.1f %%", 100*float64(found)/repeats, 100*float64(ranks)/repeats)
				if most := atMost(repeats, 0.055); found > most {
					t.Errorf("%d of %d equal pairs differ, want at most %d", found, repeats, most)
				}
				if name == "normal" && s.m == 20 && s.noisier == 10 && ranks < repeats/5 {
					t.Errorf("only %d by ranks: the case is no test", ranks)
				}
			})
		}
	}
}

// TestShift: p, end of the interval and number of rounds agree with each other and with tables.
func TestShift(t *testing.T) {
	s := ShiftOf([]float64{0, 2, 4, 6, 8}, []float64{7, 9, 11, 13, 15}) // 7 more, variances of 10, 8 degrees of freedom
	if s.Logs || s.By != 7 || math.Abs(s.error-2) > 1e-9 || math.Abs(s.free-8) > 1e-9 || math.Abs(s.Noise-math.Sqrt(10)) > 1e-9 {
		t.Errorf("%+v", s)
	}
	if hi := s.AtMost(0.975); math.Abs(hi-(7+2*2.306)) > 1e-3 {
		t.Errorf("at most %v, want 2.306 standard errors more", hi)
	}
	if p := s.Beyond(7 - 2*1.860); math.Abs(p-0.05) > 1e-4 {
		t.Errorf("p %v of 1.86 standard errors, want 0.05", p)
	}
	// With 18 degrees of freedom, z becomes t: a little above the estimate.
	if n := s.RoundsFor(11, 0.975); n < 5 || n > 8 || s.RoundsFor(7, 0.975) != 0 {
		t.Errorf("%d rounds", n)
	}
	same := ShiftOf([]float64{3, 3, 3, 3}, []float64{3, 3, 3, 3})
	more := ShiftOf([]float64{0, 0, 0, 0}, []float64{8, 8, 8, 8})
	if same.differs() != 1 || same.AtMost(0.99) != 0 || more.differs() != 0 || more.Beyond(8) != 1 || more.AtMost(0.99) != 8 {
		t.Errorf("constant figures: %+v, %+v", same, more)
	}
}
