package stats

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// sparc is the throughput of a SPARCcenter 2000 in the SPEC SDM91 benchmark
// (Gunther, Guerrilla Capacity Planning, 2007).
var sparc = []struct{ n, x float64 }{
	{1, 64.9}, {18, 995.9}, {36, 1652.4}, {72, 1853.2}, {108, 1828.9}, {144, 1775.0}, {216, 1702.2},
}

// TestPublishedPoints: the fit is near that of a random search, whose residuals are relative to the measurements, and no
// curve beside it has a smaller loss.
func TestPublishedPoints(t *testing.T) {
	var n, x []float64
	for _, p := range sparc {
		n, x = append(n, p.n), append(x, p.x)
	}
	c := fitCurve(n, x)
	for name, f := range map[string]struct{ got, want float64 }{
		"λ": {c.lambda(), 67.7090}, "σ": {c.sigma(), 0.0135152}, "κ": {c.kappa(), 0.000115091},
	} {
		if math.Abs(f.got/f.want-1) > 0.02 {
			t.Errorf("%s is %.8g, want %.8g", name, f.got, f.want)
		}
	}
	for i := range c {
		for _, by := range []float64{0.999, 1.001} {
			other := c
			if other[i] *= by; other.loss(n, x) <= c.loss(n, x) {
				t.Errorf("parameter %d: %v has the loss %v, and %v %v", i, other, other.loss(n, x), c, c.loss(n, x))
			}
		}
	}
}

func law(lambda, sigma, kappa, n float64) float64 {
	return lambda * n / (1 + sigma*(n-1) + kappa*n*(n-1))
}

func TestFitRecoversParameters(t *testing.T) {
	for name, l := range map[string]struct{ lambda, sigma, kappa, peak float64 }{
		"linear":         {1e6, 0, 0, 0},
		"coherency":      {3e6, 0, 0.01, 10},
		"both":           {7, 0.05, 0.002, math.Sqrt(0.95 / 0.002)},
		"all in a queue": {1e6, 1, 0, 0},
		"falls at once":  {1e6, 1, 0.5, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var points []ScalePoint
			for _, n := range []float64{8, 1, 2, 64, 4, 16, 32} {
				x := law(l.lambda, l.sigma, l.kappa, n)
				points = append(points, ScalePoint{N: n, EventsPerSecond: []float64{x, x, x}})
			}
			u, err := FitUSL(points)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range []struct {
				name      string
				got       Estimate
				want, eps float64
			}{{"λ", u.Lambda, l.lambda, 1e-6 * l.lambda}, {"σ", u.Sigma, l.sigma, 1e-6}, {"κ", u.Kappa, l.kappa, 1e-7}} {
				if math.Abs(e.got.Value-e.want) > e.eps || e.got.Lo > e.got.Value || e.got.Hi < e.got.Value {
					t.Errorf("%s %+v, want %v", e.name, e.got, e.want)
				}
			}
			if math.Abs(u.Peak-l.peak) > 1e-3*math.Max(l.peak, 1) && u.Kappa.Value > 1e-9 {
				t.Errorf("peak %v, want %v", u.Peak, l.peak)
			}
			if u.RMSE > 1e-6 {
				t.Errorf("RMSE %v of points without noise", u.RMSE)
			}
		})
	}
}

// TestFitStaysInBounds: superlinear throughput yields zero contention and
// coherency, not negative values.
func TestFitStaysInBounds(t *testing.T) {
	var points []ScalePoint
	for _, n := range []float64{1, 2, 4, 8} {
		points = append(points, ScalePoint{N: n, EventsPerSecond: []float64{100 * math.Pow(n, 1.2)}})
	}
	u, err := FitUSL(points)
	if err != nil {
		t.Fatal(err)
	}
	if u.Sigma.Value != 0 || u.Kappa.Value != 0 || u.Peak != 0 || u.Lambda.Value < 100 || u.Lambda.Value > 160 {
		t.Errorf("%+v", u)
	}
	if u.RMSE < 0.05 {
		t.Errorf("RMSE %v of a line through a curve, want more", u.RMSE)
	}
}

// TestIntervalCoverage: over many fits to noisy points, the intervals cover the
// parameters at about their nominal rate.
func TestIntervalCoverage(t *testing.T) {
	for _, rounds := range []int{1, 5} {
		t.Run(fmt.Sprintf("%d rounds", rounds), func(t *testing.T) { intervalsHold(t, rounds) })
	}
}

func intervalsHold(t *testing.T, rounds int) {
	const fits, sigma, kappa = 12, 0.08, 0.003
	rng := rand.New(rand.NewPCG(1, 2))
	held := 0
	for range fits {
		var points []ScalePoint
		for _, n := range []float64{1, 2, 3, 4, 6, 8, 12, 16} {
			p := ScalePoint{N: n}
			for range rounds {
				p.EventsPerSecond = append(p.EventsPerSecond, law(1e6, sigma, kappa, n)*math.Exp(0.03*rng.NormFloat64()))
			}
			points = append(points, p)
		}
		u, err := FitUSL(points)
		if err != nil {
			t.Fatal(err)
		}
		if u.Sigma.Lo <= sigma && sigma <= u.Sigma.Hi && u.Kappa.Lo <= kappa && kappa <= u.Kappa.Hi {
			held++
		}
		if u.Sigma.Hi-u.Sigma.Lo > 0.3 {
			t.Errorf("σ between %v and %v: the interval is too wide", u.Sigma.Lo, u.Sigma.Hi)
		}
	}
	if held < fits*8/10 {
		t.Errorf("the intervals contain both parameters in %d of %d fits", held, fits)
	}
}

func TestFitErrors(t *testing.T) {
	good := func(n float64) ScalePoint { return ScalePoint{N: n, EventsPerSecond: []float64{n}} }
	if _, err := FitUSL([]ScalePoint{good(1), good(2), good(4)}); !errors.Is(err, ErrTooFewPoints) {
		t.Errorf("three points: %v", err)
	}
	for name, p := range map[string]ScalePoint{
		"no number": {N: 0, EventsPerSecond: []float64{1}}, "nothing played": {N: 8, EventsPerSecond: []float64{0}},
		"not finite": {N: math.Inf(1), EventsPerSecond: []float64{1}}, "no figure": {N: 8, EventsPerSecond: []float64{math.NaN()}},
	} {
		if _, err := FitUSL([]ScalePoint{good(1), good(2), good(3), good(4), p}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
