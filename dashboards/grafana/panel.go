package grafana

import (
	"fmt"
	"slices"
)

// Kind is what a panel draws.
type Kind string

// The kinds.
const (
	// TimeSeries draws lines over time.
	TimeSeries Kind = "timeseries"
	// Stat shows the last value of each series.
	Stat Kind = "stat"
	// BarGauge compares the last values of many series.
	BarGauge Kind = "bargauge"
	// Heatmap draws histograms over time.
	Heatmap Kind = "heatmap"
	// StateTimeline draws when each series had which of the panel's Values.
	StateTimeline Kind = "state-timeline"
	// Table lists the labels and values of an instant.
	Table Kind = "table"
)

// Panel is one drawing.
type Panel struct {
	Kind  Kind
	Title string
	// Description says what is drawn, how to read it and what it doesn't show.
	Description string
	// Unit is one of Grafana's: s, bytes, short, percentunit, ops, none.
	Unit string
	// Width is in columns, Height in rows of about 30 pixels.
	Width, Height int
	Queries       []Query
	// Thresholds colour values and draw lines. Below the first all is well.
	Thresholds []Threshold
	// Values give numbers a name and a colour.
	Values []Value
	// Decimals is how many are shown; negative leaves it to Grafana.
	Decimals int
	// Log has a logarithmic axis.
	Log bool
	// FromZero starts the axis at zero.
	FromZero bool
	// Stacked puts series on top of each other.
	Stacked bool
	// Points draws points without lines, for values that come seldom.
	Points bool
	// Calcs are shown beside the name of a series: mean, max, lastNotNull.
	Calcs []string
	// Columns are those of a table, in order.
	Columns []Column
	// Link is a dashboard to which the panel leads, by UID.
	Link, LinkTitle string
}

// Query is PromQL.
type Query struct {
	Expr string
	// Legend is the name of a series; {{label}} is the label's value.
	Legend string
	// Instant asks for the end of the time range only.
	Instant bool
	// Exemplars asks for the traces beside the values.
	Exemplars bool
	// Rows says that the series are the cumulative buckets of a classic histogram,
	// by the label le.
	Rows bool
}

// Threshold is where a colour begins.
type Threshold struct {
	From  float64
	Color string
}

// Value is what a number means.
type Value struct {
	Number      int
	Text, Color string
}

// Column is a label or value of a table. A value's field is "Value #A" for the
// first query where there are several, and "Value" where there is one.
type Column struct {
	Field, Name string
	// Unit is that of a value; a label has none.
	Unit     string
	Decimals int
}

// units are those of Grafana's value formats that panels here may use
// (packages/grafana-data/src/valueFormats/categories.ts).
var units = []string{"none", "short", "percentunit", "s", "bytes", "Bps", "ops", "cps", "string", "bool_yes_no"}

// check says what is wrong with a panel.
func (p Panel) check() []string {
	var wrong []string
	bad := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if p.Title == "" || p.Description == "" {
		bad("no title, or no description")
	}
	if !slices.Contains(units, p.Unit) {
		bad("unit %q", p.Unit)
	}
	if p.Width < 1 || p.Width > Columns || p.Height < 1 {
		bad("%d by %d", p.Width, p.Height)
	}
	if !slices.Contains([]Kind{TimeSeries, Stat, BarGauge, Heatmap, StateTimeline, Table}, p.Kind) {
		bad("kind %q", p.Kind)
	}
	if len(p.Queries) == 0 || len(p.Queries) > 26 {
		bad("%d queries", len(p.Queries))
	}
	for i, q := range p.Queries {
		if q.Expr == "" {
			bad("query %s: no expression", refID(i))
		}
		if q.Legend == "" && p.Kind != Table && !(p.Kind == Heatmap && !q.Rows) {
			bad("query %s: no legend", refID(i))
		}
		if q.Rows && p.Kind != Heatmap {
			bad("query %s: buckets in a %s", refID(i), p.Kind)
		}
	}
	for i := 1; i < len(p.Thresholds); i++ {
		if p.Thresholds[i].From <= p.Thresholds[i-1].From {
			bad("thresholds out of order")
		}
	}
	if (p.Kind == Table) != (len(p.Columns) > 0) {
		bad("columns are for tables, and tables need them")
	}
	if p.Kind == StateTimeline && len(p.Values) == 0 {
		bad("states without names")
	}
	if (p.Link == "") != (p.LinkTitle == "") {
		bad("a link needs a title")
	}
	return wrong
}

// refID is the name of a panel's i-th query.
func refID(i int) string { return string(rune('A' + i)) }
