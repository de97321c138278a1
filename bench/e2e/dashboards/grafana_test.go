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
		Name, Type, AllValue string
		Query                any
		Multi                bool
		Sort                 int
	}
	annotation struct {
		Name, Expr, Step string
		BuiltIn          int
	}
	panel struct {
		Title, Type string
		Targets     []target
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
	if len(names) != 7 {
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

// offered returns the values of each picker, and the selected values. Like Grafana 9.3 it
// takes them from the matching series. Earlier pickers select all values, or their first.
func offered(ctx context.Context, p *prometheus, d dashboard, w window) (map[string][]string, map[string]string, error) {
	choices, values := map[string][]string{}, builtins(w)
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		query, _ := v.Query.(map[string]any)
		text, _ := query["query"].(string)
		text, err := fill(text, values)
		if err != nil {
			return nil, nil, fmt.Errorf("variable %s: %w", v.Name, err)
		}
		m := labelValues.FindStringSubmatch(text)
		if m == nil {
			return nil, nil, fmt.Errorf("variable %s: %s", v.Name, text)
		}
		sets, err := p.labelSets(ctx, m[1], w)
		if err != nil {
			return nil, nil, fmt.Errorf("variable %s: %w", v.Name, err)
		}
		for _, set := range sets {
			if set[m[2]] != "" {
				choices[v.Name] = append(choices[v.Name], set[m[2]])
			}
		}
		slices.Sort(choices[v.Name])
		choices[v.Name] = slices.Compact(choices[v.Name])
		if v.Sort == 2 {
			slices.Reverse(choices[v.Name])
		}
		switch {
		case v.Multi:
			values[v.Name] = v.AllValue
		case len(choices[v.Name]) > 0:
			values[v.Name] = choices[v.Name][0]
		default:
			return choices, nil, fmt.Errorf("variable %s has no values: %s", v.Name, text)
		}
	}
	return choices, values, nil
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
