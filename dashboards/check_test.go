package dashboards

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// check returns mistakes that Grafana accepts but does not show as intended.
func (d dashboard) check() (wrong []string) {
	bad := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if n := len(d.UID); n < 8 || n > 40 {
		bad("a uid of %d letters", n)
	}
	if d.Title == "" || d.Description == "" {
		bad("no title, or no description")
	}
	names := map[string]bool{}
	for _, v := range d.Variables {
		if v.Name == "" || names[v.Name] {
			bad("variable %q: no unique name", v.Name)
		}
		names[v.Name] = true
	}
	for _, a := range d.Annotations {
		if a.Name == "" || a.Expr == "" || a.Step == "" {
			bad("annotation %q: no name, expression or step", a.Name)
		}
	}
	for _, p := range d.panels() {
		if p.Repeat != "" && !slices.ContainsFunc(d.Variables, func(v variable) bool { return v.Name == p.Repeat && v.Multi }) {
			bad("panel %q: repeated by %q, which does not have several values", p.Title, p.Repeat)
		}
	}
	titles := map[string]bool{}
	for _, r := range d.Rows {
		if r.Title == "" || len(r.Panels) == 0 {
			bad("row %q: no title, or no panels", r.Title)
		}
		for _, p := range r.Panels {
			for _, why := range p.check() {
				bad("panel %q: %s", p.Title, why)
			}
			if titles[p.Title] {
				bad("panel %q: a second one of that title", p.Title)
			}
			titles[p.Title] = true
		}
	}
	return append(wrong, d.beside()...)
}

// units are the value formats of Grafana that panels may use, besides count:NAME
// (packages/grafana-data/src/valueFormats/categories.ts).
var units = []string{"none", "short", "percentunit", "s", "bytes", "Bps"}

// ownUnit reports whether a unit is one that Grafana builds: a suffix, or one with SI prefixes.
func ownUnit(unit string) bool {
	return strings.HasPrefix(unit, "suffix:") || strings.HasPrefix(unit, "si: ")
}

func (p panel) check() (wrong []string) {
	bad := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if p.Title == "" || p.Description == "" {
		bad("no title, or no description")
	}
	for _, unit := range append(columnUnits(p.Columns), p.Unit) {
		if !slices.Contains(units, unit) && !ownUnit(unit) {
			bad("unit %q", unit)
		}
	}
	if p.Width < 1 || p.Width > pageColumns || p.Height < 1 {
		bad("%d by %d", p.Width, p.Height)
	}
	if !slices.Contains([]kind{timeSeries, stat, heatmap, stateTimeline, table}, p.Kind) {
		bad("kind %q", p.Kind)
	}
	if len(p.Queries) == 0 || len(p.Queries) > 26 {
		bad("%d queries", len(p.Queries))
	}
	for i, q := range p.Queries {
		if q.Expr == "" {
			bad("query %s: no expression", refID(i))
		}
		if q.Legend == "" && p.Kind != table && !(p.Kind == heatmap && !q.Rows) {
			bad("query %s: no legend", refID(i))
		}
		if q.Rows && p.Kind != heatmap {
			bad("query %s: buckets in a %s", refID(i), p.Kind)
		}
	}
	for i := 1; i < len(p.Thresholds); i++ {
		if p.Thresholds[i].From <= p.Thresholds[i-1].From {
			bad("thresholds out of order")
		}
	}
	if (p.Kind == table) != (len(p.Columns) > 0) {
		bad("columns are for tables, and tables need them")
	}
	if p.Sort != "" && !slices.ContainsFunc(p.Columns, func(c column) bool { return c.Name == p.Sort }) {
		bad("no column %q to sort by", p.Sort)
	}
	if p.Kind == stateTimeline && len(p.Values) == 0 {
		bad("states without names")
	}
	if p.Repeat != "" && (p.Min == nil || p.Max == nil || p.Width != pageColumns) {
		bad("repeated, without one scale or the whole width")
	}
	if (p.Link == "") != (p.LinkTitle == "") {
		bad("a link needs a title")
	}
	return wrong
}

func columnUnits(columns []column) (units []string) {
	for _, c := range columns {
		if c.Unit != "" {
			units = append(units, c.Unit)
		}
	}
	return units
}

