package dashboards

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

// stand replaces a dashboard's variables with literals that the parser accepts. The odd
// durations identify the variables in the parsed query.
var stand = map[string]string{
	"__rate_interval": "8869990787ms",
	"__range":         "8869990788ms",
}

// rateInterval is the literal of $__rate_interval.
const rateInterval = 8869990787 * time.Millisecond

// parse parses a query. It replaces only variables in stand: all others are inside of
// regular expressions, which the parser accepts.
func parse(t *testing.T, expr string) (parser.Expr, error) {
	t.Helper()
	for name, literal := range stand {
		expr = strings.ReplaceAll(expr, "$"+name, literal)
	}
	return parser.NewParser(parser.Options{}).ParseExpr(expr)
}

// TestQueriesLint checks the rules of github.com/grafana/dashboard-linter that need a
// parser: target-promql-rule, target-job-rule, target-instance-rule,
// target-rate-interval-rule, target-counter-agg-rule, template-label-promql-rule.
func TestQueriesLint(t *testing.T) {
	for _, d := range load(t) {
		for _, p := range d.Panels {
			for _, q := range p.Targets {
				where := fmt.Sprintf("%s: %s %s", d.UID, p.Title, q.RefID)
				expr, err := parse(t, q.Expr)
				if err != nil {
					t.Errorf("%s: target-promql-rule: %v", where, err)
					continue
				}
				wrongs := slices.Concat(matched(expr), rated(expr))
				if !slices.Contains(ofTotals, p.Title) {
					wrongs = append(wrongs, counted(expr)...)
				}
				for _, wrong := range wrongs {
					t.Errorf("%s: %s\n%s", where, wrong, q.Expr)
				}
			}
		}
		for _, a := range d.Annotations.List {
			expr, err := parse(t, a.Expr)
			if err != nil {
				t.Errorf("%s: annotation %s: %v", d.UID, a.Name, err)
				continue
			}
			for _, wrong := range slices.Concat(matched(expr), counted(expr)) {
				t.Errorf("%s: annotation %s: %s", d.UID, a.Name, wrong)
			}
		}
		for _, v := range d.Templating.List {
			if v.Type != "query" {
				continue
			}
			query, _ := v.Query.(map[string]any)
			text, _ := query["query"].(string)
			m := labelValues.FindStringSubmatch(text)
			if v.Regex != "" {
				m = queryResult.FindStringSubmatch(text)
			}
			if m == nil {
				t.Errorf("%s: template-label-promql-rule: %s: %s", d.UID, v.Name, text)
				continue
			}
			if _, err := parse(t, m[1]); err != nil {
				t.Errorf("%s: template-label-promql-rule: %s: %v", d.UID, v.Name, err)
			}
		}
	}
}

// matched returns selectors without the pickers of job and instance.
func matched(expr parser.Expr) (wrong []string) {
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		s, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		for _, name := range []string{"job", "instance"} {
			if !slices.ContainsFunc(s.LabelMatchers, func(m *labels.Matcher) bool {
				return m.Name == name && m.Type == labels.MatchRegexp && m.Value == "$"+name
			}) {
				wrong = append(wrong, fmt.Sprintf("target-%s-rule: %s", name, s))
			}
		}
		return nil
	})
	return wrong
}

// rated returns rates over intervals other than Grafana's.
func rated(expr parser.Expr) (wrong []string) {
	parser.Inspect(expr, func(node parser.Node, path []parser.Node) error {
		m, ok := node.(*parser.MatrixSelector)
		if !ok || m.Range == rateInterval {
			return nil
		}
		if call, ok := path[len(path)-1].(*parser.Call); ok && (call.Func.Name == "rate" || call.Func.Name == "irate" || call.Func.Name == "deriv") {
			wrong = append(wrong, "target-rate-interval-rule: "+m.String())
		}
		return nil
	})
	return wrong
}

// ofTotals are the panels with a ratio of totals. A ratio of rates exceeds what the storm gives while a
// queue drains.
var ofTotals = []string{"Deltas per event", "Notifications per update"}

// counted returns counters without rate or increase, or the last value of the time range.
func counted(expr parser.Expr) (wrong []string) {
	parser.Inspect(expr, func(node parser.Node, path []parser.Node) error {
		s, ok := node.(*parser.VectorSelector)
		if !ok || !strings.HasSuffix(s.Name, "_total") {
			return nil
		}
		if len(path) >= 2 {
			if call, ok := path[len(path)-2].(*parser.Call); ok && slices.Contains([]string{"rate", "irate", "increase", "last_over_time"}, call.Func.Name) {
				return nil
			}
		}
		wrong = append(wrong, "target-counter-agg-rule: "+s.String())
		return nil
	})
	return wrong
}

// TestRulesParse checks that rules parse without pickers, and that each rule uses only
// records of earlier rules.
func TestRulesParse(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(dashboards, "rules", "watchlab.rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []struct{ Record, Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	recorded, alerts := map[string]bool{}, 0
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			expr, err := parse(t, r.Expr)
			if err != nil {
				t.Errorf("%s%s: %v", r.Record, r.Alert, err)
				continue
			}
			for _, wrong := range counted(expr) {
				t.Errorf("%s%s: %s", r.Record, r.Alert, wrong)
			}
			parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
				if s, ok := node.(*parser.VectorSelector); ok && strings.Contains(s.Name, ":") && !recorded[s.Name] {
					t.Errorf("%s%s: nothing has recorded %s yet", r.Record, r.Alert, s.Name)
				}
				return nil
			})
			if r.Record != "" {
				recorded[r.Record] = true
			} else {
				alerts++
			}
		}
	}
	if len(recorded) == 0 || alerts == 0 {
		t.Errorf("%d records, %d alerts", len(recorded), alerts)
	}
}
