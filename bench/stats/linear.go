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
	// root is the square root of a point's weight. A Y near 0 must not rule.
	root := func(y float64) float64 { return 1 / math.Sqrt(max(y, mean/100, math.SmallestNonzeroFloat32)) }
	rows, rights := make([][]float64, len(points)), make([]float64, len(points))
	for i, p := range points {
		for _, v := range append([]float64{1}, p.X...) {
			rows[i] = append(rows[i], root(p.Y)*v)
		}
		rights[i] = root(p.Y) * p.Y
	}
	solution, inverse, ok := leastSquares(rows, rights)
	if !ok {
		return nil, errors.New("no fit: the numbers do not vary by themselves")
	}
	l := &Linear{Coefficients: make([]Estimate, k), covariance: inverse}
	for i, value := range solution {
		l.Coefficients[i].Value = value
	}
	free, sum := float64(len(points)-k), 0.0
	for _, p := range points {
		sum += math.Pow(root(p.Y)*(p.Y-l.at(p.X)), 2)
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

// leastSquares solves linear equations by the normal equations, and returns the inverse of their matrix, too. It returns
// false for a singular system.
func leastSquares(rows [][]float64, rights []float64) (solution []float64, inverse [][]float64, ok bool) {
	k := len(rows[0])
	normal, scale := make([][]float64, k), make([]float64, k) // the matrix and, beside it, the unit matrix
	for a := range k {
		normal[a] = make([]float64, 2*k)
		normal[a][k+a] = 1
		for _, row := range rows {
			for b, v := range row {
				normal[a][b] += row[a] * v
			}
		}
		scale[a] = math.Sqrt(normal[a][a])
	}
	for i := range k { // Gauss-Jordan elimination; a positive definite matrix needs no pivoting.
		pivot := normal[i][i]
		// The diagonal is scaled to 1: a column may be 10⁶ times another.
		if !(pivot > 1e-14*scale[i]*scale[i]) {
			return nil, nil, false
		}
		for l := range normal[i] {
			normal[i][l] /= pivot
		}
		for j := range k {
			factor := normal[j][i]
			for l := range normal[j] {
				if j != i {
					normal[j][l] -= factor * normal[i][l]
				}
			}
		}
	}
	solution = make([]float64, k)
	for a := range k {
		inverse = append(inverse, normal[a][k:])
		for i, row := range rows {
			for b, v := range row {
				solution[a] += inverse[a][b] * v * rights[i]
			}
		}
	}
	return solution, inverse, true
}
