package stats

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// ErrTooFewPoints is wrapped by the error of [FitUSL] for fewer than 4 points.
var ErrTooFewPoints = errors.New("too few points for a fit")

// minUSLPoints is one more than the number of parameters: the law fits any three points exactly.
const minUSLPoints = 4

// resamples is the number of resamples of the bootstrap.
const resamples = 1000

// At returns the throughput of the law at n workers, in events/s.
func (u USL) At(n float64) float64 {
	return u.Lambda.Value * n / (1 + u.Sigma.Value*(n-1) + u.Kappa.Value*n*(n-1))
}

// FitUSL fits the Universal Scalability Law to the medians of the points. It minimises
// the squares of the residuals relative to the curve, because noise is proportional to
// throughput. Sigma and Kappa are at least 0. N must be a number of workers.
//
// The 95 % intervals come from a bootstrap of 1,000 resamples with a fixed seed. Each
// resample draws residuals from the curve, widened for the fitted parameters. For
// points with several rounds it also draws the rounds. With few points the intervals
// are wide. A Peak beyond the last point is extrapolated.
//
// Errors wrap [ErrTooFewPoints] for fewer than 4 points, or name an invalid point.
func FitUSL(points []ScalePoint) (USL, error) {
	n, x := make([]float64, 0, len(points)), make([]float64, 0, len(points))
	for _, p := range points {
		switch {
		case !(p.N >= 1) || math.IsInf(p.N, 1):
			return USL{}, fmt.Errorf("point %v: not a number of workers", p.N)
		case len(p.EventsPerSecond) == 0 || !positive(p.EventsPerSecond):
			return USL{}, fmt.Errorf("point %v: no throughput above 0", p.N)
		}
		n, x = append(n, p.N), append(x, Median(p.EventsPerSecond))
	}
	if len(n) < minUSLPoints {
		return USL{}, fmt.Errorf("%w: %d (want %d)", ErrTooFewPoints, len(n), minUSLPoints)
	}
	best := fitCurve(n, x)
	u := USL{
		Lambda: Estimate{Value: best.lambda()}, Sigma: Estimate{Value: best.sigma()}, Kappa: Estimate{Value: best.kappa()},
		RMSE: math.Sqrt(best.loss(n, x) / float64(len(n))),
	}
	if kappa := u.Kappa.Value; kappa > 0 {
		// For σ ≥ 1, throughput falls from the first worker on.
		u.Peak = math.Max(1, math.Sqrt(math.Max(0, 1-u.Sigma.Value)/kappa))
		u.PeakRate = u.At(u.Peak)
	}
	u.bootstrap(best, n, x, points)
	return u, nil
}

// bootstrap computes the confidence intervals.
func (u *USL) bootstrap(best curve, n, x []float64, points []ScalePoint) {
	residuals := make([]float64, len(n))
	widen := math.Sqrt(float64(len(n)) / float64(len(n)-minUSLPoints+1))
	for i := range n {
		residuals[i] = math.Log(x[i]/best.at(n[i])) * widen
	}
	rng := rand.New(rand.NewPCG(uint64(len(n)), resamples))
	drawn := make([]float64, len(n))
	var lambdas, sigmas, kappas []float64
	for range resamples {
		for i, p := range points {
			rounds := make([]float64, len(p.EventsPerSecond))
			for j := range rounds {
				rounds[j] = p.EventsPerSecond[rng.IntN(len(rounds))]
			}
			drawn[i] = best.at(n[i]) * math.Exp(residuals[rng.IntN(len(residuals))]) * Median(rounds) / x[i]
		}
		c := fitCurve(n, drawn)
		lambdas, sigmas, kappas = append(lambdas, c.lambda()), append(sigmas, c.sigma()), append(kappas, c.kappa())
	}
	u.Lambda.bound(lambdas)
	u.Sigma.bound(sigmas)
	u.Kappa.bound(kappas)
}

// bound sets the interval from the resamples. It includes Value even if the bound at 0
// moved all resamples to one side.
func (e *Estimate) bound(draws []float64) {
	slices.Sort(draws)
	e.Lo = math.Min(e.Value, quantile(draws, (1-Confidence)/2))
	e.Hi = math.Max(e.Value, quantile(draws, (1+Confidence)/2))
}

// curve is the law as N / (a + b(N-1) + cN(N-1)), whose denominator is linear in the parameters.
type curve [3]float64

func (c curve) lambda() float64 { return 1 / c[0] }
func (c curve) sigma() float64  { return c[1] / c[0] }
func (c curve) kappa() float64  { return c[2] / c[0] }

// terms are the factors of a, b and c in the denominator.
func terms(n float64) curve { return curve{1, n - 1, n * (n - 1)} }

func (c curve) at(n float64) float64 {
	t := terms(n)
	return n / (c[0]*t[0] + c[1]*t[1] + c[2]*t[2])
}

// loss is the sum of the squared residuals relative to the curve.
func (c curve) loss(n, x []float64) (sum float64) {
	for i := range n {
		sum += math.Pow(x[i]/c.at(n[i])-1, 2)
	}
	return sum
}

// fitCurve minimises the loss with a > 0, b ≥ 0 and c ≥ 0. The residuals are linear in the parameters. At an active
// bound the parameter is 0. So the solution is the best feasible one over the four sets of free parameters.
func fitCurve(n, x []float64) (best curve) {
	least, ones := math.Inf(1), slices.Repeat([]float64{1}, len(n))
	for _, free := range [][]int{{0, 1, 2}, {0, 1}, {0, 2}, {0}} {
		rows := make([][]float64, len(n))
		for i := range n {
			for _, p := range free {
				rows[i] = append(rows[i], terms(n[i])[p]*x[i]/n[i])
			}
		}
		var c curve
		solution, _, _ := leastSquares(rows, ones)
		for a, value := range solution {
			c[free[a]] = value
		}
		if l := c.loss(n, x); c[0] > 0 && c[1] >= 0 && c[2] >= 0 && l < least {
			best, least = c, l
		}
	}
	return best
}
