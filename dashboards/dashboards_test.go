package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	dto "github.com/prometheus/client_model/go"

	"watchlab/bench/chart"
	"watchlab/bench/lab"
	"watchlab/bench/telemetry"
	"watchlab/impls/deltafifo"
	"watchlab/impls/merge"
	"watchlab/impls/queue"
)

// sourcesOf returns the dashboards and the rules.
func sourcesOf(t *testing.T) (pages []dashboard, all []rule) {
	t.Helper()
	pages = must(allPages())(t)
	for _, g := range must(rules())(t) {
		all = append(all, g.Rules...)
	}
	return pages, all
}

// queries returns all PromQL.
func queries(t *testing.T) (exprs []string) {
	pages, all := sourcesOf(t)
	for _, d := range pages {
		for _, p := range d.panels() {
			for _, q := range p.Queries {
				exprs = append(exprs, q.Expr)
			}
		}
		for _, v := range d.Variables {
			exprs = append(exprs, v.Query)
		}
		for _, a := range d.Annotations {
			exprs = append(exprs, a.Expr)
		}
	}
	for _, r := range all {
		exprs = append(exprs, r.Expr)
	}
	return exprs
}

// TestLateShare: an alert and the colours of a panel have the share of late releases that makes a
// cell invalid.
func TestLateShare(t *testing.T) {
	pages, all := sourcesOf(t)
	alerts, panels := 0, 0
	for _, r := range all {
		if r.Alert == "WatchlabGeneratorLate" && r.Expr == fmt.Sprintf("watchlab:generator_late:ratio1m > %g", lab.MaxLateShare) {
			alerts++
		}
	}
	want := []threshold{{lab.MaxLateShare / 2, "orange"}, {lab.MaxLateShare, "red"}}
	for _, d := range pages {
		for _, p := range d.panels() {
			if p.Title == "Late share" && slices.Equal(p.Thresholds, want) {
				panels++
			}
		}
	}
	if alerts != 1 || panels != 1 {
		t.Errorf("%d alerts and %d panels have the lab's %v", alerts, panels, lab.MaxLateShare)
	}
}

// TestFiles compares the committed files with the generated ones.
func TestFiles(t *testing.T) {
	files := must(generate())(t)
	for name, want := range files {
		if got, err := os.ReadFile("../" + name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is stale (%v): run `make dashboards`", name, err)
		}
	}
	for _, pattern := range []string{"json/*", "rules/*.rules.yaml"} {
		found := must(filepath.Glob("../" + deployed + pattern))(t)
		for _, name := range found {
			if files[strings.TrimPrefix(filepath.ToSlash(name), "../")] == nil {
				t.Errorf("no dashboard generates %s", name)
			}
		}
	}
}

// units are the value formats of Grafana that panels use
// (packages/grafana-data/src/valueFormats/categories.ts). Grafana builds those with a prefix.
var units = regexp.MustCompile(`^(none|short|percentunit|s|bytes|Bps|(suffix:|si: ).+)$`)

// TestPanels finds what Grafana accepts but does not show as intended: no description, no query, unknown units,
// thresholds out of order, a sort by no column, a label in a legend that the query drops, a link to nowhere,
// and two panels beside each other with one unit but two axes. The rules follow
// github.com/grafana/dashboard-linter (docs/rules).
func TestPanels(t *testing.T) {
	pages, all := sourcesOf(t)
	uids := map[string]bool{"": true}
	for _, d := range pages {
		uids[d.UID] = true
	}
	for _, r := range all {
		if !uids[r.Annotations["dashboard_uid"]] {
			t.Errorf("%s links to %q", r.Alert, r.Annotations["dashboard_uid"])
		}
	}
	label := regexp.MustCompile(`\{\{(\w+)\}\}`)
	for _, d := range pages {
		placed := d.Place()
		for i, a := range placed {
			bad := func(what string) { t.Errorf("%s: panel %q: %s", d.UID, a.Title, what) }
			if a.Kind == "" {
				continue // a row
			}
			if !strings.HasSuffix(a.Description, ".") || len(a.Queries) == 0 || !uids[a.Link] || a.Link == d.UID {
				bad(fmt.Sprintf("description %q, %d queries, link %q", a.Description, len(a.Queries), a.Link))
			}
			for _, q := range a.Queries {
				for _, m := range label.FindAllStringSubmatch(q.Legend, -1) {
					// Without an aggregation all labels are kept; label_replace has a name in quotes.
					if kept := regexp.MustCompile(`by \([^)]*\b` + m[1] + `\b|"` + m[1] + `"`); !kept.MatchString(q.Expr) {
						bad("legend " + q.Legend)
					}
				}
			}
			if !units.MatchString(a.Unit) {
				bad("unit " + a.Unit)
			}
			sorted := a.Sort == ""
			for _, c := range a.Columns {
				sorted = sorted || c.Name == a.Sort
				if c.Unit != "" && !units.MatchString(c.Unit) {
					bad("unit " + c.Unit)
				}
			}
			if !sorted {
				bad("no column " + a.Sort)
			}
			if !slices.IsSortedFunc(a.Thresholds, func(x, y threshold) int { return cmp.Compare(x.From, y.From) }) {
				bad("thresholds out of order")
			}
			for _, b := range placed[i+1:] {
				shared := a.Min != nil && a.Max != nil && b.Min != nil && b.Max != nil && *a.Min == *b.Min && *a.Max == *b.Max && a.Log == b.Log
				if a.Kind == b.Kind && (a.Kind == timeSeries || a.Kind == heatmap) && a.Y == b.Y && a.Unit == b.Unit && !shared {
					bad(fmt.Sprintf("has the unit of %q, and another axis", b.Title))
				}
			}
		}
	}
}

