package stats

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
)

// TestFitLinear: of points without noise the law is exact, and the intervals of noisy ones hold the truth 95 times of 100.
func TestFitLinear(t *testing.T) {
	truth := func(x []float64) float64 { return 10e6 + 2000*x[0] + 700*x[1] }
	at := [][]float64{{1e3, 1e3}, {4e3, 1e3}, {1e3, 4e3}, {4e3, 4e3}, {1e3, 1e3}, {4e3, 1e3}, {1e3, 4e3}, {4e3, 4e3}}
	var points []LinearPoint
	for _, x := range at {
		points = append(points, LinearPoint{x, truth(x)})
	}
	l, err := FitLinear(points)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{10e6, 2000, 700} {
		if c := l.Coefficients[i]; math.Abs(c.Value-want) > 1e-6*want || c.Hi-c.Lo > 1e-4*want {
			t.Errorf("coefficient %d: %+v, want %v", i, c, want)
		}
	}
	far := []float64{12e3, 0}
	rng := rand.New(rand.NewPCG(1, 2))
	noisy := func(x []float64) float64 { return truth(x) + 200*math.Sqrt(truth(x))*rng.NormFloat64() }
	var slope, predicted int
	const times = 2000
	for range times {
		for i, x := range at {
			points[i].Y = noisy(x)
		}
		l, err := FitLinear(points)
		if err != nil {
			t.Fatal(err)
		}
		if c := l.Coefficients[1]; c.Lo <= 2000 && 2000 <= c.Hi {
			slope++
		}
		one := noisy(far)
		if p := l.Predict(far); p.Lo <= one && one <= p.Hi {
			predicted++
		}
	}
	for name, n := range map[string]int{"slope": slope, "prediction": predicted} {
		if share := float64(n) / times; share < 0.92 || share > 0.98 {
			t.Errorf("%s: %.3f of the intervals hold it", name, share)
		}
	}
}

func TestFitLinearRefuses(t *testing.T) {
	if _, err := FitLinear(nil); !errors.Is(err, ErrTooFewPoints) {
		t.Error(err)
	}
	one := LinearPoint{[]float64{1}, 5}
	if _, err := FitLinear([]LinearPoint{one, one}); !errors.Is(err, ErrTooFewPoints) {
		t.Error(err)
	}
	if _, err := FitLinear([]LinearPoint{one, one, one}); err == nil {
		t.Error("a law of one point")
	}
	if l, err := FitLinear([]LinearPoint{{[]float64{1}, 0}, {[]float64{2}, 0}, {[]float64{3}, 0}}); err != nil || l.Predict([]float64{9}).Value != 0 {
		t.Error(err)
	}
}
