package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"go.yaml.in/yaml/v3"

	"watchlab/bench/lab"
	"watchlab/bench/telemetry/live"
	"watchlab/bench/telemetry/metric"
)

// The linted part of a dashboard's JSON, as Grafana's own linter reads it.
type (
	dashboard struct {
		UID           string
		Title         string
		Description   string
		Editable      *bool
		SchemaVersion int
		GraphTooltip  int
		Refresh       string
		Time          struct{ From, To string }
		Style         string
		Timezone      string
		Tags          []string
		Templating    struct{ List []template }
		Annotations   struct{ List []annotation }
		Panels        []panel
		Links         []struct {
			Type        string
			Tags        []string
			IncludeVars bool
			KeepTime    bool
		}
	}
	source   struct{ Type, UID string }
	template struct {
		Name, Label, Type, AllValue string
		Query                       any
		Datasource                  source
		Multi, IncludeAll           bool
		Refresh                     int
		Sort                        int
	}
	annotation struct {
		Name, Expr, Step string
		BuiltIn          int
		Datasource       source
	}
	panel struct {
		ID                       int
		Type, Title, Description string
		Datasource               source
		GridPos                  struct{ H, W, X, Y int }
		Targets                  []target
		FieldConfig              struct {
			Defaults struct {
				Unit       string
				Thresholds struct {
					Mode  string
					Steps []struct {
						Color string
						Value *float64
					}
				}
			}
		}
		Links []struct{ URL string }
	}
	target struct {
		RefID, Expr, Format, LegendFormat string
		Datasource                        source
		Instant, Range                    bool
	}
)

// deployed is the folder of the generated files.
const deployed = "../scripts/deploy/dashboards/"

func all(t *testing.T) []dashboard {
	t.Helper()
	names, err := filepath.Glob(deployed + "json/*.json")
	if err != nil {
		t.Fatal(err)
	}
	var out []dashboard
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var d dashboard
		if err := json.Unmarshal(content, &d); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		out = append(out, d)
	}
	return out
}

type rule struct {
	Record, Alert, Expr string
	Labels, Annotations map[string]string
}