// beside returns panels with lines or heat maps of one unit, next to each other, that have axes of their own: they would
// look alike and not be. Places are those of Place.
func (d dashboard) beside() (wrong []string) {
	all := d.Place()
	for i, a := range all {
		for _, b := range all[i+1:] {
			shared := a.Min != nil && a.Max != nil && b.Min != nil && b.Max != nil && *a.Min == *b.Min && *a.Max == *b.Max && a.Log == b.Log
			drawn := a.Kind == b.Kind && (a.Kind == timeSeries || a.Kind == heatmap)
			if drawn && a.Y == b.Y && a.Unit == b.Unit && !shared {
				wrong = append(wrong, fmt.Sprintf("panels %q and %q: one unit, two axes", a.Title, b.Title))
			}
		}
	}
	return wrong
}

// TestCheck: the check finds each mistake in a dashboard, and none in the generated ones.
func TestCheck(t *testing.T) {
	first := func(d *dashboard) *panel { return &d.Rows[0].Panels[0] }
	heat := func(d *dashboard) *panel { return &d.Rows[0].Panels[3] }
	cells := func(d *dashboard) *panel { return &d.Rows[1].Panels[3] }
	for _, tt := range []struct {
		name  string
		spoil func(*dashboard)
		want  string
	}{
		{"uid", func(d *dashboard) { d.UID = "short" }, "a uid of 5 letters"},
		{"title", func(d *dashboard) { d.Title = "" }, "no title"},
		{"variable twice", func(d *dashboard) { d.Variables = append(d.Variables, d.Variables[1]) }, `variable "job"`},
		{"annotation", func(d *dashboard) { d.Annotations[0].Expr = "" }, `annotation "Marks"`},
		{"empty row", func(d *dashboard) { d.Rows[1].Panels = nil }, `row "second"`},
		{"panel twice", func(d *dashboard) { d.Rows[1].Panels[0].Title = "lines" }, `panel "lines": a second one`},
		{"description", func(d *dashboard) { first(d).Description = "" }, `panel "lines": no title, or no description`},
		{"unit", func(d *dashboard) { first(d).Unit = "furlong" }, `unit "furlong"`},
		{"width", func(d *dashboard) { first(d).Width = 25 }, "25 by 4"},
		{"height", func(d *dashboard) { first(d).Height = 0 }, "16 by 0"},
		{"kind", func(d *dashboard) { first(d).Kind = "graph" }, `kind "graph"`},
		{"no queries", func(d *dashboard) { first(d).Queries = nil }, "0 queries"},
		{"no expression", func(d *dashboard) { first(d).Queries = []query{{Legend: "x"}} }, "query A: no expression"},
		{"no legend", func(d *dashboard) { first(d).Queries = []query{{Expr: "x"}} }, "query A: no legend"},
		{"rows in lines", func(d *dashboard) {
			first(d).Queries = []query{{Expr: "x", Legend: "x", Rows: true}}
		}, "query A: buckets in a timeseries"},
		{"rows without legend", func(d *dashboard) { heat(d).Queries[1].Legend = "" }, "query B: no legend"},
		{"thresholds", func(d *dashboard) { first(d).Thresholds[1].From = 0.5 }, "thresholds out of order"},
		{"columns", func(d *dashboard) { cells(d).Columns = nil }, "tables need them"},
		{"states", func(d *dashboard) { d.Rows[1].Panels[2].Values = nil }, "states without names"},
		{"link", func(d *dashboard) { first(d).LinkTitle = "" }, "a link needs a title"},
		{"repeated", func(d *dashboard) { first(d).Repeat = "run" }, `repeated by "run"`},
		{"scales", func(d *dashboard) { first(d).Repeat = "job" }, "repeated, without one scale"},
		{"sort", func(d *dashboard) { cells(d).Sort = "z" }, `no column "z"`},
		{"column", func(d *dashboard) { cells(d).Columns[1].Unit = "furlong" }, `unit "furlong"`},
		{"axes", func(d *dashboard) { d.Rows[1].Panels[0].Max = new(8.0) }, `panels "left" and "right": one unit, two axes`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := sound()
			tt.spoil(&d)
			if got := strings.Join(d.check(), "\n"); !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	pages, err := all()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range append(pages, sound()) {
		if wrong := d.check(); len(wrong) > 0 {
			t.Errorf("%s: %s", d.UID, strings.Join(wrong, "\n"))
		}
	}
}
