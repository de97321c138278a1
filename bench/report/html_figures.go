package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"watchlab/bench/lab"
	"watchlab/bench/report/chart"
	"watchlab/bench/stats"
)

// axisCount writes a count on an axis with few digits.
func axisCount(v float64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if math.Abs(v) >= u.size*0.9999 {
			return strconv.FormatFloat(v/u.size, 'g', 3, 64) + u.name
		}
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// axisTime writes a duration on an axis, given in nanoseconds.
func axisTime(v float64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{1e9, "s"}, {1e6, "ms"}, {1e3, "µs"}} {
		if v >= u.size*0.9999 {
			return strconv.FormatFloat(v/u.size, 'g', 3, 64) + u.name
		}
	}
	return strconv.FormatFloat(v, 'g', 3, 64) + "ns"
}

// throughput draws the events/s of unpaced rows. A paced throughput does not depend on
// the variant.
func (g group) throughput(id string) (figure, bool) {
	c := chart.Bars{
		Name:        "Throughput of " + g.title,
		Description: "Events a second of each variant, unpaced: the median over the rounds as a bar from zero, its interval, and each round as a dot.",
		Axis:        chart.Axis{Label: "events/s", Format: axisCount},
	}
	var seen []*lab.CellResult
	interval := false
	for _, r := range g.rows {
		if r.paced() || slices.Contains(seen, r.throughput) {
			continue
		}
		seen = append(seen, r.throughput)
		b := chart.Bar{Name: r.variant(), Style: g.styles[r.variant()], Note: r.verdict(0)}
		if values := r.fast[stats.UnitEventsPerSec]; len(values) > 0 {
			s := stats.Summarize(values)
			b.Value, b.Lo, b.Hi, b.Rounds = &s.Median, s.Lo, s.Hi, values
			interval = interval || s.Lo != nil
			b.Note = decimal(s.Median)
			if x := ratioColumn(r, g.rows); x != none {
				b.Note += "  " + x
			}
			b.Note += caution(r.throughput)
			b.Tip = fmt.Sprintf("%s events/s, median of %s", decimal(s.Median), Plural(s.N, "round"))
			if s.Lo != nil {
				b.Tip += fmt.Sprintf(", 95 %% interval %s to %s", decimal(*s.Lo), decimal(*s.Hi))
			}
		}
		c.Rows = append(c.Rows, b)
	}
	caption := "Median of the rounds, which are the dots."
	if interval {
		caption += " The line is the median's 95 % confidence interval."
	} else {
		caption += " There are too few rounds for a confidence interval (6 are needed)."
	}
	return draw(id+"-throughput", "throughput", "Throughput", caption, "", c)
}

// againstRate draws p99 over the rate, for at least two rates.
func (g group) againstRate(id string) (figure, bool) {
	c := chart.Lines{
		Name:        "Latency against rate of " + g.title,
		Description: "99th percentile of latency over the rate at which events were released, a curve for each variant; both axes are logarithmic.",
		X:           chart.Axis{Label: "events/s released", Log: true, Format: axisCount},
		Y:           chart.Axis{Label: "p99", Log: true, Format: axisTime},
	}
	rates := map[float64]bool{}
	for _, r := range g.rows {
		rate, err := strconv.ParseFloat(r.rate(), 64)
		if err != nil || r.wait.Count < 100 {
			continue
		}
		rates[rate] = true
		at := slices.IndexFunc(c.Series, func(s chart.Curve) bool { return s.Name == r.variant() })
		if at < 0 {
			at = len(c.Series)
			c.Series = append(c.Series, chart.Curve{Name: r.variant(), Style: g.styles[r.variant()], Path: true})
		}
		p := chart.Point{X: rate, Y: float64(r.wait.P99), Mark: true}
		p.Tip = fmt.Sprintf("p99 %s at %s events/s, %s", nanoseconds(p.Y), decimal(rate), r.verdict(0))
		if values := r.slow[stats.UnitP99]; len(values) > 1 {
			p.Lo, p.Hi = min(slices.Min(values), p.Y), max(slices.Max(values), p.Y)
		}
		c.Series[at].Points = append(c.Series[at].Points, p)
	}
	if len(rates) < 2 {
		return figure{}, false
	}
	for _, s := range c.Series {
		slices.SortFunc(s.Points, func(a, b chart.Point) int { return int(math.Copysign(1, a.X-b.X)) })
	}
	return draw(id+"-rate", "rate", "Latency against rate", "All rounds together; the line through a mark goes from the smallest round to the largest. What was invalid is not drawn.", "", c)
}