// rules returns the generated rules of all groups.
func rules(t *testing.T) (all []rule) {
	t.Helper()
	text, err := os.ReadFile(deployed + "rules/watchlab.rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Groups []struct{ Rules []rule } }
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// picked is the data source of every query.
var picked = source{Type: "prometheus", UID: "${datasource}"}

// lints has the rules of github.com/grafana/dashboard-linter (docs/rules) that need no PromQL
// parser, under their original names, and similar own rules. bench/e2e/dashboards executes the queries.
var lints = map[string]func(dashboard) []string{
	"template-datasource-rule": func(d dashboard) (wrong []string) {
		var sources []template
		for _, v := range d.Templating.List {
			if v.Type == "datasource" {
				sources = append(sources, v)
			}
		}
		if len(sources) != 1 || sources[0].Name != "datasource" || sources[0].Label != "Data source" || sources[0].Query != "prometheus" {
			wrong = append(wrong, fmt.Sprintf("%+v", sources))
		}
		return wrong
	},
	"template-job-rule":      required("job"),
	"template-instance-rule": required("instance"),
	"template-on-time-change-reload-rule": func(d dashboard) (wrong []string) {
		for _, v := range d.Templating.List {
			if v.Type == "query" && v.Refresh != 2 {
				wrong = append(wrong, v.Name)
			}
		}
		return wrong
	},
	"uneditable-dashboard": func(d dashboard) []string {
		if d.Editable == nil || *d.Editable {
			return []string{"editable"}
		}
		return nil
	},
	"panel-datasource-rule": func(d dashboard) (wrong []string) {
		for _, p := range drawn(d) {
			if p.Datasource != picked {
				wrong = append(wrong, p.Title)
			}
			for _, q := range p.Targets {
				if q.Datasource != picked {
					wrong = append(wrong, p.Title+" "+q.RefID)
				}
			}
		}
		for _, v := range d.Templating.List {
			if v.Type == "query" && v.Datasource != picked {
				wrong = append(wrong, "variable "+v.Name)
			}
		}
		for _, a := range d.Annotations.List {
			if a.BuiltIn == 0 && a.Datasource != picked {
				wrong = append(wrong, "annotation "+a.Name)
			}
		}
		return wrong
	},
	"panel-title-description-rule": func(d dashboard) (wrong []string) {
		for _, p := range drawn(d) {
			if p.Title == "" || !strings.HasSuffix(p.Description, ".") {
				wrong = append(wrong, fmt.Sprintf("%d %s", p.ID, p.Title))
			}
		}
		return wrong
	},
	"panel-units-rule": func(d dashboard) (wrong []string) {
		for _, p := range drawn(d) {
			if p.FieldConfig.Defaults.Unit == "" {
				wrong = append(wrong, p.Title)
			}
		}
		return wrong
	},
	"panel-no-targets-rule": func(d dashboard) (wrong []string) {
		for _, p := range drawn(d) {
			if len(p.Targets) == 0 {
				wrong = append(wrong, p.Title)
			}
		}
		return wrong
	},
	// The required fields of Grafana 9.3's schema of a dashboard
	// (kinds/structured/dashboard/dashboard_kind.cue).
	"schema": func(d dashboard) (wrong []string) {
		bad := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
		if n := len(d.UID); n < 8 || n > 40 {
			bad("uid %q", d.UID)
		}
		if d.SchemaVersion != 37 || d.Style != "dark" || d.Timezone != "browser" || d.GraphTooltip < 0 || d.GraphTooltip > 2 {
			bad("head")
		}
		if !regexp.MustCompile(`^now-\d+[mhd]$`).MatchString(d.Time.From) || d.Time.To != "now" || !regexp.MustCompile(`^\d+[sm]$`).MatchString(d.Refresh) {
			bad("time %v, refresh %q", d.Time, d.Refresh)
		}
		ids := map[int]bool{}
		for _, p := range d.Panels {
			if p.ID < 1 || ids[p.ID] {
				bad("panel %q: id %d", p.Title, p.ID)
			}
			ids[p.ID] = true
			if g := p.GridPos; g.H < 1 || g.W < 1 || g.X < 0 || g.Y < 0 || g.X+g.W > 24 {
				bad("panel %q: %+v", p.Title, g)
			}
			for i, s := range p.FieldConfig.Defaults.Thresholds.Steps {
				if (i == 0) != (s.Value == nil) || s.Color == "" {
					bad("panel %q: threshold %d", p.Title, i)
				}
			}
		}
		for i, a := range d.Panels {
			for _, b := range d.Panels[i+1:] {
				x, y := a.GridPos, b.GridPos
				if x.X < y.X+y.W && y.X < x.X+x.W && x.Y < y.Y+y.H && y.Y < x.Y+x.H {
					bad("panels %q and %q overlap", a.Title, b.Title)
				}
			}
		}
		for _, l := range d.Links {
			if l.Type != "dashboards" || len(l.Tags) == 0 || !l.IncludeVars || !l.KeepTime {
				bad("link %+v", l)
			}
		}
		return wrong
	},
	"table-instant-query-rule": func(d dashboard) (wrong []string) {
		for _, p := range drawn(d) {
			for _, q := range p.Targets {
				if (p.Type == "table") != q.Instant || q.Instant == q.Range {
					wrong = append(wrong, p.Title+" "+q.RefID)
				}
			}
		}
		return wrong
	},
	// Otherwise the legend shows an empty name.
	"legend-label-rule": func(d dashboard) (wrong []string) {
		label := regexp.MustCompile(`\{\{(\w+)\}\}`)
		for _, p := range drawn(d) {
			for _, q := range p.Targets {
				for _, m := range label.FindAllStringSubmatch(q.LegendFormat, -1) {
					// Without an aggregation all labels are kept; label_replace has a
					// name in quotes.
					if kept := regexp.MustCompile(`by \([^)]*\b` + m[1] + `\b|"` + m[1] + `"`); !kept.MatchString(q.Expr) {
						wrong = append(wrong, fmt.Sprintf("%s %s: {{%s}}", p.Title, q.RefID, m[1]))
					}
				}
			}
		}
		return wrong
	},
	"defined-variable-rule": func(d dashboard) (wrong []string) {
		known := map[string]bool{"__rate_interval": true, "__range": true, "__url_time_range": true, "__all_variables": true}
		for _, v := range d.Templating.List {
			known[v.Name] = true
		}
		b, err := json.Marshal(d)
		if err != nil {
			return []string{err.Error()}
		}
		for _, m := range regexp.MustCompile(`\$\{?(\w+)`).FindAllStringSubmatch(string(b), -1) {
			if !known[m[1]] {
				wrong = append(wrong, "$"+m[1])
			}
		}
		return wrong
	},
	"used-variable-rule": func(d dashboard) (wrong []string) {
		var text strings.Builder
		for _, p := range drawn(d) {
			for _, q := range p.Targets {
				text.WriteString(q.Expr)
			}
		}
		for _, v := range d.Templating.List {
			if v.Type == "query" && !strings.Contains(text.String(), "$"+v.Name) {
				wrong = append(wrong, v.Name)
			}
		}
		return wrong
	},
}

// required returns the rule that every dashboard has a picker.
func required(name string) func(dashboard) []string {
	return func(d dashboard) []string {
		for _, v := range d.Templating.List {
			if v.Name == name {
				if v.Label != name || v.Type != "query" || v.Datasource != picked || !v.Multi || !v.IncludeAll || v.AllValue != ".+" {
					return []string{fmt.Sprintf("%+v", v)}
				}
				return nil
			}
		}
		return []string{"there is none"}
	}
}

// drawn returns the panels other than rows.
func drawn(d dashboard) []panel {
	return slices.DeleteFunc(slices.Clone(d.Panels), func(p panel) bool { return p.Type == "row" })
}

func TestLint(t *testing.T) {
	ds := all(t)
	if len(ds) != 6 {
		t.Fatalf("%d dashboards", len(ds))
	}
	for _, d := range ds {
		for name, lint := range lints {
			for _, wrong := range lint(d) {
				t.Errorf("%s: %s: %s", d.UID, name, wrong)
			}
		}
	}
}

// TestLinks: every link leads to an existing dashboard.
func TestLinks(t *testing.T) {
	ds := all(t)
	uids := map[string]bool{}
	for _, d := range ds {
		uids[d.UID] = true
	}
	linked := 0
	for _, d := range ds {
		for _, p := range d.Panels {
			for _, l := range p.Links {
				linked++
				uid, _, _ := strings.Cut(strings.TrimPrefix(l.URL, "/d/"), "?")
				if !uids[uid] {
					t.Errorf("%s: %s links to %s", d.UID, p.Title, l.URL)
				}
				if uid == d.UID {
					t.Errorf("%s: %s links to itself", d.UID, p.Title)
				}
			}
		}
	}
	if linked == 0 {
		t.Error("no panel has a link")
	}
	for _, r := range rules(t) {
		a := r.Annotations
		if r.Alert == "" {
			continue
		}
		if !uids[a["dashboard_uid"]] {
			t.Errorf("%s links to %q", r.Alert, a["dashboard_uid"])
		}
		if a["summary"] == "" || a["description"] == "" || a["runbook"] == "" || !slices.Contains([]string{"warning", "critical"}, r.Labels["severity"]) {
			t.Errorf("%s: no summary, description, runbook or severity", r.Alert)
		}
	}
}

// queries returns all PromQL of dashboards and rules.
func queries(t *testing.T) (exprs []string) {
	t.Helper()
	for _, d := range all(t) {
		for _, p := range d.Panels {
			for _, q := range p.Targets {
				exprs = append(exprs, q.Expr)
			}
		}
		for _, v := range d.Templating.List {
			exprs = append(exprs, fmt.Sprint(v.Query))
		}
		for _, a := range d.Annotations.List {
			exprs = append(exprs, a.Expr)
		}
	}
	for _, r := range rules(t) {
		exprs = append(exprs, r.Expr)
	}
	return exprs
}

// TestEveryMetricShown: dashboards and rules use every metric of watchlab, and no other one than those of
// a run, of its process and of client-go.
func TestEveryMetricShown(t *testing.T) {
	asked := map[string]bool{}
	name := regexp.MustCompile(`\b(?:watchlab|informer|workqueue|go|process)_[a-z0-9_]+\b`)
	for _, expr := range queries(t) {
		for _, n := range name.FindAllString(expr, -1) {
			asked[n] = true
		}
	}
	exported := map[string]bool{}
	export := func(name string, suffixes ...string) {
		exported[name] = true
		for _, suffix := range suffixes {
			exported[name+suffix] = true
		}
	}
	families, err := live.New("run", "commit").Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		switch f.GetType() {
		case dto.MetricType_HISTOGRAM:
			export(f.GetName(), "_bucket", "_count", "_sum")
		case dto.MetricType_SUMMARY:
			export(f.GetName(), "_count", "_sum")
		default:
			export(f.GetName())
		}
	}
	own := metric.Own()
	for i, m := range append(own, metric.Upstream()...) {
		export(m.Name)
		if m.Kind == metric.Histogram {
			export(m.Name, "_bucket", "_count", "_sum")
		}
		if i < len(own) && !asked[m.Name] {
			t.Errorf("%s is exported, but not used", m.Name)
		}
	}
	for n := range asked {
		if !exported[n] {
			t.Errorf("%s is used, but not exported", n)
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

// TestLabels: queries match and keep existing labels only, and match existing values.
func TestLabels(t *testing.T) {
	values := map[string][]string{
		metric.Stage:      metric.Stages(),
		metric.PhaseLabel: metric.Phases(),
		metric.From:       {metric.FromIntended, metric.FromReleased},
		metric.Boundary:   metric.Boundaries(),
		metric.Status:     {string(lab.Valid), string(lab.Noisy), string(lab.Invalid)},
		metric.Rate:       {lab.Unpaced},
		metric.Store:      {""},
		metric.Workqueue:  {""},
		metric.Pipeline:   {"kubelet"},
		metric.Quantile:   {"0.5", "0.99"},
	}
	known := map[string][]string{} // labels of each metric
	anywhere := []string{"job", "instance", "pod", "le"}
	for _, m := range slices.Concat(metric.Own(), metric.Upstream()) {
		known[m.Name] = append(m.AllLabels(), "job", "instance")
		anywhere = append(anywhere, m.AllLabels()...)
	}
	series := regexp.MustCompile(`\b(\w+?)(?:_bucket|_count|_sum)?\{([^}]*)\}`)
	matcher := regexp.MustCompile(`(\w+)(=~?)"((?:[^"\\]|\\.)*)"`)
	by := regexp.MustCompile(`by \(([^)]*)\)`)
	matched := 0
	for _, expr := range queries(t) {
		for _, s := range series.FindAllStringSubmatch(expr, -1) {
			for _, m := range matcher.FindAllStringSubmatch(s[2], -1) {
				matched++
				if labels, ok := known[s[1]]; ok && !slices.Contains(labels, m[1]) {
					t.Errorf("%s has no label %s", s[1], m[1])
				}
				if m[2] == "=" && !slices.Contains(values[m[1]], m[3]) && !strings.HasPrefix(m[3], "$") {
					t.Errorf("the label %s has no value %q", m[1], m[3])
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
	identity := "by (" + strings.Join(append([]string{"job", "instance"}, metric.CommonLabels()...), ", ")
	for _, r := range rules(t) {
		if strings.Contains(r.Expr, "by (") && !strings.Contains(r.Expr, identity) {
			t.Errorf("%s%s does not keep all labels of a cell", r.Record, r.Alert)
		}
	}
}
