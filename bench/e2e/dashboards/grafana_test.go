package dashboards

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The parts of a dashboard's JSON that the tests execute.
type (
	dashboard struct {
		UID, Title  string
		Templating  struct{ List []variable }
		Annotations struct{ List []annotation }
		Panels      []panel
	}
	variable struct {
		Name, Type, AllValue, Regex string
		Query                       any
		Multi                       bool
		Sort                        int
	}
	annotation struct {
		Name, Expr, Step string
		BuiltIn          int
	}
	panel struct {
		Title, Type string
		Targets     []target
		FieldConfig struct {
			Defaults struct{ NoValue string }
		}
	}
	target struct {
		RefID, Expr, Format, LegendFormat string
		Instant                           bool
	}
)

// load reads the committed dashboards.
func load(t *testing.T) []dashboard {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dashboards, "json", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(names) != 6 {
		t.Fatalf("%d dashboards", len(names))
	}
	var out []dashboard
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var d dashboard
		if err := json.Unmarshal(b, &d); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		d.Panels = slices.DeleteFunc(d.Panels, func(p panel) bool { return p.Type == "row" })
		d.Annotations.List = slices.DeleteFunc(d.Annotations.List, func(a annotation) bool { return a.BuiltIn == 1 })
		out = append(out, d)
	}
	return out
}

var (
	mention     = regexp.MustCompile(`\$(?:\{(\w+)\}|(\w+))`)
	labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)
	queryResult = regexp.MustCompile(`^query_result\((.+)\)$`)
)

// fill replaces variables with values.
func fill(expr string, values map[string]string) (string, error) {
	var missing []string
	filled := mention.ReplaceAllStringFunc(expr, func(m string) string {
		name := strings.Trim(m, "${}")
		v, ok := values[name]
		if !ok {
			missing = append(missing, name)
		}
		return v
	})
	if len(missing) > 0 {
		return "", fmt.Errorf("no value for %v in %s", missing, expr)
	}
	return filled, nil
}

// builtins returns Grafana's built-in variables, for a scrape interval of 1 s and a panel
// with one pixel per second.
func builtins(w window) map[string]string {
	return map[string]string{
		"__rate_interval": (4 * scrape).String(),
		"__range":         strconv.Itoa(int(w.to.Sub(w.from)/time.Second)) + "s",
	}
}

// offered returns the values of each picker, and the selected values: those of picks, else all values or
// the first, as in Grafana 9.3. A picker without values is empty.
func offered(ctx context.Context, p *prometheus, d dashboard, w window, picks map[string]string) (map[string][]string, map[string]string, error) {
	choices, values := map[string][]string{}, builtins(w)
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		query, _ := v.Query.(map[string]any)
		text, _ := query["query"].(string)
		text, err := fill(text, values)
		if err == nil {
			choices[v.Name], err = v.choices(ctx, p, text, w)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("variable %s: %w", v.Name, err)
		}
		picked := picks[v.Name]
		switch {
		case v.Multi:
			values[v.Name] = v.AllValue
		case slices.Contains(choices[v.Name], picked) || len(choices[v.Name]) == 0:
			values[v.Name] = picked
		default:
			values[v.Name] = choices[v.Name][0]
		}
	}
	return choices, values, nil
}

// choices returns the values of a picker in their order. Grafana 9.3 takes labels from the matching series,
// and writes a result of a query as text, which the regular expression reads.
func (v variable) choices(ctx context.Context, p *prometheus, text string, w window) (out []string, err error) {
	if m := queryResult.FindStringSubmatch(text); m != nil {
		got, err := p.instant(ctx, m[1], w)
		if err != nil {
			return nil, err
		}
		pattern := regexp.MustCompile(strings.Trim(v.Regex, "/"))
		for _, s := range got {
			var labels []string
			for name, value := range s.Metric {
				labels = append(labels, fmt.Sprintf("%s=%q", name, value))
			}
			if m := pattern.FindStringSubmatch("{" + strings.Join(labels, ",") + "}"); m != nil {
				out = append(out, m[1])
			}
		}
		return out, nil
	}
	m := labelValues.FindStringSubmatch(text)
	if m == nil {
		return nil, fmt.Errorf("no query of a picker: %s", text)
	}
	sets, err := p.labelSets(ctx, m[1], w)
	for _, set := range sets {
		if set[m[2]] != "" {
			out = append(out, set[m[2]])
		}
	}
	slices.Sort(out)
	out = slices.Compact(out)
	if v.Sort == 4 {
		number := func(s string) int {
			n, err := strconv.Atoi(s)
			if err != nil {
				return -1
			}
			return n
		}
		slices.SortStableFunc(out, func(a, b string) int { return number(b) - number(a) })
	}
	return out, err
}

// ask executes the query of a panel as Grafana does.
func ask(ctx context.Context, p *prometheus, q target, values map[string]string, w window) ([]series, error) {
	expr, err := fill(q.Expr, values)
	if err != nil {
		return nil, err
	}
	if q.Instant {
		return p.instant(ctx, expr, w)
	}
	return p.series(ctx, expr, w)
}
