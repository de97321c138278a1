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

	Description string

	Unit string

	Width, Height int
	Queries       []Query

	Thresholds []Threshold

	Values []Value

	Decimals int

	Log bool

	FromZero bool

	Stacked bool

	Points bool

	Calcs []string

	Columns []Column

	Link, LinkTitle string
}

// Query is PromQL.
type Query struct {
	Expr string

	Legend string

	Instant bool

	Exemplars bool

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