// TestVariables: each variable in a text of a dashboard is defined, and each picker is used.
func TestVariables(t *testing.T) {
	pages, _ := sourcesOf(t)
	variable := regexp.MustCompile(`\$\{?(\w+)`)
	for _, d := range pages {
		known := map[string]bool{"__rate_interval": true, "__range": true, "__url_time_range": true, "__all_variables": true, "datasource": true}
		for _, v := range d.Variables {
			known[v.Name] = true
		}
		used := map[string]bool{}
		for _, p := range d.panels() {
			for _, m := range variable.FindAllStringSubmatch(fmt.Sprintf("%+v", *p), -1) {
				used[m[1]] = true
			}
		}
		for name := range used {
			if !known[name] {
				t.Errorf("%s: $%s is not defined", d.UID, name)
			}
		}
		for _, v := range d.Variables {
			if v.Query != "" && !used[v.Name] {
				t.Errorf("%s: $%s is not used", d.UID, v.Name)
			}
		}
	}
}

// TestMetrics: queries use metrics that are exported, and match and keep existing labels only. bench/e2e/dashboards
// executes them.
func TestMetrics(t *testing.T) {
	labels := map[string][]string{} // by metric
	anywhere := []string{"job", "instance", "pod", "le"}
	export := func(name string, kind dto.MetricType, own []string) {
		labels[name] = append(own, "job", "instance")
		if kind != dto.MetricType_COUNTER && kind != dto.MetricType_GAUGE {
			for _, suffix := range []string{"_bucket", "_count", "_sum"} {
				labels[name+suffix] = append(labels[name], "le")
			}
		}
		anywhere = append(anywhere, own...)
	}
	families := must(telemetry.New("run", "commit").Gather())(t)
	for _, f := range families {
		var own []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			own = append(own, l.GetName())
		}
		if f.GetType() == dto.MetricType_SUMMARY {
			own = append(own, "quantile")
		}
		export(f.GetName(), f.GetType(), own)
	}
	for _, m := range telemetry.Metrics() {
		export(m.Name, m.Kind, m.AllLabels())
	}
	name := regexp.MustCompile(`\b(?:watchlab|go|process)_[a-z0-9_]+\b`)
	series := regexp.MustCompile(`\b(\w+)\{([^}]*)\}`)
	matcher := regexp.MustCompile(`(\w+)=~?"(?:[^"\\]|\\.)*"`)
	by := regexp.MustCompile(`by \(([^)]*)\)`)
	matched := 0
	for _, expr := range queries(t) {
		for _, n := range name.FindAllString(expr, -1) {
			if labels[n] == nil {
				t.Errorf("%s is used, but not exported", n)
			}
		}
		for _, s := range series.FindAllStringSubmatch(expr, -1) {
			for _, m := range matcher.FindAllStringSubmatch(s[2], -1) {
				matched++
				if known, ok := labels[s[1]]; ok && !slices.Contains(known, m[1]) {
					t.Errorf("%s has no label %s", s[1], m[1])
				}
			}
		}
		for _, kept := range by.FindAllStringSubmatch(expr, -1) {
			for l := range strings.SplitSeq(kept[1], ", ") {
				if !slices.Contains(anywhere, l) {
					t.Errorf("by (%s): no metric has the label %q", kept[1], l)
				}
			}
		}
	}
	if matched < 500 {
		t.Errorf("%d matchers", matched)
	}
	_, all := sourcesOf(t)
	identity := "by (" + strings.Join(append([]string{"job", "instance"}, telemetry.CommonLabels[:]...), ", ")
	for _, r := range all {
		if strings.Contains(r.Expr, "by (") && !strings.Contains(r.Expr, identity) {
			t.Errorf("%s%s does not keep all labels of a cell", r.Record, r.Alert)
		}
	}
}

