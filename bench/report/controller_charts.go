package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"watchlab/bench/chart"
	"watchlab/bench/controller"
	"watchlab/bench/lab"
)

// tips is the number of points of a series that have a tip and a row in the table of the chart.
const tips = 16

// overTimes are the charts of series over the time of a play.
var overTimes = []struct {
	series, kind, title, caption string
	axis                         chart.Axis
	per                          float64 // of the values in the unit of the axis
	dots                         bool    // in place of a line
}{
	{controller.SeriesLatency, "latency", "Reconcile latency",
		"From the intended time of an event to the first write of the controller that answers it: a dot for each event, the slowest of each interval if there are many.",
		chart.Axis{Label: "latency", Log: true, Format: chart.Nanoseconds}, 1, true},
	{controller.SeriesRequests, "requests", "Requests", "Requests of each second, by verb.", counted("requests/s"), 1, false},
	{controller.SeriesLag, "lag", "Watch lag",
		"Events that are visible to the watch and not yet written to its connection, the largest of the watches.",
		counted("events"), 1, false},
	{controller.SeriesRSS, "rss", "Memory", "Resident memory of the process.", counted("MiB"), 1 << 20, false},
	{controller.SeriesCPU, "cpu", "CPU", "CPU time of the process a second.", counted("cores"), 1, false},
	{controller.SeriesFiles, "files", "Open files", "File descriptors of the process.", counted("files"), 1, false},
	{controller.SeriesGoroutines, "goroutines", "Goroutines", "Scraped from the program's metrics.", counted("goroutines"), 1, false},
	{controller.SeriesDepth, "depth", "Workqueue depth", "Sum of the program's workqueues, scraped from its metrics.", counted("items"), 1, false},
}

func counted(label string) chart.Axis {
	return chart.Axis{Label: label, Zero: true, Format: chart.Count}
}

// controllerCharts draws one play of each fault plan and program, a panel for each plan.
func controllerCharts(o *controller.Result) section {
	s := section{ID: "time", Heading: "Over time",
		Intro: "Time counts from the start of the storm. Numbered lines are faults. Shaded stretches are phases of the storm."}
	groups := groupPlays(o)
	var plans []string
	for _, g := range groups {
		plans = append(plans, g.plan)
	}
	for i, plan := range distinct(plans) {
		p := panel{ID: fmt.Sprintf("time-%d", i+1), Title: "faults: " + plan}
		shown := playsOf(groups, plan)
		if shown[0].Round > 1 || o.Spec.Rounds > 1 {
			which := ""
			if slices.ContainsFunc(shown, (*controller.Play).Failed) {
				which = ", the first that failed"
			}
			p.Notes = append(p.Notes, fmt.Sprintf("Round %d of %d is shown%s.", shown[0].Round, o.Spec.Rounds, which))
		}
		drawPlays(&p, shown)
		if len(p.Figures) > 0 {
			s.Panels = append(s.Panels, p)
		}
	}
	return s
}

// playsOf returns a play of each program with a fault plan: those of the first round in which one failed.
func playsOf(groups []playGroup, plan string) (shown []*controller.Play) {
	for _, g := range groups {
		if g.plan == plan {
			shown = append(shown, g.plays...)
		}
	}
	slices.SortStableFunc(shown, func(a, b *controller.Play) int { return a.Round - b.Round })
	round := shown[max(0, slices.IndexFunc(shown, (*controller.Play).Failed))].Round
	return slices.DeleteFunc(shown, func(p *controller.Play) bool { return p.Round != round })
}

// drawPlays draws the charts of plays with one fault plan. The axis of time has the same length in all.
func drawPlays(p *panel, plays []*controller.Play) {
	var end time.Duration
	for _, play := range plays {
		end = max(end, play.End)
	}
	moments, list := faultMoments(plays[len(plays)-1])
	if len(list) > 0 {
		p.Notes = append(p.Notes, "Faults: "+strings.Join(list, ", ")+".")
	}
	for _, t := range overTimes {
		c := chart.Lines{X: chart.Axis{Label: "seconds", Zero: true, Format: chart.Count}, Y: t.axis, Moments: moments, Most: end.Seconds()}
		for _, ph := range plays[0].Phases {
			c.Bands = append(c.Bands, chart.Band{From: ph.From.Seconds(), To: min(ph.To, end).Seconds(), Name: ph.Name})
		}
		for i, play := range plays {
			parts := seriesOf(play, t.series)
			for k, s := range parts {
				name, style := play.Program, chart.Nth(i+len(plays)*k)
				switch {
				case len(parts) > 1 && len(plays) > 1:
					name += " " + s.Client
				case len(parts) > 1:
					name = s.Client
				case len(plays) > 1 && i == 0:
					style = chart.Of("reference") // the old program, drawn as a baseline
				}
				c.Curves = append(c.Curves, chart.Curve{Name: name, Style: style, Dots: t.dots, Path: !t.dots, Points: pointsOf(s, t.per, t.axis)})
				if len(plays) > 1 || len(parts) > 1 {
					p.entry(name, style)
				}
			}
		}
		if len(c.Curves) > 0 {
			p.add(c, figure{Kind: t.kind, Title: t.title, Caption: t.caption}, t.title+" over the time of the storm.")
		}
	}
}

func seriesOf(p *controller.Play, name string) []controller.Series {
	return slices.DeleteFunc(slices.Clone(p.Series), func(s controller.Series) bool { return s.Name != name })
}

// pointsOf returns the points of a series, the largest ones of equal intervals with tips.
func pointsOf(s controller.Series, per float64, y chart.Axis) []chart.Point {
	points := make([]chart.Point, 0, len(s.Points)/2)
	for i := 0; i+1 < len(s.Points); i += 2 {
		points = append(points, chart.Point{X: s.Points[i], Y: s.Points[i+1] / per})
	}
	n := len(points)
	for k := range min(tips, n) {
		at := k * n / min(tips, n)
		for i := at; i < (k+1)*n/min(tips, n); i++ {
			if points[i].Y > points[at].Y {
				at = i
			}
		}
		figure := y.Format(points[at].Y)
		if s.Unit != "ns" {
			figure += " " + y.Label
		}
		points[at].Mark, points[at].Tip = true, fmt.Sprintf("%s at %.1f s", figure, points[at].X)
	}
	return points
}

// faultMoments numbers the occurrences of the faults of a play, and lists them.
func faultMoments(play *controller.Play) (moments []chart.Moment, list []string) {
	hits, index := []int{}, map[[2]int]int{}
	for _, in := range play.Injections {
		k := [2]int{in.Spec, in.Occurrence}
		if _, ok := index[k]; !ok {
			index[k] = len(moments)
			moments = append(moments, chart.Moment{At: time.Duration(in.At).Seconds(), Label: fmt.Sprint(len(moments) + 1), Tip: string(in.Fault)})
			hits = append(hits, 0)
		}
		if in.Path != "" {
			hits[index[k]]++
		}
	}
	for i := range moments {
		m := &moments[i]
		text := fmt.Sprintf("%s at %.1f s (%s)", m.Tip, math.Max(m.At, 0), lab.Plural(hits[i], "request"))
		m.Tip = m.Label + ": " + text
		list = append(list, m.Label+" "+text)
	}
	return moments, list
}