// quantiles draws the latency quantiles of each variant.
func (g group) quantiles(id, rate, choice string) (figure, bool) {
	c := chart.Ranges{
		Name:        "Latency percentiles " + rateTitle(rate),
		Description: "Median, 90th, 99th and 99.9th percentile and longest latency of each variant, on a logarithmic axis.",
		Axis:        chart.Axis{Label: "latency", Log: true, Format: axisTime},
		Marks:       []string{"p50", "p90", "p99", "p99.9", "max"},
	}
	for _, r := range g.rows {
		row := chart.Range{Name: r.variant(), Style: g.styles[r.variant()], Note: r.verdict(0)}
		if r.wait.Count > 1 {
			row.Note = ""
			for _, q := range []struct {
				need uint64
				d    time.Duration
			}{{2, r.wait.P50}, {10, r.wait.P90}, {100, r.wait.P99}, {1000, r.wait.P999}, {2, r.wait.Max}} {
				v := math.NaN()
				if r.wait.Count >= q.need {
					v = float64(max(q.d, 1))
				}
				row.Values = append(row.Values, v)
			}
			if r.wait.Count >= 100 {
				row.Note = "p99 " + nanoseconds(float64(r.wait.P99))
			}
		}
		c.Rows = append(c.Rows, row)
	}
	return draw(id+"-quantiles", "quantiles", "Latency percentiles, "+rateTitle(rate),
		"p50, p90, p99, p99.9 as growing dots, the longest as a ring; all rounds together, only where there are events enough for the quantile."+unpacedCaution(rate), choice, c)
}

func unpacedCaution(rate string) string {
	if rate == lab.Unpaced {
		return " Unpaced, this is mostly the wait in the queue."
	}
	return ""
}

// percentileTicks are the ticks of the percentile axis. Each decade leaves a tenth of
// the events.
var percentileTicks = []chart.Tick{
	{At: 1, Label: "0"}, {At: 2, Label: "50"}, {At: 10, Label: "90"}, {At: 100, Label: "99"}, {At: 1e3, Label: "99.9"}, {At: 1e4, Label: "99.99"},
	{At: 1e5, Label: "99.999"}, {At: 1e6, Label: "5 nines"}, {At: 1e7, Label: "6 nines"},
}

// distribution draws the full latency distribution of each variant. It returns an error
// for an unreadable histogram.
func (g group) distribution(id, rate, choice string) (figure, bool, error) {
	c := chart.Lines{
		Name:        "Distribution of latency " + rateTitle(rate),
		Description: "Latency over the percentile, a curve for each variant. Both axes are logarithmic: each step to the right is a tenth of the events that are left.",
		X:           chart.Axis{Label: "percentile", Log: true, Ticks: percentileTicks, Format: percentileOf},
		Y:           chart.Axis{Label: "latency", Log: true, Format: axisTime},
	}
	for _, r := range g.rows {
		points, err := distributionOf(r, g.wanted)
		if err != nil {
			return figure{}, false, err
		}
		if len(points) == 0 {
			continue
		}
		c.Series = append(c.Series, chart.Curve{Name: r.variant(), Style: g.styles[r.variant()], Path: true, Points: points})
	}
	f, ok := draw(id+"-distribution", "distribution", "Distribution of latency, "+rateTitle(rate),
		"Every event of all rounds; the last mark is the longest."+unpacedCaution(rate), choice, c)
	return f, ok, nil
}

