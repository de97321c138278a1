package chart

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestTicks(t *testing.T) {
	for _, tc := range []struct {
		log              bool
		lo, hi           float64
		want             []float64
		wantLow, wantTop float64
	}{
		{false, 0, 9.4e6, []float64{0, 2e6, 4e6, 6e6, 8e6, 1e7}, 0, 1e7},
		{false, 0, 1, []float64{0, 0.2, 0.4, 0.6, 0.8, 1}, 0, 1},
		{false, 3, 7, []float64{3, 4, 5, 6, 7}, 3, 7},
		{true, 10_000, 200_000, []float64{10_000, 20_000, 50_000, 100_000, 200_000}, 10_000, 200_000},
		{true, 4000, 1.2e7, []float64{1e4, 1e5, 1e6, 1e7}, 2000, 2e7},
		{true, 1, 1e12, []float64{1, 1e3, 1e6, 1e9, 1e12}, 1, 1e12},
	} {
		s, ticks := newScale(Axis{Log: tc.log, Format: plain}, []float64{tc.lo, tc.hi}, 0, 100, 5)
		near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9*max(1, b) }
		if !slices.EqualFunc(ticks, tc.want, func(a Tick, b float64) bool { return near(a.At, b) }) || !near(s.lo, tc.wantLow) || !near(s.hi, tc.wantTop) {
			t.Errorf("%v to %v: %v, from %v to %v, want %v from %v to %v", tc.lo, tc.hi, ticks, s.lo, s.hi, tc.want, tc.wantLow, tc.wantTop)
		}
	}
}

// TestScalesEncloseValues checks that ticks are few and ascend, and that the
// ends enclose every value.
func TestScalesEncloseValues(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		log := random.IntN(2) == 0
		lo := math.Pow(10, random.Float64()*14-3)
		hi := lo * math.Pow(10, random.Float64()*8)
		s, ticks := newScale(Axis{Log: log, Format: plain}, []float64{lo, hi}, 0, 100, 5)
		if len(ticks) < 2 || len(ticks) > 9 || s.lo > lo*(1+1e-9) || s.hi < hi*(1-1e-9) {
			t.Fatalf("log %v, %v to %v: %v", log, lo, hi, ticks)
		}
		for i := range ticks[1:] {
			if ticks[i].At >= ticks[i+1].At {
				t.Fatalf("log %v, %v to %v: %v", log, lo, hi, ticks)
			}
		}
		for _, v := range []float64{lo, hi} {
			if at := s.at(v); at < -1e-6 || at > 100+1e-6 {
				t.Fatalf("log %v, %v to %v: %v is at %v", log, lo, hi, v, at)
			}
		}
	}
}