// TestRatios: a ratio has no value where its denominator is 0, which Grafana would show as NaN or
// infinite. The means of histograms are without a value then.
func TestRatios(t *testing.T) {
	ratios := 0
	over := regexp.MustCompile(` / (?:on \([^)]*\) group_left \(\) )?`)
	for _, expr := range queries(t) {
		if strings.Contains(expr, "histogram_count(") {
			continue
		}
		for _, at := range over.FindAllStringIndex(expr, -1) {
			ratios++
			if denominator := bracketed(expr[at[1]:]); !strings.HasSuffix(denominator, " > 0") {
				t.Errorf("the denominator %q may be 0: %s", denominator, expr)
			}
		}
	}
	if ratios < 10 {
		t.Errorf("%d ratios", ratios)
	}
}

// bracketed returns what the first brackets of a text enclose; empty if it starts with another letter.
func bracketed(text string) string {
	depth := 0
	for i, r := range text {
		switch r {
		case '(':
			depth++
		case ')':
			depth--
		}
		if depth == 0 {
			return text[min(1, i):i]
		}
	}
	return ""
}

// TestColours: the lines of each registered variant have its colour in the report, whatever follows the
// name in the legend.
func TestColours(t *testing.T) {
	names := slices.Clone(variants)
	for _, v := range deltafifo.Variants() {
		names = append(names, v.Name)
	}
	for _, v := range queue.Variants() {
		names = append(names, v.Name)
	}
	for _, v := range merge.Variants() {
		names = append(names, v.Name)
	}
	for _, name := range names {
		for _, legend := range []string{name, name + " ", name + " in-order out", name + "-again per-key"} {
			var hexes []string
			for _, c := range colours() {
				if regexp.MustCompile(strings.Trim(c.Pattern, "/")).MatchString(legend) {
					hexes = append(hexes, c.Hex)
				}
			}
			if want := []string{chart.Hex(name).Dark}; !slices.Equal(hexes, want) {
				t.Errorf("the line %q has the colours %v, want %v", legend, hexes, want)
			}
		}
	}
}

// TestLoad: a file replaces what common.yaml has, and mistakes are errors with the name of the file.
func TestLoad(t *testing.T) {
	const common = `
from: now-15m
refresh: 5s
fragments:
  run: run=~"$run"
  picked: <<run>>,family=~"$family"
offered:
- {name: run, query: 'label_values(x{<<run>>}, run)'}
annotations:
- {name: Marks, expr: 'x{<<picked>>}'}
`
	const own = `
title: A page
refresh: 1m
fragments:
  picked: <<run>>,storm=~"$storm"
  rate: rate(%s[1m])
pickers: [run]
variables:
- name: storm
rows:
- title: row
  panels:
  - title: panel
    queries:
    - expr: <<mean rate "m" picked "storm">>
`
	fsys := func(own string) fstest.MapFS {
		return fstest.MapFS{"common.yaml": {Data: []byte(common)}, "own.yaml": {Data: []byte(own)}}
	}
	d := must(load(fsys(own), "own.yaml"))(t)
	p := d.Rows[0].Panels[0]
	for _, tt := range []struct{ name, got, want string }{
		{"from", d.From, "now-15m"},
		{"refresh", d.Refresh, "1m"},
		{"annotation", d.Annotations[0].Expr, `x{run=~"$run",storm=~"$storm"}`},
		{"variables", d.Variables[0].Query + " " + d.Variables[1].Name, `label_values(x{run=~"$run"}, run) storm`},
		{"kind", string(p.Kind), "timeseries"},
		{"expr", p.Queries[0].Expr, `(histogram_sum(sum by (storm) (rate(m{run=~"$run",storm=~"$storm"}[1m]))) / histogram_count(sum by (storm) (rate(m{run=~"$run",storm=~"$storm"}[1m]))) or sum by (storm) (rate(m_sum{run=~"$run",storm=~"$storm"}[1m])) / sum by (storm) (rate(m_count{run=~"$run",storm=~"$storm"}[1m]))) >= 0`},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, tt.got, tt.want)
		}
	}
	for _, tt := range []struct{ old, new, want string }{
		{"refresh:", "refreshes:", "field refreshes not found"},
		{"expr:", "promql:", "field promql not found"},
		{"<<mean", "<<quentile", `own.yaml:15: function "quentile" not defined`},
		{`"m" picked`, `"m" pickled`, `own.yaml:15: function "pickled" not defined`},
		{"pickers: [run]", "pickers: [ruin]", `no picker "ruin"`},
	} {
		_, err := load(fsys(strings.Replace(own, tt.old, tt.new, 1)), "own.yaml")
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "own.yaml") {
			t.Errorf("%s: got %v, want %s", tt.new, err, tt.want)
		}
	}
}

// must returns the value of a call, or ends the test with its error.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
