package stats

import (
	"errors"
	"fmt"
	"math"

	moremath "github.com/aclements/go-moremath/stats"
)

// Linear is a linear law y = c0 + c1·x1 + …, fitted to points.
type Linear struct {
	// Coefficients are the constant and that of each x, with their 95 % intervals.
	Coefficients []Estimate

	covariance [][]float64
	spread     float64 // standard deviation of a point, over the root of its Y
	t          float64 // Student's, for the interval
}

// LinearPoint is a point of a linear law.
type LinearPoint struct {
	X []float64
	Y float64 // at least 0
}

// FitLinear fits a linear law by least squares. The variance of a point is taken to be proportional to its Y: memory and
// time vary more where there is more of them, but by a smaller share. The intervals are Student's. With k values of X it
// takes k + 2 points, in which each X varies by itself; the error says that they are too few.
func FitLinear(points []LinearPoint) (*Linear, error) {
	if len(points) == 0 || len(points) < len(points[0].X)+2 {
		return nil, fmt.Errorf("%w: %d", ErrTooFewPoints, len(points))
	}
	k, mean := len(points[0].X)+1, 0.0
	for _, p := range points {
		mean += p.Y / float64(len(points))
	}
	weight := func(y float64) float64 { // A Y near 0 must not rule.
		return 1 / max(y, mean/100, math.SmallestNonzeroFloat32)
	}
	solution, inverse, ok := leastSquares(len(points), k, func(i int) ([]float64, float64, float64) {
		p := points[i]
		return append([]float64{1}, p.X...), p.Y, weight(p.Y)
	})
	if !ok {
		return nil, errors.New("no fit: the numbers do not vary by themselves")
	}
	l := &Linear{Coefficients: make([]Estimate, k), covariance: inverse}
	for i, value := range solution {
		l.Coefficients[i].Value = value
	}
	free, sum := float64(len(points)-k), 0.0
	for _, p := range points {
		d := p.Y - l.at(p.X)
		sum += weight(p.Y) * d * d
	}
	l.spread = math.Sqrt(sum / free)
	l.t = moremath.InvCDF(moremath.TDist{V: free})((1 + Confidence) / 2)
	for i := range l.Coefficients {
		c := &l.Coefficients[i]
		half := l.t * l.spread * math.Sqrt(inverse[i][i])
		c.Lo, c.Hi = c.Value-half, c.Value+half
	}
	return l, nil
}

func (l *Linear) at(x []float64) float64 {
	y := l.Coefficients[0].Value
	for i, v := range x {
		y += l.Coefficients[i+1].Value * v
	}
	return y
}

// Predict returns the law at x, with the 95 % interval for one more measurement.
func (l *Linear) Predict(x []float64) Estimate {
	y, row, variance := l.at(x), append([]float64{1}, x...), 0.0
	for i := range row {
		for j := range row {
			variance += row[i] * l.covariance[i][j] * row[j]
		}
	}
	half := l.t * l.spread * math.Sqrt(variance+max(0, y))
	return Estimate{Value: y, Lo: y - half, Hi: y + half}
}

// leastSquares solves count weighted linear equations with k unknowns by the normal equations, and returns the inverse of
// their matrix, too. It returns false for a singular system.
func leastSquares(count, k int, equation func(i int) (row []float64, right, weight float64)) (solution []float64, inverse [][]float64, ok bool) {
	normal, rights := square(k), make([]float64, k)
	for i := range count {
		row, right, weight := equation(i)
		for a := range k {
			for b := range k {
				normal[a][b] += weight * row[a] * row[b]
			}
			rights[a] += weight * row[a] * right
		}
	}
	if inverse, ok = invert(normal); !ok {
		return nil, nil, false
	}
	solution = make([]float64, k)
	for a := range k {
		for b := range k {
			solution[a] += inverse[a][b] * rights[b]
		}
	}
	return solution, inverse, true
}

func square(k int) [][]float64 {
	m := make([][]float64, k)
	for i := range m {
		m[i] = make([]float64, k)
	}
	return m
}

// invert inverts a positive definite matrix, which it scales to a diagonal of 1: a column may be 10⁶ times another. It
// returns false for a singular one, and changes m.
func invert(m [][]float64) ([][]float64, bool) {
	k := len(m)
	scale := make([]float64, k)
	out := square(k)
	for i := range m {
		if scale[i] = math.Sqrt(m[i][i]); !(scale[i] > 0) {
			return nil, false
		}
		out[i][i] = 1
	}
	for i := range m {
		for j := range m {
			m[i][j] /= scale[i] * scale[j]
		}
	}
	for i := range m { // Gauss-Jordan elimination; a positive definite matrix needs no pivoting.
		pivot := m[i][i]
		if pivot < 1e-14 {
			return nil, false
		}
		for l := range k {
			m[i][l], out[i][l] = m[i][l]/pivot, out[i][l]/pivot
		}
		for j := range m {
			factor := m[j][i]
			for l := range k {
				if j != i {
					m[j][l], out[j][l] = m[j][l]-factor*m[i][l], out[j][l]-factor*out[i][l]
				}
			}
		}
	}
	for i := range out {
		for j := range out {
			out[i][j] /= scale[i] * scale[j]
		}
	}
	return out, true
}
