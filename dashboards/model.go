package main

import (
	"strings"

	"watchlab/bench/chart"
)

// The model has the parts of Grafana's JSON that these dashboards use. Grafana 9.3 (schemaVersion
// 37) and later read it. Names and values follow Grafana's schema of a dashboard
// (kinds/structured/dashboard/dashboard_kind.cue of github.com/grafana/grafana, 9.3) and of the
// panels (panelcfg.cue of each). Grafana publishes no Go module of the schema.

// pageColumns is the width of a page.
const pageColumns = 24

// dashboard is a page.
type dashboard struct {
	UID, Title, Description string
	From                    string // the start of the time range, e.g. now-15m
	Refresh                 string // interval of reloading, such as 15s
	Variables               []variable
	Annotations             []annotation
	Rows                    []row
}

// row is a heading with panels below it. Panels fill lines from the left.
type row struct {
	Title  string
	Panels []panel
}

// annotation marks times in all time series of a dashboard.
type annotation struct {
	Name, Color, Expr string
	Title, Text       string // with labels in {{}}
	Step              string // interval of evaluating Expr
	Off               bool   // at first
}

// variable is a picker at the top of a dashboard. One without a query picks the data source.
type variable struct {
	Name, Description, Query string
	Label                    string // default: the name
	Multi                    bool   // several values, or All: any value, but the label is required
	Hidden                   bool   // set by URL only
	Falling                  bool   // sorts by number, and selects the largest value
	Regex                    string // takes the value from a result of query_result, in the order of the results
}

// kind of a panel: the name of Grafana's plugin.
type kind string

const (
	timeSeries    kind = "timeseries"
	stat          kind = "stat"    // the last value of each series
	heatmap       kind = "heatmap" // a histogram over time
	stateTimeline kind = "state-timeline"
	table         kind = "table" // labels and values at one time
)

type panel struct {
	Kind                     kind // default: timeSeries
	Title, Description, Unit string
	// Width in columns; Height in grid rows of about 30 pixels. The default depends on the kind.
	Width, Height int
	Queries       []query
	Thresholds    []threshold
	Values        []value  // of a state timeline
	Log           bool     // a logarithmic axis
	Min, Max      *float64 // of the axis; panels with one unit beside each other have the same
	Points        bool     // instead of lines
	Columns       []column // of a table
	Sort          string   // column of a table to sort by, largest first
	Repeat        string   // a variable: one such panel for each of its values, which share Min and Max
	// Empty says why the panel has no data, for a run that cannot have it.
	Empty     string
	Link      string // the UID of a dashboard
	LinkTitle string // its title
}

// query is PromQL.
type query struct {
	Expr, Legend string
	Exemplars    bool   // requests traces beside the values
	Rows         bool   // classic buckets of a heat map
	Dashed       bool   // lines
	Unlisted     bool   // in the legend, as another query has the same names
	Color        string // of all lines; default: that of the variant, or of the place
}

// threshold is the lower bound of a colour.
type threshold struct {
	From  float64
	Color string
}

// value is the meaning of a number.
type value struct {
	Number      int
	Text, Color string
}

// column is a label or value of a table. The field of a value is "Value #A" for the
// first of several queries, and "Value" for a single one.
type column struct {
	Field      string
	Name       string // default: the field
	Unit       string
	Decimals   int
	Thresholds []threshold // colours of the text; the first colour is that of lower values
	Values     []value
}

// variants are those of the families that export metrics. Their lines have the colours of the report.
var variants = []string{
	"cond", "channel", "ring", "sharded",
	"clientgo-fifo", "clientgo-informer", "clientgo-deltafifo", "clientgo-realfifo", "clientgo-realfifo-batch", "reference",
}

// colour is that of the lines whose names match the pattern: a variant, the second cell of its A/A pair,
// and what follows a space.
type colour struct{ Pattern, Hex string }

// colours returns those of the variants on a dark page.
func colours() (all []colour) {
	for _, name := range variants {
		all = append(all, colour{"/^" + name + "(-again)?( |$)/", chart.Hex(name).Dark})
	}
	return all
}

// ByVariant reports whether the lines of the panel are variants.
func (p panel) ByVariant() bool {
	return p.Kind == timeSeries && len(p.Queries) > 0 && strings.HasPrefix(p.Queries[0].Legend, "{{variant}}")
}
