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

// overTime describes a chart of a series over the time of a play.
type overTime struct {
	series, kind, title, caption string
	unit                         string  // of the axis
	per                          float64 // of the values in the unit
}

var overTimes = []overTime{
	{controller.SeriesLag, "lag", "Watch lag",
		"Events that are visible to the watch and not yet written to its connection, the largest of the watches.",
		"events", 1},
	{controller.SeriesRSS, "rss", "Memory", "Resident memory of the process.", "MiB", 1 << 20},
	{controller.SeriesCPU, "cpu", "CPU", "CPU time of the process a second.", "cores", 1},
	{controller.SeriesFiles, "files", "Open files", "File descriptors of the process.", "files", 1},
	{controller.SeriesGoroutines, "goroutines", "Goroutines", "Scraped from the program's metrics.", "goroutines", 1},
	{controller.SeriesDepth, "depth", "Workqueue depth", "Sum of the program's workqueues, scraped from its metrics.", "items", 1},
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
	over := func(y chart.Axis) chart.Lines {
		c := chart.Lines{X: chart.Axis{Label: "seconds", Zero: true, Format: chart.Count}, Y: y, Moments: moments, Most: end.Seconds()}
		for _, ph := range plays[0].Phases {
			c.Bands = append(c.Bands, chart.Band{From: ph.From.Seconds(), To: min(ph.To, end).Seconds(), Name: ph.Name})
		}
		return c
	}
	styles := map[string]chart.Style{}
	for i, play := range plays {
		styles[play.Program] = chart.Nth(i)
		if len(plays) > 1 && i == 0 {
			styles[play.Program] = chart.Of("reference") // the old program, drawn as a baseline
		}
	}
	latency := over(chart.Axis{Label: "latency", Log: true, Format: chart.Time})
	for _, play := range plays {
		for _, s := range seriesOf(play, controller.SeriesLatency) {
			name := play.Program
			latency.Curves = append(latency.Curves, chart.Curve{Name: name, Style: styles[name], Dots: true, Points: pointsOf(s, 1, chart.Nanoseconds)})
			if len(plays) > 1 {
				p.entry(name, styles[name])
			}
		}
	}
	if len(latency.Curves) > 0 {
		p.add(latency, figure{Kind: "latency", Title: "Reconcile latency",
			Caption: "From the intended time of an event to the first write of the controller that answers it: a dot for each event, the slowest of each interval if there are many."},
			"Reconcile latency of each answered event over the time of the storm, on a logarithmic axis.")
	}
	for _, play := range plays {
		title := "Requests"
		if len(plays) > 1 {
			title += " of " + play.Program
		}
		drawRequests(p, over(chart.Axis{Label: "requests/s", Zero: true, Format: chart.Count}), play, title)
	}
	for _, t := range overTimes {
		c := over(chart.Axis{Label: t.unit, Zero: true, Format: chart.Count})
		for _, play := range plays {
			clients := seriesOf(play, t.series)
			for i, s := range clients {
				name, st := play.Program, styles[play.Program]
				if len(clients) > 1 {
					name, st = play.Program+" "+s.Client, chart.Nth(slices.Index(plays, play)+len(plays)*i)
				}
				c.Curves = append(c.Curves, chart.Curve{Name: name, Style: st, Path: true, Points: pointsOf(s, t.per, chart.Count)})
				if len(plays) > 1 || len(clients) > 1 {
					p.entry(name, st)
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

// verbs orders the colours of requests.
var verbs = []string{"get", "list", "watch", "create", "update", "patch", "apply", "delete", "deletecollection"}

// drawRequests draws the requests of a play by verb. Its series are counts of whole seconds.
func drawRequests(p *panel, c chart.Lines, play *controller.Play, title string) {
	f := figure{Kind: "requests", Title: title, Caption: "Requests of each second, by verb."}
	for _, s := range seriesOf(play, controller.SeriesRequests) {
		slot := slices.Index(verbs, s.Client)
		if slot < 0 {
			slot = len(verbs)
		}
		c.Curves = append(c.Curves, chart.Curve{Name: s.Client, Style: chart.Nth(slot), Path: true, Points: pointsOf(s, 1, chart.Number)})
		f.Parts = append(f.Parts, part{s.Client, chart.Nth(slot).Colour})
	}
	p.add(c, f, "Requests a second over the time of the storm, a line for each verb.")
}

// pointsOf returns the points of a series, the largest ones of equal intervals with tips.
func pointsOf(s controller.Series, per float64, format func(float64) string) []chart.Point {
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
		points[at].Mark, points[at].Tip = true, fmt.Sprintf("%s %s at %.1f s", format(points[at].Y), s.Unit, points[at].X)
		if s.Unit == "ns" {
			points[at].Tip = fmt.Sprintf("%s at %.1f s", format(points[at].Y), points[at].X)
		}
	}
	return points
}

// faultMoments numbers the occurrences of the faults of a play, and lists them.
func faultMoments(play *controller.Play) (moments []chart.Moment, list []string) {
	type occurrence struct {
		spec, n int
	}
	hits, index := map[occurrence]int{}, map[occurrence]int{}
	for _, in := range play.Injections {
		k := occurrence{in.Spec, in.Occurrence}
		if _, ok := index[k]; !ok {
			index[k] = len(moments)
			moments = append(moments, chart.Moment{At: time.Duration(in.At).Seconds(), Label: fmt.Sprint(len(moments) + 1), Tip: string(in.Fault)})
		}
		if in.Path != "" {
			hits[k]++
		}
	}
	for k, i := range index {
		m := &moments[i]
		m.Tip = fmt.Sprintf("%s: %s at %.1f s (%s)", m.Label, m.Tip, math.Max(m.At, 0), lab.Plural(hits[k], "request"))
	}
	for _, m := range moments {
		list = append(list, strings.Replace(m.Tip, ":", "", 1))
	}
	return moments, list
}
