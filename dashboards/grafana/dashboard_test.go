package grafana_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"watchlab/dashboards/grafana"
)

var update = flag.Bool("update", false, "write the golden file")

// sound is a dashboard with everything that the model has.
func sound() grafana.Dashboard {
	query := []grafana.Query{{Expr: `sum(rate(x_total{job=~"$job"}[$__rate_interval])) > 0`, Legend: "{{job}}", Exemplars: true}}
	panel := func(kind grafana.Kind, title string, width int) grafana.Panel {
		return grafana.Panel{Kind: kind, Title: title, Description: "About " + title + ".", Unit: "s", Width: width, Height: 4, Queries: query, Decimals: -1}
	}
	lines, points := panel(grafana.TimeSeries, "lines", 16), panel(grafana.TimeSeries, "points", 12)
	lines.Log, lines.FromZero, lines.Calcs, lines.Stacked = true, true, []string{"mean"}, true
	lines.Thresholds = []grafana.Threshold{{From: 1, Color: "orange"}, {From: 2, Color: "red"}}
	lines.Link, lines.LinkTitle = "other-dashboard", "Other"
	points.Points, points.FromZero, points.Decimals = true, true, 2
	heat := panel(grafana.Heatmap, "heat", 12)
	heat.Height = 6
	heat.Queries = []grafana.Query{{Expr: "sum(rate(h[1m]))"}, {Expr: "sum by (le) (rate(h_bucket[1m]))", Legend: "{{le}}", Rows: true}}
	states := panel(grafana.StateTimeline, "states", 24)
	states.Values = []grafana.Value{{Number: 0, Text: "off", Color: "red"}, {Number: 1, Text: "on", Color: "green"}}
	table := panel(grafana.Table, "table", 24)
	table.Queries = []grafana.Query{{Expr: "a", Instant: true}, {Expr: "b", Instant: true}}
	table.Columns = []grafana.Column{{Field: "job", Name: "the job"}, {Field: "Value #A", Name: "a", Unit: "s", Decimals: 3}, {Field: "Value #B", Name: "b"}}
	return grafana.Dashboard{
		UID: "a-dashboard", Title: "A dashboard", Description: "It has everything.", Tags: []string{"test"}, From: "now-5m", Refresh: "5s",
		Variables: []grafana.Variable{
			{Name: "datasource", Label: "Data source"},
			{Name: "job", Label: "job", Query: "label_values(up, job)", Multi: true, AllValue: ".+"},
			{Name: "one", Label: "one", Query: "label_values(up, instance)", Descending: true},
		},
		Annotations: []grafana.Annotation{{Name: "Marks", Color: "red", Expr: "x > 0", Title: "{{job}}", Text: "text", Step: "5s", Off: true}},
		Links:       []grafana.Link{{Title: "others", Tag: "test"}},
		Rows: []grafana.Row{

			{Title: "first", Panels: []grafana.Panel{lines, panel(grafana.Stat, "stat", 4), points, heat}},
			{Title: "second", Panels: []grafana.Panel{panel(grafana.BarGauge, "bars", 8), states, table}},
		},
	}
}

// TestEncode compares the JSON with the golden file, byte for byte.
func TestEncode(t *testing.T) {
	got, err := sound().Encode()
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

// TestCheck: what Grafana would take, and not show as it is meant, is refused.
func TestCheck(t *testing.T) {
	first := func(d *grafana.Dashboard) *grafana.Panel { return &d.Rows[0].Panels[0] }
	heat := func(d *grafana.Dashboard) *grafana.Panel { return &d.Rows[0].Panels[3] }
	table := func(d *grafana.Dashboard) *grafana.Panel { return &d.Rows[1].Panels[2] }
	for _, tt := range []struct {
		name  string
		spoil func(*grafana.Dashboard)
		want  string
	}{
		{"uid", func(d *grafana.Dashboard) { d.UID = "short" }, "a uid of 5 letters"},
		{"title", func(d *grafana.Dashboard) { d.Title = "" }, "no title"},
		{"variable twice", func(d *grafana.Dashboard) { d.Variables = append(d.Variables, d.Variables[1]) }, `variable "job"`},
		{"All", func(d *grafana.Dashboard) { d.Variables[1].AllValue = "" }, "All matches nothing"},
		{"annotation", func(d *grafana.Dashboard) { d.Annotations[0].Expr = "" }, `annotation "Marks"`},
		{"empty row", func(d *grafana.Dashboard) { d.Rows[1].Panels = nil }, `row "second"`},
		{"panel twice", func(d *grafana.Dashboard) { d.Rows[1].Panels[0].Title = "lines" }, `panel "lines": a second one`},
		{"description", func(d *grafana.Dashboard) { first(d).Description = "" }, `panel "lines": no title, or no description`},
		{"unit", func(d *grafana.Dashboard) { first(d).Unit = "furlong" }, `unit "furlong"`},
		{"width", func(d *grafana.Dashboard) { first(d).Width = 25 }, "25 by 4"},
		{"height", func(d *grafana.Dashboard) { first(d).Height = 0 }, "16 by 0"},
		{"kind", func(d *grafana.Dashboard) { first(d).Kind = "graph" }, `kind "graph"`},
		{"no queries", func(d *grafana.Dashboard) { first(d).Queries = nil }, "0 queries"},
		{"no expression", func(d *grafana.Dashboard) { first(d).Queries = []grafana.Query{{Legend: "x"}} }, "query A: no expression"},
		{"no legend", func(d *grafana.Dashboard) { first(d).Queries = []grafana.Query{{Expr: "x"}} }, "query A: no legend"},
		{"rows in lines", func(d *grafana.Dashboard) {
			first(d).Queries = []grafana.Query{{Expr: "x", Legend: "x", Rows: true}}
		}, "query A: buckets in a timeseries"},
		{"rows without legend", func(d *grafana.Dashboard) { heat(d).Queries[1].Legend = "" }, "query B: no legend"},
		{"thresholds", func(d *grafana.Dashboard) { first(d).Thresholds[1].From = 0.5 }, "thresholds out of order"},
		{"columns", func(d *grafana.Dashboard) { table(d).Columns = nil }, "tables need them"},
		{"states", func(d *grafana.Dashboard) { d.Rows[1].Panels[1].Values = nil }, "states without names"},
		{"link", func(d *grafana.Dashboard) { first(d).LinkTitle = "" }, "a link needs a title"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := sound()
			tt.spoil(&d)
			_, err := d.Encode()
			if !errors.Is(err, grafana.ErrInvalid) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	if err := sound().Check(); err != nil {
		t.Errorf("sound: %v", err)
	}
}
