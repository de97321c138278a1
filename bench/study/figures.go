package study

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/perf/benchunit"

	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// figure is a cell that has figures.
type figure struct {
	*lab.CellResult
	samples stats.Samples
}

// figures are the cells of an outcome that have some, the A/A cells left out; none
// of an outcome that isn't there.
func figuresOf(o *lab.Outcome) figures {
	var all figures
	if o == nil {
		return nil
	}
	for i := range o.Comparisons {
		c := &o.Comparisons[i]
		for j := range c.Cells {
			cl := &c.Cells[j]
			if cl.Repeats == "" && len(cl.Rounds) > 0 {
				all = append(all, figure{cl, cl.Samples(c.Latency)})
			}
		}
	}
	return all
}

type figures []figure

// having returns those with the labels, given as key, value, key, value.
func (f figures) having(labels ...string) figures {
	return slices.DeleteFunc(slices.Clone(f), func(c figure) bool {
		for i := 0; i+1 < len(labels); i += 2 {
			if c.Label(labels[i]) != labels[i+1] {
				return true
			}
		}
		return false
	})
}

// with returns those that have the label at all.
func (f figures) with(key string) figures {
	return slices.DeleteFunc(slices.Clone(f), func(c figure) bool { return c.Label(key) == "" })
}

// values returns the different values of a label, in the order of the cells.
func (f figures) values(key string) []string {
	var out []string
	for _, c := range f {
		if v := c.Label(key); v != "" && !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// measured returns those that have a figure in the unit.
func (f figures) measured(unit string) figures {
	return slices.DeleteFunc(slices.Clone(f), func(c figure) bool { return len(c.samples[unit]) == 0 })
}

// one returns the only cell; false where there is another number of them.
func (f figures) one() (figure, bool) {
	if len(f) != 1 {
		return figure{}, false
	}
	return f[0], true
}

// best returns the cell with the best median in the unit; false where none has
// one.
func (f figures) best(unit string) (figure, bool) {
	m := f.measured(unit)
	if len(m) == 0 {
		return figure{}, false
	}
	more := stats.Better(unit) == stats.Higher
	return slices.MaxFunc(m, func(a, b figure) int {
		x, y := a.median(unit), b.median(unit)
		if !more {
			x, y = y, x
		}
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	}), true
}

func (c figure) median(unit string) float64 { return stats.Median(c.samples[unit]) }

// impl is the variant, with its delivery where it has one.
func (c figure) impl() string { return c.Label("impl") }

// number of a label, such as a batch size; NaN where it is none.
func number(label string) float64 {
	v, err := strconv.ParseFloat(label, 64)
	if err != nil {
		return math.NaN()
	}
	return v
}

// show writes a figure with its unit.
func show(v float64, unit string) string {
	switch {
	case v == 0 && strings.HasSuffix(unit, "-ns"):
		return "0s"
	case unit == stats.UnitEventsPerSec:
		return benchunit.Scale(v, benchunit.Decimal) + " events/s"
	case strings.HasSuffix(unit, "-ns"):
		return benchunit.Scale(v*1e-9, benchunit.Decimal) + "s"
	case strings.HasPrefix(unit, "ns/"), strings.HasSuffix(unit, "-ns/op"), strings.HasSuffix(unit, "-ns/event"):
		return benchunit.Scale(v*1e-9, benchunit.Decimal) + "s an event"
	case strings.HasPrefix(unit, "B/"):
		return benchunit.Scale(v, benchunit.Binary) + "B an event"
	case strings.HasSuffix(unit, "-B"):
		return benchunit.Scale(v, benchunit.Binary) + "B"
	case strings.HasSuffix(unit, "-events"):
		return digits(v) + " events"
	}
	return digits(v) + " " + unit
}

// digits writes a number with three digits.
func digits(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1e6 {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	if math.Abs(v) >= 1000 {
		return benchunit.Scale(v, benchunit.Decimal)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// times writes a ratio.
func times(r float64) string {
	switch {
	case r >= 99.5:
		return fmt.Sprintf("%.0f times", r)
	case r >= 9.95:
		return fmt.Sprintf("%.1f times", r)
	case r >= 0.0995 || r == 0:
		return fmt.Sprintf("%.2f times", r)
	}
	return strconv.FormatFloat(r, 'g', 2, 64) + " times"
}

// difference is how one cell's figure lies beside another's.
type difference struct {
	stats.Comparison

	seen float64
}

// beside holds c against base.
func (c figure) beside(base figure, unit string) difference {
	d := difference{Comparison: stats.Compare(base.samples[unit], c.samples[unit])}
	if share, ok := stats.MinDetectable(base.samples[unit], c.samples[unit]); ok {
		d.seen = share
	}
	return d
}

// told reports whether the difference can be told from chance.
func (d difference) told() bool { return d.Testable && d.Significant }

// String says "3.10 times", "no difference" or that it can't be told, with what it
// rests on.
func (d difference) String() string {
	switch {
	case math.IsNaN(d.Ratio):
		return "no ratio, the other being 0"
	case !d.Testable:
		return times(d.Ratio) + " (too few rounds to tell it from chance)"
	case !d.Significant:
		return fmt.Sprintf("no difference that could be told from chance (%s; p=%.2f%s)", times(d.Ratio), d.P, d.visible())
	}
	return fmt.Sprintf("%s (%s)", times(d.Ratio), stats.PText(d.P))
}

func (d difference) visible() string {
	if d.seen == 0 {
		return ""
	}
	return fmt.Sprintf("; one of %.0f %% would have been seen", d.seen*100)
}
