package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"watchlab/bench/controller"
	"watchlab/bench/lab"
)

// tips is the number of points of a series that have a tip and a row in the table of the chart.
const tips = 16

// overTime describes a chart of a series over the time of a play.
type overTime struct {
	series, kind, title, caption string
	y                            axis
	per                          float64 // of the values in the unit of the axis
	mandatory                    bool    // drawn even if all values are 0
}

var overTimes = []overTime{
	{controller.SeriesLag, "lag", "Watch lag",
		"Events that are visible to the watch and not yet written to its connection, the largest of the watches.",
		axis{label: "events", zero: true, format: axisCount}, 1, true},
	{controller.SeriesUnsent, "unsent", "Unsent bytes", "Written to the connection and not yet taken by the program.",
		axis{label: "KiB", zero: true, format: axisCount}, 1 << 10, false},
	{controller.SeriesRSS, "rss", "Memory", "Resident memory of the process.", axis{label: "MiB", zero: true, format: axisCount}, 1 << 20, true},
	{controller.SeriesCPU, "cpu", "CPU", "CPU time of the process a second.", axis{label: "cores", zero: true, format: axisCount}, 1, true},
	{controller.SeriesFiles, "files", "Open files", "File descriptors of the process.", axis{label: "files", zero: true, format: axisCount}, 1, true},
	{controller.SeriesGoroutines, "goroutines", "Goroutines", "Scraped from the program's metrics.",
		axis{label: "goroutines", zero: true, format: axisCount}, 1, true},
	{controller.SeriesDepth, "depth", "Workqueue depth", "Sum of the program's workqueues, scraped from its metrics.",
		axis{label: "items", zero: true, format: axisCount}, 1, true},
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
		p := panel{ID: fmt.Sprintf("time-%d", i+1), Title: "faults: " + plan, Open: i < openPanels}
		shown := playsOf(groups, plan)
		if shown[0].Round > 1 || o.Spec.Rounds > 1 {
			p.Notes = append(p.Notes, fmt.Sprintf("Round %d of %d is shown%s.", shown[0].Round, o.Spec.Rounds,
				choose(slices.ContainsFunc(shown, (*controller.Play).Failed), ", the first that failed", "")))
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
	round := 0
	for _, failed := range []bool{true, false} {
		for _, g := range groups {
			for _, p := range g.plays {
				if g.plan == plan && p.Failed() == failed && (round == 0 || p.Round < round) {
					round = p.Round
				}
			}
		}
		if round > 0 {
			break
		}
	}
	for _, g := range groups {
		for _, p := range g.plays {
			if g.plan == plan && p.Round == round {
				shown = append(shown, p)
			}
		}
	}
	return shown
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
	chart := func(y axis) lineChart {
		c := lineChart{x: axis{label: "seconds", zero: true, format: axisCount}, y: y, high: 240, moments: moments, most: end.Seconds()}
		for _, ph := range plays[0].Phases {
			c.bands = append(c.bands, band{ph.From.Seconds(), min(ph.To, end).Seconds(), ph.Name})
		}
		return c
	}
	styles := map[string]style{}
	for i, play := range plays {
		styles[play.Program] = style{slot: i, dashed: len(plays) > 1 && i == 0}
	}
	latency := chart(axis{label: "latency", log: true, format: axisTime})
	for _, play := range plays {
		for _, s := range seriesOf(play, controller.SeriesLatency) {
			name := play.Program
			latency.curves = append(latency.curves, curve{name: name, style: styles[name], dots: true, points: pointsOf(s, 1, nanoseconds)})
			p.variantIf(len(plays) > 1, name, styles)
		}
	}
	if len(latency.curves) > 0 {
		p.add(latency, figure{Kind: "latency", Title: "Reconcile latency",
			Caption: "From the intended time of an event to the first write of the controller that answers it: a dot for each event, the slowest of each interval if there are many."},
			"Reconcile latency of each answered event over the time of the storm, on a logarithmic axis.")
	}
	for _, play := range plays {
		title := "Requests"
		if len(plays) > 1 {
			title += " of " + play.Program
		}
		drawRequests(p, chart(axis{label: "requests/s", zero: true, format: axisCount}), play, title)
	}
	for _, t := range overTimes {
		c, highest := chart(t.y), 0.0
		for _, play := range plays {
			clients := seriesOf(play, t.series)
			for i, s := range clients {
				name, st := play.Program, styles[play.Program]
				if len(clients) > 1 {
					name, st.slot = play.Program+" "+s.Client, st.slot+len(plays)*i
				}
				styles[name] = st
				c.curves = append(c.curves, curve{name: name, style: st, path: true, points: pointsOf(s, t.per, t.y.text)})
				p.variantIf(len(plays) > 1 || len(clients) > 1, name, styles)
				for k := 1; k < len(s.Points); k += 2 {
					highest = max(highest, s.Points[k])
				}
			}
		}
		if len(c.curves) > 0 && (t.mandatory || highest > 0) {
			p.add(c, figure{Kind: t.kind, Title: t.title, Caption: t.caption}, t.title+" over the time of the storm.")
		}
	}
}

func (p *panel) variantIf(wanted bool, name string, styles map[string]style) {
	if wanted {
		p.variant(name, styles)
	}
}

func seriesOf(p *controller.Play, name string) (found []controller.Series) {
	for _, s := range p.Series {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

// verbs orders the colours of requests.
var verbs = []string{"get", "list", "watch", "create", "update", "patch", "apply", "delete", "deletecollection"}

// drawRequests draws the requests of a play by verb. Its series are counts of whole seconds.
func drawRequests(p *panel, c lineChart, play *controller.Play, title string) {
	f := figure{Kind: "requests", Title: title, Caption: "Requests of each second, by verb."}
	for _, s := range seriesOf(play, controller.SeriesRequests) {
		slot := slices.Index(verbs, s.Client)
		if slot < 0 {
			slot = len(verbs)
		}
		points := pointsOf(s, 1, number)
		for i := range points {
			points[i].x++ // A step goes back to the point before.
		}
		points = slices.Insert(points, 0, point{x: 0, y: points[0].y})
		c.curves = append(c.curves, curve{name: s.Client, style: style{slot: slot}, path: true, step: true, points: points})
		f.Parts = append(f.Parts, part{s.Client, slot % slots})
	}
	p.add(c, f, "Requests a second over the time of the storm, a line for each verb.")
}

// pointsOf returns the points of a series, the largest ones of equal intervals with tips.
func pointsOf(s controller.Series, per float64, format func(float64) string) []point {
	points := make([]point, 0, len(s.Points)/2)
	for i := 0; i+1 < len(s.Points); i += 2 {
		points = append(points, point{x: s.Points[i], y: s.Points[i+1] / per})
	}
	n := len(points)
	for k := range min(tips, n) {
		at := k * n / min(tips, n)
		for i := at; i < (k+1)*n/min(tips, n); i++ {
			if points[i].y > points[at].y {
				at = i
			}
		}
		points[at].mark, points[at].tip = true, fmt.Sprintf("%s %s at %.1f s", format(points[at].y), s.Unit, points[at].x)
		if s.Unit == "ns" {
			points[at].tip = fmt.Sprintf("%s at %.1f s", format(points[at].y), points[at].x)
		}
	}
	return points
}

// faultMoments numbers the occurrences of the faults of a play, and lists them.
func faultMoments(play *controller.Play) (moments []moment, list []string) {
	type occurrence struct {
		spec, n int
	}
	hits, index := map[occurrence]int{}, map[occurrence]int{}
	for _, in := range play.Injections {
		k := occurrence{in.Spec, in.Occurrence}
		if _, ok := index[k]; !ok {
			index[k] = len(moments)
			moments = append(moments, moment{at: time.Duration(in.At).Seconds(), label: fmt.Sprint(len(moments) + 1), tip: string(in.Fault)})
		}
		if in.Path != "" {
			hits[k]++
		}
	}
	for k, i := range index {
		m := &moments[i]
		m.tip = fmt.Sprintf("%s: %s at %.1f s (%s)", m.label, m.tip, math.Max(m.at, 0), lab.Plural(hits[k], "request"))
	}
	for _, m := range moments {
		list = append(list, strings.Replace(m.tip, ":", "", 1))
	}
	return moments, list
}
