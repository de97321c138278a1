// Package dashboards executes every query of the Grafana dashboards and rules as Grafana does, with a real
// Prometheus that scrapes real runs, once with native and once with classic histograms. The tests need prometheus
// and promtool (scripts/prometheus.sh installs Debian's). Without them they skip with a message.
package dashboards

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"watchlab/bench/e2e/programs"
)

// folder has the generated files.
const folder = "../../../scripts/deploy/dashboards"

func TestMain(m *testing.M) {
	code := m.Run()
	http.DefaultClient.CloseIdleConnections()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// runs holds the arguments of the runs: each pipeline, paced and unpaced, one with faults of the simulated
// server. Together they produce all metrics of the dashboards.
var runs = [][]string{
	{"--family", "deltafifo", "--impl", "clientgo-realfifo-batch,ring", "--pipeline", "queue", "--storm", "recorded-gang", "--pace", "max,5000"},
	{"--family", "deltafifo", "--delivery", "in-order", "--impl", "clientgo-realfifo-batch,cond", "--pipeline", "informer", "--source", "apiserver", "--faults", "disconnect:every=1s,count=20", "--storm", "recorded-gang", "--pace", "max,500"},
	{"--family", "merge", "--impl", "reference,cond", "--pipeline", "kubelet", "--storm", "recorded-nodeloss", "--pace", "max,200"},
}

// TestRun: each query of each panel returns finite values for one of the runs at least, each rule records, and the
// alert of watch errors names the faults of the run that has them.
func TestRun(t *testing.T) {
	program := programs.Installed(t, "prometheus")
	for _, native := range []bool{false, true} {
		t.Run(fmt.Sprintf("native=%t", native), func(t *testing.T) {
			if testing.Short() && native {
				t.Skip("short: classic histograms only")
			}
			var addresses []string
			for range runs {
				addresses = append(addresses, programs.Address(t))
			}
			p := startPrometheus(t, program, native, addresses)
			p.from = time.Now()
			for i, args := range runs {
				args = slices.Concat([]string{"run", "--ignore-host", "--lag-budget", "10s", "--budget", "10m", "--metrics-addr", addresses[i]}, args)
				run := programs.Start(t, exec.Command(programs.Watchlab(t), args...), 0, 130)
				run.Ready(t, func() error { return ok("http://" + addresses[i] + "/readyz") })
			}
			programs.Eventually(t, "all cells have figures", func() error { return p.figures(t.Context()) })
			p.to = time.Now()
			for _, d := range load(t) {
				t.Run(d.UID, func(t *testing.T) { p.panels(t, d) })
			}
			p.rules(t, addresses[1])
		})
	}
}

// TestRules checks the rules with promtool, and runs its unit tests of them.
func TestRules(t *testing.T) {
	tool := programs.Installed(t, "promtool")
	for _, args := range [][]string{{"check", "rules", "watchlab.rules.yaml"}, {"test", "rules", "watchlab.test.yaml"}} {
		cmd := exec.CommandContext(t.Context(), tool, args...)
		cmd.Dir = filepath.Join(folder, "rules")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}

// The parts of a dashboard's JSON that the tests execute.
type (
	dashboard struct {
		UID         string
		Templating  struct{ List []variable }
		Annotations struct{ List []struct{ Name, Expr string } }
		Panels      []panel
	}
	variable struct {
		Name, Type, AllValue, Regex string
		Query                       any
		Multi                       bool
	}
	panel struct {
		Title, Type string
		Targets     []target
		FieldConfig struct{ Defaults struct{ NoValue string } }
	}
	target struct {
		RefID, Expr string
		Instant     bool
	}
)

// load reads the committed dashboards.
func load(t *testing.T) (all []dashboard) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(folder, "json", "*.json"))
	if err != nil || len(names) != 6 {
		t.Fatalf("%d dashboards, %v", len(names), err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var d dashboard
		if err := json.Unmarshal(b, &d); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, d)
	}
	return all
}

// prometheus is a running server, and the time range of the dashboards.
type prometheus struct {
	url      string
	from, to time.Time
}

