package chart

import (
	"math"
	"slices"
)

// Axis maps values to positions.
type Axis struct {
	Label  string               // names the figure and its unit
	Log    bool                 // logarithmic, without values of 0 and less
	Zero   bool                 // starts a linear axis at 0
	Format func(float64) string // writes a value
}

// Tick is a position on an axis, in its values, with its label.
type Tick struct {
	At    float64
	Label string
}

// lacks reports whether a value has no place on the axis.
func (a Axis) lacks(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) || a.Log && v <= 0 }

// scale maps the range of an axis to a length.
type scale struct {
	axis     Axis
	lo, hi   float64 // values
	from, to float64 // positions
}

// newScale maps the range of the values, widened to round values, to the positions from
// and to. It also returns ticks, roughly as many as about.
func newScale(a Axis, values []float64, from, to float64, about int) (scale, []Tick) {
	s := scale{axis: a, from: from, to: to}
	values = slices.DeleteFunc(slices.Clone(values), a.lacks)
	if len(values) == 0 {
		values = []float64{1}
	}
	s.lo, s.hi = slices.Min(values), slices.Max(values)
	if !a.Log && a.Zero {
		s.lo, s.hi = min(s.lo, 0), max(s.hi, 0)
	}
	switch {
	case a.Log && s.hi/s.lo < 1.5:
		s.lo, s.hi = s.lo/1.5, s.hi*1.5
	case !a.Log && s.hi == s.lo:
		s.hi = s.lo + max(math.Abs(s.lo), 1)
	}
	round := linearTicks(s.lo, s.hi, about)
	if a.Log {
		round = roundLogs(s.lo, s.hi)
	}
	s.lo, s.hi = round[0], round[len(round)-1]
	if a.Log {
		round = thin(round, about)
	}
	var ticks []Tick
	for _, v := range round {
		ticks = append(ticks, Tick{v, a.Format(v)})
	}
	return s, ticks
}

// at returns the position of a value.
func (s scale) at(v float64) float64 {
	lo, hi := s.lo, s.hi
	if s.axis.Log {
		lo, hi, v = math.Log(lo), math.Log(hi), math.Log(v)
	}
	return s.from + (v-lo)/(hi-lo)*(s.to-s.from)
}

// nice returns the smallest of 1, 2 and 5 times the powers of ten that is at least v.
func nice(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= v*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// linearTicks returns multiples of a nice step that enclose lo and hi.
func linearTicks(lo, hi float64, about int) []float64 {
	step := nice((hi - lo) / float64(about))
	var at []float64
	for i := math.Floor(lo/step + 1e-9); ; i++ {
		// A product instead of a sum: rounding errors do not accumulate.
		at = append(at, i*step)
		if i*step >= hi-step*1e-9 {
			return at
		}
	}
}

// roundLogs returns the nice numbers that enclose lo and hi.
func roundLogs(lo, hi float64) []float64 {
	last := 1 / nice(1/lo) // the largest one that is at most lo
	all := []float64{last}
	for last < hi*(1-1e-9) {
		last = nice(last * 1.5)
		all = append(all, last)
	}
	return all
}

// thin keeps the powers of ten, or every n-th of them, if there are too many ticks.
func thin(round []float64, about int) []float64 {
	if len(round) <= about+2 {
		return round
	}
	powers := slices.DeleteFunc(slices.Clone(round), func(v float64) bool {
		l := math.Log10(v)
		return math.Abs(l-math.Round(l)) > 1e-9
	})
	every := (len(powers) + about) / (about + 1)
	var out []float64
	for group := range slices.Chunk(powers, every) {
		out = append(out, group[0])
	}
	return out
}
