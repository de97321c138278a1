package dashboards

import (
	"watchlab/bench/lab"
	"watchlab/bench/telemetry/metric"
	"watchlab/dashboards/grafana"
)

// Sizes of panels: a third, a half or all of the page.
const (
	small = 4
	third = 8
	half  = 12
	wide  = grafana.Columns

	low  = 4
	tall = 8
)

// Colours of thresholds.
const (
	fine  = "green"
	warn  = "orange"
	alarm = "red"
)

// summary is what the legend of a time series adds to a name.
var summary = []string{"mean", "max", "lastNotNull"}

// auto leaves the number of decimals to Grafana.
const auto = -1

// lines draws queries over time; change adjusts the panel.
func lines(title, description, unit string, width int, queries []grafana.Query, change ...func(*grafana.Panel)) grafana.Panel {
	p := grafana.Panel{
		Kind: grafana.TimeSeries, Title: title, Description: description, Unit: unit, Width: width, Height: tall,
		Queries: queries, FromZero: true, Calcs: summary, Decimals: auto,
	}
	for _, c := range change {
		c(&p)
	}
	return p
}

// number shows the last value of a query.
func number(title, description, unit string, query grafana.Query, change ...func(*grafana.Panel)) grafana.Panel {
	p := grafana.Panel{
		Kind: grafana.Stat, Title: title, Description: description, Unit: unit, Width: small, Height: low,
		Queries: []grafana.Query{query}, Decimals: auto,
	}
	for _, c := range change {
		c(&p)
	}
	return p
}

// heatMap draws a histogram over time, whichever form of it there is.
func heatMap(title, description, unit string, width int, s selector, m metric.Metric) grafana.Panel {
	return grafana.Panel{
		Kind: grafana.Heatmap, Title: title, Description: description, Unit: unit, Width: width, Height: tall + 2, Decimals: auto,
		Queries: []grafana.Query{
			{Expr: s.cells(m), Exemplars: true},
			{Expr: s.rows(m), Legend: "{{le}}", Rows: true, Exemplars: true},
		},
	}
}

func log(p *grafana.Panel)     { p.Log = true }
func stacked(p *grafana.Panel) { p.Stacked = true }
func points(p *grafana.Panel)  { p.Points = true }

// above colours what reaches the bounds.
func above(warnAt, alarmAt float64) func(*grafana.Panel) {
	return func(p *grafana.Panel) {
		p.Thresholds = []grafana.Threshold{{From: warnAt, Color: warn}, {From: alarmAt, Color: alarm}}
	}
}

// anyIsBad colours all that isn't zero.
func anyIsBad(p *grafana.Panel) {
	p.Thresholds = []grafana.Threshold{{From: 1e-9, Color: alarm}}
}

// leads to another dashboard.
func leads(uid, title string) func(*grafana.Panel) {
	return func(p *grafana.Panel) { p.Link, p.LinkTitle = uid, title }
}

// sized is another width and height.
func sized(width, height int) func(*grafana.Panel) {
	return func(p *grafana.Panel) { p.Width, p.Height = width, height }
}

// one is a query alone.
func one(expr, legend string) []grafana.Query { return []grafana.Query{{Expr: expr, Legend: legend}} }

// lateShare is from where on a generator's cell is invalid.
const lateShare = lab.MaxLateShare