// startPrometheus starts a Prometheus on the loopback. It scrapes and evaluates our rules every second.
func startPrometheus(t *testing.T, program string, native bool, targets []string) *prometheus {
	t.Helper()
	dir := t.TempDir()
	rules, err := os.ReadFile(filepath.Join(folder, "rules", "watchlab.rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	version, err := exec.Command(program, "--version").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	setting, feature := "", "exemplar-storage"
	var major, minor int
	if m := regexp.MustCompile(`version (\d+)\.(\d+)`).FindSubmatch(version); m != nil {
		major, _ = strconv.Atoi(string(m[1]))
		minor, _ = strconv.Atoi(string(m[2]))
	}
	if major > 3 || major == 3 && minor >= 8 {
		setting = fmt.Sprintf(", scrape_native_histograms: %v", native)
	} else if native {
		feature += ",native-histograms" // of the whole server, before 3.8
	}
	quoted, err := json.Marshal(targets)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		"watchlab.rules.yaml": bytes.ReplaceAll(rules, []byte("interval: 15s"), []byte("interval: 1s")),
		"prometheus.yaml": fmt.Appendf(nil, `
global: {scrape_interval: 1s, evaluation_interval: 1s%s}
rule_files: [watchlab.rules.yaml]
scrape_configs: [{job_name: watchlab, static_configs: [{targets: %s}]}]
`, setting, quoted),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	address := programs.Address(t)
	process := programs.Start(t, exec.Command(program, "--config.file="+filepath.Join(dir, "prometheus.yaml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address, "--enable-feature="+feature, "--log.level=warn"))
	p := &prometheus{url: "http://" + address}
	process.Ready(t, func() error { return ok(p.url + "/-/ready") })
	return p
}

// ok returns nil when a URL answers 200 OK.
func ok(url string) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return errors.Join(err, resp.Body.Close())
}

// get calls the API and decodes the field data of the answer.
func (p *prometheus) get(ctx context.Context, path string, values url.Values, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/api/v1/"+path+"?"+values.Encode(), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	var answer struct {
		Status, Error string
		Warnings      []string
		Data          json.RawMessage
	}
	if err := errors.Join(json.NewDecoder(resp.Body).Decode(&answer), resp.Body.Close()); err != nil {
		return fmt.Errorf("%s: %s: %w", path, resp.Status, err)
	}
	if answer.Status != "success" || len(answer.Warnings) > 0 {
		return fmt.Errorf("%s: %s %v", path, answer.Error, answer.Warnings)
	}
	return json.Unmarshal(answer.Data, into)
}

// series is a series of an answer. A sample is a pair of time and value.
type series struct {
	Metric     map[string]string
	Value      [2]any
	Values     [][2]any
	Histogram  [2]any
	Histograms [][2]any
}

func (s series) infinite() bool {
	return slices.ContainsFunc(append(s.Values, s.Value), func(sample [2]any) bool {
		text, _ := sample[1].(string)
		v, err := strconv.ParseFloat(text, 64)
		return err == nil && (math.IsNaN(v) || math.IsInf(v, 0))
	})
}

func seconds(t time.Time) string {
	return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64)
}

// instant evaluates an expression at a time.
func (p *prometheus) instant(ctx context.Context, expr string, at time.Time) ([]series, error) {
	var data struct{ Result []series }
	err := p.get(ctx, "query", url.Values{"query": {expr}, "time": {seconds(at)}}, &data)
	return data.Result, err
}

// ranged evaluates an expression at every second of the time range.
func (p *prometheus) ranged(ctx context.Context, expr string) ([]series, error) {
	var data struct{ Result []series }
	err := p.get(ctx, "query_range", url.Values{"query": {expr}, "start": {seconds(p.from)}, "end": {seconds(p.to)}, "step": {"1"}}, &data)
	return data.Result, err
}

// figures reports whether two variants of each run have throughput and latency, as of four scrapes ago.
func (p *prometheus) figures(ctx context.Context) error {
	for _, name := range []string{"watchlab_events_per_second", "watchlab_latency_quantile_seconds"} {
		got, err := p.instant(ctx, "count by (instance) (count by (instance, variant) ("+name+`{variant!~".*-again"})) > 1`, time.Now().Add(-4*time.Second))
		if err != nil {
			return err
		}
		if len(got) != len(runs) {
			return fmt.Errorf("%s of %d runs", name, len(got))
		}
	}
	return nil
}

// unheard are queries that these runs do not answer: a run has one commit and no objective.
func unheard(p panel, q target) bool {
	return strings.HasPrefix(p.FieldConfig.Defaults.NoValue, "One commit only") || strings.Contains(q.Expr, "watchlab_objective_seconds")
}

// panels executes all queries of a dashboard for each run.
func (p *prometheus) panels(t *testing.T, d dashboard) {
	answered := map[string]bool{}
	var names []string
	if err := p.get(t.Context(), "label/run/values", url.Values{}, &names); err != nil || len(names) != len(runs) {
		t.Fatalf("runs %q, %v", names, err)
	}
	for _, run := range names {
		values, err := p.offered(t.Context(), d, run)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range d.Annotations.List {
			if _, err := p.ranged(t.Context(), fill(a.Expr, values)); a.Expr != "" && err != nil {
				t.Errorf("annotation %s: %v", a.Name, err)
			}
		}
		for _, panel := range d.Panels {
			for _, q := range panel.Targets {
				ask := p.ranged
				if q.Instant {
					ask = func(ctx context.Context, expr string) ([]series, error) { return p.instant(ctx, expr, p.to) }
				}
				got, err := ask(t.Context(), fill(q.Expr, values))
				if err != nil || slices.ContainsFunc(got, series.infinite) {
					t.Errorf("%s %s of %s: %v, or infinite values\n%s", panel.Title, q.RefID, run, err, q.Expr)
				}
				if len(got) > 0 {
					answered[panel.Title+q.RefID], answered[panel.Title] = true, true
				}
			}
		}
	}
	for _, panel := range d.Panels {
		for _, q := range panel.Targets {
			// A heatmap has one query for native and one for classic histograms.
			if !answered[panel.Title+q.RefID] && !(panel.Type == "heatmap" && answered[panel.Title]) && !unheard(panel, q) {
				t.Errorf("%s %s: no data\n%s", panel.Title, q.RefID, q.Expr)
			}
		}
	}
}

var mention = regexp.MustCompile(`\$(?:\{(\w+)\}|(\w+))`)

// fill replaces variables with values. What has none stays, and Prometheus refuses it.
func fill(expr string, values map[string]string) string {
	return mention.ReplaceAllStringFunc(expr, func(m string) string {
		if v, ok := values[strings.Trim(m, "${}")]; ok {
			return v
		}
		return m
	})
}

var (
	labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)
	queryResult = regexp.MustCompile(`^query_result\((.+)\)$`)
)

// offered returns the selected values of all variables: the run, else all values or the first, as in Grafana 9.3. The
// scrape interval is 1 s and a panel has a pixel for each second.
func (p *prometheus) offered(ctx context.Context, d dashboard, run string) (map[string]string, error) {
	values := map[string]string{"__rate_interval": "4s", "__range": strconv.Itoa(int(p.to.Sub(p.from)/time.Second)) + "s"}
	for _, v := range d.Templating.List {
		query, _ := v.Query.(map[string]any)
		text, _ := query["query"].(string)
		if text = fill(text, values); v.Type != "query" {
			continue
		}
		var choices []string
		if m := queryResult.FindStringSubmatch(text); m != nil {
			// Grafana writes the result as text, which the regular expression reads.
			got, err := p.instant(ctx, m[1], p.to)
			if err != nil {
				return nil, fmt.Errorf("variable %s: %w", v.Name, err)
			}
			for _, s := range got {
				var labels []string
				for name, value := range s.Metric {
					labels = append(labels, fmt.Sprintf("%s=%q", name, value))
				}
				if m := regexp.MustCompile(strings.Trim(v.Regex, "/")).FindStringSubmatch("{" + strings.Join(labels, ",") + "}"); m != nil {
					choices = append(choices, m[1])
				}
			}
		} else if m := labelValues.FindStringSubmatch(text); m != nil {
			if err := p.get(ctx, "label/"+m[2]+"/values", url.Values{"match[]": {m[1]}, "start": {seconds(p.from)}, "end": {seconds(p.to)}}, &choices); err != nil {
				return nil, fmt.Errorf("variable %s: %w", v.Name, err)
			}
		} else {
			return nil, fmt.Errorf("variable %s: %s", v.Name, text)
		}
		switch {
		case v.Multi:
			values[v.Name] = v.AllValue
		case v.Name == "run":
			values[v.Name] = run
		case len(choices) > 0:
			values[v.Name] = choices[0]
		default:
			values[v.Name] = ""
		}
	}
	return values, nil
}

// rules checks that all rules are healthy and recorded something, and that only the run with faults has their alert.
func (p *prometheus) rules(t *testing.T, faulty string) {
	t.Helper()
	var data struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError, Type string }
		}
	}
	if err := p.get(t.Context(), "rules", nil, &data); err != nil {
		t.Fatal(err)
	}
	for _, g := range data.Groups {
		for _, r := range g.Rules {
			got, err := p.instant(t.Context(), r.Name, p.to)
			if r.Type == "alerting" {
				got = []series{{}}
			}
			if err != nil || r.Health != "ok" || len(got) == 0 {
				t.Errorf("%s has recorded %d series, is %s: %s, %v", r.Name, len(got), r.Health, r.LastError, err)
			}
		}
	}
	got, err := p.ranged(t.Context(), `ALERTS{alertname="WatchlabWatchErrors"}`)
	if err != nil || len(got) == 0 {
		t.Errorf("faults, and %d alerts, %v", len(got), err)
	}
	for _, s := range got {
		if s.Metric["instance"] != faulty || s.Metric["fault"] == "" {
			t.Errorf("an alert for %v", s.Metric)
		}
	}
}
