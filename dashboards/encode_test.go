package dashboards

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the generated files")

// sound is a dashboard with every feature of the model.
func sound() dashboard {
	queries := []query{{Expr: `sum(rate(x_total{job=~"$job"}[$__rate_interval])) > 0`, Legend: "{{job}}", Exemplars: true}}
	drawn := func(k kind, title string, width int) panel {
		return panel{Kind: k, Title: title, Description: "About " + title + ".", Unit: "s", Width: width, Height: 4, Queries: queries}
	}
	lines, points := drawn(timeSeries, "lines", 16), drawn(timeSeries, "points", 12)
	lines.Log, lines.Empty = true, "No lines"
	lines.Queries = []query{{Expr: "x", Legend: "{{variant}} {{job}}"}, {Expr: "y", Legend: "y", Dashed: true, Unlisted: true, Color: "red"}}
	left, right := drawn(timeSeries, "left", 12), drawn(timeSeries, "right", 12)
	left.Min, left.Max, right.Min, right.Max = new(1.0), new(9.0), new(1.0), new(9.0)
	lines.Thresholds = []threshold{{From: 1, Color: "orange"}, {From: 2, Color: "red"}}
	lines.Link, lines.LinkTitle = "other-dashboard", "Other"
	points.Points = true
	heat := drawn(heatmap, "heat", 24)
	heat.Height, heat.Repeat, heat.Min, heat.Max = 6, "job", new(1.0), new(9.0)
	heat.Queries = []query{{Expr: "sum(rate(h[1m]))"}, {Expr: "sum by (le) (rate(h_bucket[1m]))", Legend: "{{le}}", Rows: true}}
	states := drawn(stateTimeline, "states", 24)
	states.Values = []value{{Number: 0, Text: "off", Color: "red"}, {Number: 1, Text: "on", Color: "green"}}
	cells := drawn(table, "table", 24)
	cells.Queries = []query{{Expr: "a"}, {Expr: "b"}}
	cells.Columns = []column{{Field: "job", Name: "the job"}, {Field: "Value #A", Name: "a", Unit: "s", Decimals: 3, Thresholds: []threshold{{Color: "red"}, {From: 1, Color: "green"}}, Values: states.Values}, {Field: "Value #B", Name: "b"}}
	cells.Sort = "a"
	return dashboard{
		UID: "a-dashboard", Title: "A dashboard", Description: "It has everything.", From: "now-5m", Refresh: "15s",
		Variables: []variable{
			{Name: "datasource", Label: "Data source"},
			{Name: "job", Label: "job", Query: "label_values(up, job)", Multi: true, Hidden: true},
			{Name: "one", Label: "one", Query: "label_values(up, instance)", Falling: true},
			{Name: "best", Label: "best", Query: "query_result(sort_desc(up))", Regex: `/instance="([^"]*)"/`},
		},
		Annotations: []annotation{{Name: "Marks", Color: "red", Expr: "x > 0", Title: "{{job}}", Text: "text", Step: "5s", Off: true}},
		Rows: []row{
			{Title: "first", Panels: []panel{lines, drawn(stat, "stat", 4), points, heat}},
			{Title: "second", Panels: []panel{left, right, states, cells}},
		},
	}
}

// TestEncode compares the JSON with the golden file, byte for byte.
func TestEncode(t *testing.T) {
	got, err := sound().encode()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join("testdata", "dashboard.json")
	if *update {
		if err := os.WriteFile(name, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
