package stats

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	moremath "github.com/aclements/go-moremath/stats"
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
// the squares of the relative residuals, because noise is proportional to throughput.
// Sigma and Kappa are at least 0. N must be a number of workers.
//
// The 95 % intervals come from a bootstrap of 1,000 resamples with a fixed seed. Each
// resample draws residuals from the curve, widened for the fitted parameters. For
// points with several rounds it also draws the rounds. With few points the intervals
// are wide. A Peak beyond the last point is extrapolated.
//
// Errors wrap [ErrTooFewPoints] for fewer than 4 points, or name an invalid point. The
// points may be in any order and are not modified.
func FitUSL(points []ScalePoint) (USL, error) {
	// A fixed order makes the bootstrap deterministic.
	points = slices.SortedFunc(slices.Values(points), func(a, b ScalePoint) int { return cmp.Compare(a.N, b.N) })
	n, x := make([]float64, 0, len(points)), make([]float64, 0, len(points))
	for _, p := range points {
		switch {
		case !(p.N > 0) || math.IsInf(p.N, 1):
			return USL{}, fmt.Errorf("point %v: not a number of workers", p.N)
		case slices.Contains(n, p.N):
			return USL{}, fmt.Errorf("point %v: twice", p.N)
		case len(p.EventsPerSecond) == 0 || !positive(p.EventsPerSecond):
			return USL{}, fmt.Errorf("point %v: no throughput above 0", p.N)
		}
		n, x = append(n, p.N), append(x, Median(p.EventsPerSecond))
	}
	if len(n) < minUSLPoints {
		return USL{}, fmt.Errorf("%w: %d (want %d)", ErrTooFewPoints, len(n), minUSLPoints)
	}
	best := fitCurve(n, x, relative(x))
	u := USL{
		Lambda: Estimate{Value: best.lambda()}, Sigma: Estimate{Value: best.sigma()}, Kappa: Estimate{Value: best.kappa()},
	}
	if kappa := u.Kappa.Value; kappa > 0 {
		// For σ ≥ 1, throughput falls from the first worker on.
		u.Peak = math.Max(1, math.Sqrt(math.Max(0, 1-u.Sigma.Value)/kappa))
		u.PeakRate = u.At(u.Peak)
	}
	u.RMSE, u.R2 = goodness(best, n, x)
	u.bootstrap(best, n, x, points)
	return u, nil
}

// goodness returns the relative root mean square error and R².
func goodness(c curve, n, x []float64) (rmse, r2 float64) {
	count := float64(len(x))
	if all := moremath.Variance(x) * (count - 1); all > 0 {
		r2 = 1 - c.loss(n, x, slices.Repeat([]float64{1}, len(x)))/all
	}
	return math.Sqrt(c.loss(n, x, relative(x)) / count), r2
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
		c := fitCurve(n, drawn, relative(drawn))
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

// defined reports whether the throughput is above 0 at one worker and at each n.
func (c curve) defined(n []float64) bool {
	return c[0] > 0 && !slices.ContainsFunc(n, func(v float64) bool {
		at := c.at(v)
		return !(at > 0) || math.IsInf(at, 1)
	})
}

// loss is the sum of the squared residuals with weights w.
func (c curve) loss(n, x, w []float64) float64 {
	sum := 0.0
	for i := range n {
		d := x[i] - c.at(n[i])
		sum += w[i] * d * d
	}
	return sum
}

// relative returns the weights of relative residuals.
func relative(x []float64) []float64 {
	w := make([]float64, len(x))
	for i, v := range x {
		w[i] = 1 / (v * v)
	}
	return w
}

// fitCurve minimises the weighted squares of the residuals with a > 0, b ≥ 0 and c ≥ 0.
// At an active bound the parameter is 0. So the solution is the best feasible one over
// the four sets of free parameters.
func fitCurve(n, x, w []float64) curve {
	var best curve
	least := math.Inf(1)
	for _, free := range [][]int{{0, 1, 2}, {0, 1}, {0, 2}, {0}} {
		c := descend(n, x, w, free)
		if l := c.loss(n, x, w); c.defined(n) && c[1] >= 0 && c[2] >= 0 && l < least {
			best, least = c, l
		}
	}
	return best
}

// descend is the Gauss-Newton method for least squares over the free parameters. It starts at the
// solution of the linear problem N/X = a + b(N-1) + cN(N-1), and halves a step until it improves.
func descend(n, x, w []float64, free []int) curve {
	const steps, halvings = 200, 40
	c, ok := solve(free, len(n), func(i int) (curve, float64, float64) {
		// Convert the weight of a residual of X to that of N/X.
		return terms(n[i]), n[i] / x[i], w[i] * math.Pow(x[i], 4) / (n[i] * n[i])
	})
	if !ok || !c.defined(n) {
		// The throughput of one worker without any loss is always defined.
		c = curve{n[0] / x[0]}
	}
	loss := c.loss(n, x, w)
	for range steps {
		step, ok := solve(free, len(n), func(i int) (curve, float64, float64) {
			at, t := c.at(n[i]), terms(n[i])
			slope := -at * at / n[i]
			return curve{slope * t[0], slope * t[1], slope * t[2]}, x[i] - at, w[i]
		})
		if !ok {
			break
		}
		better, length := false, 1.0
		for range halvings {
			next := curve{c[0] + length*step[0], c[1] + length*step[1], c[2] + length*step[2]}
			if l := next.loss(n, x, w); next.defined(n) && l < loss {
				better = loss-l > 1e-15*loss
				c, loss = next, l
				break
			}
			length /= 2
		}
		if !better {
			break
		}
	}
	return c
}

// solve is [leastSquares] for the free parameters.
func solve(free []int, count int, equation func(i int) (terms curve, right, weight float64)) (out curve, ok bool) {
	solution, _, ok := leastSquares(count, len(free), func(i int) (row []float64, right, weight float64) {
		terms, right, weight := equation(i)
		for _, p := range free {
			row = append(row, terms[p])
		}
		return row, right, weight
	})
	for a, value := range solution {
		out[free[a]] = value
	}
	return out, ok
}