// percentileOf writes the percentile at a position of the axis.
func percentileOf(v float64) string {
	if v <= 1 {
		return "0"
	}
	return strconv.FormatFloat(100-100/v, 'f', max(0, int(math.Ceil(math.Log10(v)-1e-9))-2), 64)
}

// depth draws the number of waiting events over time.
func (g group) depth(id, rate, choice string) (figure, bool) {
	c := chart.Lines{
		Name:        "Queue depth over time " + rateTitle(rate),
		Description: "How many events waited in the queue over the time of the schedule, a curve for each variant.",
		X:           chart.Axis{Label: "seconds", Zero: true, Format: axisCount},
		Y:           chart.Axis{Label: "events queued", Zero: true, Format: axisCount},
		Height:      220,
	}
	for _, r := range g.rows {
		m := typicalTimeline(r, g.wanted)
		s := chart.Curve{Name: r.variant(), Style: g.styles[r.variant()], Path: true}
		for i, at := range m {
			s.Points = append(s.Points, chart.Point{
				X: at.At.Seconds(), Y: float64(at.Depth), Mark: marked(i, len(m)),
				Tip: fmt.Sprintf("%s queued after %s", Plural(int(at.Depth), "event"), wallTime(at.At)),
			})
		}
		c.Series = append(c.Series, s)
	}
	return draw(id+"-depth", "depth", "Queue depth, "+rateTitle(rate), "What was queued and not handed over at the end of each stretch, in the round whose p99 is the median.", choice, c)
}

// handled draws the released and the handled events over time.
func (g group) handled(id, rate, choice string) (figure, bool) {
	c := chart.Lines{
		Name:        "Storm over time " + rateTitle(rate),
		Description: "Events released a second as an area, and events handled a second as a curve for each variant, over the time of the schedule.",
		X:           chart.Axis{Label: "seconds", Zero: true, Format: axisCount},
		Y:           chart.Axis{Label: "events/s", Zero: true, Format: axisCount},
		Height:      220,
	}
	for _, r := range g.rows {
		m := typicalTimeline(r, g.wanted)
		if len(m) == 0 {
			continue
		}
		released := chart.Curve{Name: "released", Background: true, Area: true, Step: true}
		handled := chart.Curve{Name: r.variant(), Style: g.styles[r.variant()], Path: true}
		var before time.Duration
		for i, at := range m {
			seconds := (at.At - before).Seconds()
			before = at.At
			if seconds <= 0 {
				continue
			}
			released.Points = append(released.Points, chart.Point{X: at.At.Seconds(), Y: float64(at.Released) / seconds})
			handled.Points = append(handled.Points, chart.Point{
				X: at.At.Seconds(), Y: float64(at.Handled) / seconds, Mark: marked(i, len(m)),
				Tip: fmt.Sprintf("%s events/s handled, %s released, until %s", decimal(float64(at.Handled)/seconds), decimal(float64(at.Released)/seconds), wallTime(at.At)),
			})
		}
		if len(c.Series) == 0 {
			// All variants share one schedule, so one area suffices.
			c.Series = append(c.Series, released)
		}
		c.Series = append(c.Series, handled)
	}
	return draw(id+"-storm", "storm", "The storm, "+rateTitle(rate), "Released (the area) and handled (the curves) a second, in the round whose p99 is the median.", choice, c)
}

// marked selects about ten points of a long curve for tooltips.
func marked(i, of int) bool {
	every := max(1, of/10)
	return i%every == every-1 || i == of-1
}

// wallTime writes a duration with three digits.
func wallTime(d time.Duration) string {
	for _, unit := range []time.Duration{time.Hour, time.Minute, time.Second, time.Millisecond, time.Microsecond} {
		if d >= unit {
			return d.Round(unit / 100).String()
		}
	}
	return d.String()
}
