package dashboards

import (
	"watchlab/bench/telemetry/metric"
)

// Widths and heights of panels, in Grafana's grid.
const (
	small = 4
	third = 8
	half  = 12
	wide  = pageColumns

	low  = 4
	tall = 8
)

// Colours of thresholds.
const (
	fine  = "green"
	warn  = "orange"
	alarm = "red"
)

// summary has the figures in the legend of a time series.
var summary = []string{"mean", "max", "lastNotNull"}

const eventsPerSecond = "count:events/s"

// lines draws queries over time. Each change adjusts the panel.
func lines(title, description, unit string, width int, queries []query, change ...func(*panel)) panel {
	p := panel{
		Kind: timeSeries, Title: title, Description: description, Unit: unit, Width: width, Height: tall,
		Queries: queries, FromZero: true, Calcs: summary,
	}
	for _, c := range change {
		c(&p)
	}
	return p
}

// number shows the last value of a query.
func number(title, description, unit string, q query, change ...func(*panel)) panel {
	p := panel{
		Kind: stat, Title: title, Description: description, Unit: unit, Width: small, Height: low,
		Queries: []query{q},
	}
	for _, c := range change {
		c(&p)
	}
	return p
}

// heatMap draws a histogram over time, native or classic.
func heatMap(title, description, unit string, width int, s selector, m metric.Metric) panel {
	return panel{
		Kind: heatmap, Title: title, Description: description, Unit: unit, Width: width, Height: tall + 2,
		Queries: []query{
			{Expr: s.cells(m), Exemplars: true},
			{Expr: s.rows(m), Legend: "{{le}}", Rows: true, Exemplars: true},
		},
	}
}

func log(p *panel)     { p.Log = true }
func stacked(p *panel) { p.Stacked = true }
func points(p *panel)  { p.Points = true }

// bars shows the last value of a single query as bars.
func bars(p *panel) {
	p.Kind, p.Calcs = barGauge, nil
	p.Queries[0].Instant = true
}

// coloured sets colours from lower bounds.
func coloured(steps ...threshold) func(*panel) { return func(p *panel) { p.Thresholds = steps } }

// above colours values from the two bounds on.
func above(warnAt, alarmAt float64) func(*panel) {
	return coloured(threshold{warnAt, warn}, threshold{alarmAt, alarm})
}

// anyIsBad colours values other than zero.
func anyIsBad(p *panel) { coloured(threshold{1e-9, alarm})(p) }

// leads links to another dashboard.
func leads(uid, title string) func(*panel) {
	return func(p *panel) { p.Link, p.LinkTitle = uid, title }
}

// sized sets the width and height.
func sized(width, height int) func(*panel) {
	return func(p *panel) { p.Width, p.Height = width, height }
}

// one returns a single query.
func one(expr, legend string) []query { return []query{{Expr: expr, Legend: legend}} }

// lateShare is the share of late releases that makes a cell invalid, lab.MaxLateShare.
const lateShare = 0.01
