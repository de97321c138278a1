package chart

import (
	"math"
	"slices"
)

// Axis maps values to positions.
type Axis struct {
	// Label names the figure and its unit.
	Label string
	// Log selects a logarithmic axis, for values of different magnitudes. It omits
	// values of 0 and less.
	Log bool
	// Zero starts a linear axis at 0.
	Zero bool
	// Format writes a value; nil writes it unchanged.
	Format func(float64) string
	// Ticks replace the automatic ticks; nil selects the automatic ones.
	Ticks []Tick
}

// Tick is a position on an axis with its label.
type Tick struct {
	// At is in the values of the axis.
	At float64
	// Label is written as it is.
	Label string
}

func (a Axis) format(v float64) string {
	if a.Format == nil {
		return n(v)
	}
	return a.Format(v)
}

// scale maps the range of an axis to a length.
type scale struct {
	axis     Axis
	lo, hi   float64 // values
	from, to float64 // positions
}

// has reports whether a value is on the axis.
func (a Axis) has(v float64) bool {
	return !math.IsNaN(v) && !math.IsInf(v, 0) && (!a.Log || v > 0)
}

// scaleOf maps the range of the values to the positions from and to.
func scaleOf(a Axis, values []float64, from, to float64) scale {
	s := scale{axis: a, from: from, to: to}
	values = slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return !a.has(v) })
	if len(values) == 0 {
		values = []float64{1}
	}
	s.lo, s.hi = slices.Min(values), slices.Max(values)
	switch {
	case a.Log:
		if s.hi/s.lo < 1.5 {
			s.lo, s.hi = s.lo/1.5, s.hi*1.5
		}
	default:
		if a.Zero {
			s.lo, s.hi = min(s.lo, 0), max(s.hi, 0)
		}
		if s.hi == s.lo {
			s.hi = s.lo + max(math.Abs(s.lo), 1)
		}
	}
	return s
}

// at returns the position of a value.
func (s scale) at(v float64) float64 {
	lo, hi := s.lo, s.hi
	if s.axis.Log {
		lo, hi, v = math.Log(lo), math.Log(hi), math.Log(v)
	}
	return s.from + (v-lo)/(hi-lo)*(s.to-s.from)
}

// widen extends the range to round values and returns the scale with approximately
// about ticks.
func (s scale) widen(about int) (scale, []Tick) {
	if len(s.axis.Ticks) > 0 {
		return s, slices.DeleteFunc(slices.Clone(s.axis.Ticks), func(t Tick) bool { return t.At < s.lo*(1-1e-9) || t.At > s.hi*(1+1e-9) })
	}
	var at []float64
	if s.axis.Log {
		round := roundLogs(s.lo, s.hi)
		s.lo, s.hi = round[0], round[len(round)-1]
		at = thin(round, about)
	} else {
		at = linearTicks(s.lo, s.hi, about)
		s.lo, s.hi = at[0], at[len(at)-1]
	}
	var ticks []Tick
	for _, v := range at {
		ticks = append(ticks, Tick{v, s.axis.format(v)})
	}
	return s, ticks
}

// linearTicks returns multiples of 1, 2 or 5 times a power of ten that enclose lo and
// hi.
func linearTicks(lo, hi float64, about int) []float64 {
	raw := (hi - lo) / float64(about)
	power := math.Pow(10, math.Floor(math.Log10(raw)))
	step := 10 * power
	for _, m := range []float64{1, 2, 5} {
		if m*power >= raw {
			step = m * power
			break
		}
	}
	var at []float64
	for i := math.Floor(lo/step + 1e-9); ; i++ {
		// A product instead of a sum: rounding errors do not accumulate.
		at = append(at, i*step)
		if i*step >= hi-step*1e-9 {
			return at
		}
	}
}

// roundLogs returns 1, 2 and 5 times the powers of ten that enclose lo and hi.
func roundLogs(lo, hi float64) []float64 {
	var all []float64
	for p := int(math.Floor(math.Log10(lo))) - 1; p <= int(math.Ceil(math.Log10(hi)))+1; p++ {
		for _, m := range []float64{1, 2, 5} {
			all = append(all, m*math.Pow(10, float64(p)))
		}
	}
	begin, end := 0, len(all)-1
	for all[begin+1] <= lo*(1+1e-9) {
		begin++
	}
	for all[end-1] >= hi*(1-1e-9) {
		end--
	}
	return all[begin : end+1]
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
	for i := 0; i < len(powers); i += every {
		out = append(out, powers[i])
	}
	return out
}
