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

// with applies changes to a panel.
func (p panel) with(changes []func(*panel)) panel {
	for _, change := range changes {
		change(&p)
	}
	return p
}

// lines draws queries over time. Each change adjusts the panel.
func lines(title, description, unit string, width int, queries []query, changes ...func(*panel)) panel {
	return panel{
		Kind: timeSeries, Title: title, Description: description, Unit: unit, Width: width, Height: tall,
		Queries: queries, FromZero: true, Calcs: summary,
	}.with(changes)
}

// number shows the last value of a query.
func number(title, description, unit string, q query, changes ...func(*panel)) panel {
	return panel{
		Kind: stat, Title: title, Description: description, Unit: unit, Width: small, Height: low, Queries: []query{q},
	}.with(changes)
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

// medianAndP99 returns two quantiles of a histogram.
func medianAndP99(s selector, m metric.Metric) []query {
	return []query{{Expr: s.quantile(0.5, m, over), Legend: "p50"}, {Expr: s.quantile(0.99, m, over), Legend: "p99"}}
}

// labels are columns of a table that show labels under their own names.
func labels(names ...string) (columns []column) {
	for _, name := range names {
		columns = append(columns, column{Field: name, Name: name})
	}
	return columns
}

// lateShare is the share of late releases that makes a cell invalid, lab.MaxLateShare.
const lateShare = 0.01
