package dashboards

import (
	"context"
	"fmt"
	"math"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"watchlab/bench/e2e/programs"
	"watchlab/bench/telemetry/metric"
)

// The values of labels.
var (
	boundaries = metric.Boundaries()
	froms      = []string{metric.FromIntended, metric.FromReleased}
	quantiles  = []string{"0.5", "0.9", "0.99", "0.999", "1"}
)

// scrapes is the number of scrapes before the first query. Rates need four; more make
// comparisons more precise.
const scrapes = 10

// form selects the histogram forms that a Prometheus keeps.
type form struct {
	name            string
	native, classic bool
}

var forms = []form{{"native", true, false}, {"classic", false, true}, {"both", true, true}}

// observed returns a Prometheus that has scraped an exporter, and the time range of the scrapes.
func observed(t *testing.T, form form) (*prometheus, window) {
	t.Helper()
	e := newExporter()
	from := time.Now()
	p := startPrometheus(t, form, e.serve(t))
	programs.Eventually(t, "enough scrapes", func() error {
		if n := e.scrapes(); n < scrapes {
			return fmt.Errorf("%d so far", n)
		}
		return nil
	})
	// Wait until Prometheus has stored the last scrape.
	programs.Eventually(t, "all of them stored", func() error {
		got, err := p.instant(t.Context(), "count_over_time("+metric.BuildInfo.Name+"[5m])", window{to: time.Now()})
		if err != nil {
			return err
		}
		if len(got) != 1 {
			return fmt.Errorf("%v", got)
		}
		if n, _ := got[0].last(); n < scrapes {
			return fmt.Errorf("%v so far", n)
		}
		return nil
	})
	return p, window{from, time.Now()}
}

// TestDashboards executes all queries of all dashboards. Each query must return data.
func TestDashboards(t *testing.T) {
	for _, form := range forms {
		t.Run(form.name, func(t *testing.T) {
			t.Parallel()
			p, w := observed(t, form)
			for _, d := range load(t) {
				t.Run(d.UID, func(t *testing.T) { everything(t, p, d, w, nil) })
			}
			t.Run("answers", func(t *testing.T) { answers(t, p, w) })
			t.Run("alerts", func(t *testing.T) { alerts(t, p) })
			t.Run("cardinality", func(t *testing.T) { bounded(t, p, w, len(cells), 1, form) })
			t.Run("exemplars", func(t *testing.T) { exemplars(t, p, w) })
		})
	}
}

// everything executes all queries of a dashboard. Panels in empty may have no data.
func everything(t *testing.T, p *prometheus, d dashboard, w window, empty []string) {
	t.Helper()
	ctx := t.Context()
	_, values, err := offered(ctx, p, d, w)
	if err != nil {
		t.Fatal(err)
	}
	for _, panel := range d.Panels {
		data := 0
		for _, q := range panel.Targets {
			got, err := ask(ctx, p, q, values, w)
			if err != nil {
				t.Errorf("%s %s: %v\n%s", panel.Title, q.RefID, err, q.Expr)
				continue
			}
			drawn := slices.ContainsFunc(got, series.drawable)
			if drawn {
				data++
			}
			if !drawn && panel.Type != "heatmap" && !slices.Contains(empty, panel.Title) {
				t.Errorf("%s %s: no data in %d series\n%s", panel.Title, q.RefID, len(got), q.Expr)
			}
			for _, wrong := range labelled(got, q) {
				t.Errorf("%s %s: %s\n%s", panel.Title, q.RefID, wrong, q.Expr)
			}
		}
		// A heat map has two queries: one for native histograms, one for classic ones.
		// Exactly one has data.
		if panel.Type == "heatmap" && data != 1 && !slices.Contains(empty, panel.Title) {
			t.Errorf("%s: %d of its queries have data", panel.Title, data)
		}
	}
	for _, a := range d.Annotations.List {
		expr, err := fill(a.Expr, values)
		if err != nil {
			t.Errorf("annotation %s: %v", a.Name, err)
			continue
		}
		if _, err := p.series(ctx, expr, w); err != nil {
			t.Errorf("annotation %s: %v", a.Name, err)
		}
	}
}

// labelled reports series that the legend cannot tell apart.
func labelled(got []series, q target) (wrong []string) {
	if q.Format == "table" || q.LegendFormat == "" {
		return nil
	}
	seen := map[string]bool{}
	for _, s := range got {
		name := q.LegendFormat
		for label, value := range s.Metric {
			name = strings.ReplaceAll(name, "{{"+label+"}}", value)
		}
		if seen[name] {
			wrong = append(wrong, fmt.Sprintf("two series %q", name))
		}
		seen[name] = true
	}
	return wrong
}

// find returns the query of a panel.
func find(t *testing.T, uid, title string, i int) (dashboard, target) {
	t.Helper()
	for _, d := range load(t) {
		for _, p := range d.Panels {
			if d.UID == uid && p.Title == title {
				return d, p.Targets[i]
			}
		}
	}
	t.Fatalf("%s has no panel %q", uid, title)
	return dashboard{}, target{}
}

// answers compares the values of panels with those of the exporter.
func answers(t *testing.T, p *prometheus, w window) {
	ctx := t.Context()
	pick := map[string]string{"family": "deltafifo", "left": "ring", "right": "clientgo-realfifo-batch", "new": commits[1], "old": commits[0]}
	// Relative tolerances. An estimate is as precise as its bucket: 9 % wide in a native
	// histogram, a factor of two in a classic one. All other values are exact.
	const exact, estimated = 1e-6, 0.5
	// wire adds the labels of the cells over HTTP, which alone have this rate.
	wire := func(m map[string]string) map[string]string {
		if m["rate"] == "1000" {
			m["encoding"], m["decode"] = "protobuf", "shared"
		}
		return m
	}
	experiment := func(delivery, pipeline, storm, source, rate string) map[string]string {
		return wire(map[string]string{"family": "deltafifo", "delivery": delivery, "pipeline": pipeline, "storm": storm, "source": source, "rate": rate})
	}
	variant := func(family, variant, delivery, rate string) map[string]string {
		m := map[string]string{"family": family, "variant": variant, "rate": rate}
		if delivery != "" {
			m["delivery"] = delivery
		}
		return wire(m)
	}
	for _, tt := range []struct {
		uid, panel string
		query      int
		series     map[string]string
		want       float64
		within     float64
		// count is the expected number of series. Zero skips the check.
		count int
	}{
		{"watchlab-overview", "Deltas per event", 0, variant("deltafifo", "ring", "in-order", "max"), deltas / float64(released), exact, len(cells)},
		{"watchlab-overview", "Verdicts", 0, map[string]string{"status": "valid"}, float64(len(cells) - 1), exact, 2},
		{"watchlab-overview", "Verdicts", 0, map[string]string{"status": "invalid"}, 1, exact, 2},
		{"watchlab-overview", "Progress", 0, map[string]string{"run": "fake"}, 0.5, exact, 1},
		{"watchlab-overview", "Cells", 0, map[string]string{"run": "fake"}, float64(len(cells)), exact, 1},
		// Unpaced cells have no latency.
		{"watchlab-overview", "End to end, median", 0, variant("deltafifo", "ring", "in-order", "1000"), endToEnd / 4, estimated, 4},
		{"watchlab-overview", "Generator lag, 99th percentile", 0, variant("deltafifo", "ring", "in-order", "1000"), lag, estimated, 4},
		{"watchlab-compare", "99th percentile, $left over $right", 0, experiment("in-order", "informer", "nodeloss", "apiserver", "1000"), 0.25, estimated, 1},
		{"watchlab-compare", "Throughput, $left over $right", 0, experiment("in-order", "queue", "recorded-gang", "memory", "max"), 2, exact, 1},
		{"watchlab-compare", "$left: batch size", 0, map[string]string{"delivery": "in-order", "storm": "nodeloss", "rate": "1000"}, batch, exact, 3},
		{"watchlab-compare", "Throughput of finished cells", 0, nil, 0, 0, 4},
		{"watchlab-compare", "Verdicts of cells", 0, nil, 0, 0, 5},
		{"watchlab-latency", "Mean time by stage", 0, map[string]string{"boundary": metric.EnqueuedPopped}, stageLatency, exact, len(boundaries)},
		{"watchlab-queue", "Batch size by variant", 0, variant("deltafifo", "ring", "per-key", "max"), batch, exact, len(cells)},
		{"watchlab-queue", "Staleness", 0, variant("deltafifo", "ring", "in-order", "1000"), stale, estimated, 2},
		{"watchlab-queue", "informer_queued_items", 0, map[string]string{"name": "deltafifo/ring/in-order", "resource": "pods"}, 7, exact, 1},
		{"watchlab-kubelet", "Pods in a notification", 0, map[string]string{"variant": "cond", "rate": "200"}, batch, exact, 2},
		{"watchlab-kubelet", "Notifications per update", 0, map[string]string{}, deltas / float64(released), exact, 1},
		{"watchlab-cluster", "Pods", 0, map[string]string{}, 1, exact, 1},
		{"watchlab-cluster", "Late share", 0, map[string]string{}, released / 20 / (released * 17.0), exact, 1},
		{"watchlab-history", "Throughput, $new over $old", 0, map[string]string{"family": "deltafifo", "variant": "ring", "delivery": "per-key", "pipeline": "queue", "storm": "recorded-gang", "source": "memory", "rate": "max"}, 0.9, exact, len(cells) - 1},
		{"watchlab-history", "99th percentile, $new over $old", 0, wire(map[string]string{"family": "deltafifo", "variant": "ring", "delivery": "in-order", "pipeline": "informer", "storm": "nodeloss", "source": "apiserver", "rate": "1000"}), 1 / 0.9, exact, 3},
		{"watchlab-history", "All commits", 0, nil, 0, 0, 2 * (len(cells) - 1)},
	} {
		t.Run(tt.uid+"/"+tt.panel, func(t *testing.T) {
			d, q := find(t, tt.uid, tt.panel, tt.query)
			_, values, err := offered(ctx, p, d, w)
			if err != nil {
				t.Fatal(err)
			}
			for name, v := range pick {
				if _, ok := values[name]; ok && values[name] != ".+" {
					values[name] = v
				}
			}
			got, err := ask(ctx, p, q, values, w)
			if err != nil {
				t.Fatal(err)
			}
			if tt.count > 0 && len(got) != tt.count {
				t.Errorf("%d series, want %d: %v", len(got), tt.count, sets(got))
			}
			if tt.series == nil {
				return
			}
			i := slices.IndexFunc(got, func(s series) bool { return equalSets(s.Metric, tt.series) })
			if i < 0 {
				t.Fatalf("no %v among %v\n%s", tt.series, sets(got), q.Expr)
			}
			v, ok := got[i].last()
			if !ok || math.Abs(v-tt.want) > tt.within*tt.want {
				t.Errorf("%v is %v, want %v", tt.series, v, tt.want)
			}
		})
	}

	// Check the values of the pickers and their order.
	d, _ := find(t, "watchlab-compare", "Throughput of finished cells", 0)
	choices, _, err := offered(ctx, p, d, w)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"job": {"watchlab"}, "run": {"fake"},
		"pipeline": {"informer", "kubelet", "queue"},
		"storm":    {"nodeloss", "recorded-gang"},
		"family":   {"deltafifo", "merge", "queue"},
		"left":     {"ring", "clientgo-realfifo-batch"},
		"right":    {"clientgo-realfifo-batch", "ring"},
	} {
		if !slices.Equal(choices[name], want) {
			t.Errorf("values of %s: %v, want %v", name, choices[name], want)
		}
	}
	d, _ = find(t, "watchlab-latency", "End to end", 0)
	if choices, _, err = offered(ctx, p, d, w); err != nil {
		t.Fatal(err)
	}
	if want := slices.Sorted(slices.Values(boundaries)); !slices.Equal(choices["boundary"], want) {
		t.Errorf("values of boundary: %v, want %v", choices["boundary"], want)
	}
	if want := slices.Sorted(slices.Values(froms)); !slices.Equal(choices["from"], want) {
		t.Errorf("values of from: %v, want %v", choices["from"], want)
	}
}

func sets(got []series) (out []map[string]string) {
	for _, s := range got {
		out = append(out, s.Metric)
	}
	return out
}

func equalSets(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return true
}

// ruleState is the state of a rule in Prometheus.
type ruleState struct {
	Name, Health, LastError, State, Type string
	Alerts                               []struct {
		Labels map[string]string
		State  string
	}
}

// ruleStates waits until Prometheus has evaluated all rules and returns their states.
func ruleStates(t *testing.T, p *prometheus) map[string]ruleState {
	t.Helper()
	states := map[string]ruleState{}
	programs.Eventually(t, "all rules evaluated", func() error {
		var data struct {
			Groups []struct{ Rules []ruleState }
		}
		if err := p.get(t.Context(), "/api/v1/rules", nil, &data); err != nil {
			return err
		}
		for _, g := range data.Groups {
			for _, r := range g.Rules {
				if r.Health == "unknown" {
					return fmt.Errorf("%s isn't", r.Name)
				}
				states[r.Name] = r
			}
		}
		return nil
	})
	for _, r := range states {
		if r.Health != "ok" {
			t.Errorf("%s: %s: %s", r.Name, r.Health, r.LastError)
		}
	}
	return states
}

// alerts checks that each recording rule has series. Each alert must be pending or firing
// for the broken cell and for no other.
func alerts(t *testing.T, p *prometheus) {
	programs.Eventually(t, "all alerts", func() error {
		states := ruleStates(t, p)
		if len(states) != 11 {
			return fmt.Errorf("%d rules", len(states))
		}
		for _, r := range states {
			if r.Type == "recording" {
				got, err := p.instant(t.Context(), r.Name, window{to: time.Now()})
				if err != nil {
					return err
				}
				if !slices.ContainsFunc(got, series.drawable) {
					return fmt.Errorf("%s has recorded nothing", r.Name)
				}
				continue
			}
			if r.State == "inactive" {
				return fmt.Errorf("%s is inactive", r.Name)
			}
		}
		return nil
	})
	for _, r := range ruleStates(t, p) {
		for _, a := range r.Alerts {
			if a.Labels["source"] != "apiserver" || a.Labels["variant"] != "clientgo-realfifo-batch" {
				t.Errorf("%s for %v", r.Name, a.Labels)
			}
		}
	}
}

// bounded checks that the numbers of cells and runs bound the number of series, and that
// no unknown labels exist.
func bounded(t *testing.T, p *prometheus, w window, cells, runs int, form form) {
	known := map[string]metric.Metric{}
	for _, m := range metric.Own() {
		known[m.Name] = m
	}
	sets, err := p.labelSets(t.Context(), `{__name__=~"watchlab_.*"}`, w)
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, set := range sets {
		name := set["__name__"]
		m, ok := known[name]
		for _, suffix := range []string{"_bucket", "_count", "_sum"} {
			if base, found := strings.CutSuffix(name, suffix); found && !ok {
				m, ok = known[base]
			}
		}
		if !ok {
			t.Errorf("%s is not exported", name)
			continue
		}
		count[m.Name]++
		allowed := append(m.AllLabels(), "__name__", "job", "instance", "le")
		for l := range set {
			if !slices.Contains(allowed, l) {
				t.Errorf("%s has a label %s", name, l)
			}
		}
	}
	for name := range known {
		if count[name] == 0 {
			t.Errorf("no %s", name)
		}
	}
	total := 0
	for name, n := range count {
		total += n
		if most := mostSeries(known[name], cells, runs, form); n > most {
			t.Errorf("%s has %d series, want at most %d", name, n, most)
		}
	}
	t.Logf("%d series of %d cells in %d runs", total, cells, runs)
}

// mostSeries returns the largest allowed number of series of a metric.
func mostSeries(m metric.Metric, cells, runs int, form form) int {
	n := runs
	if m.Common {
		n = cells
	}
	for _, l := range m.Labels {
		switch l {
		case metric.Stage:
			n *= len(metric.Stages())
		case metric.Type:
			n *= len(metric.Types())
		case metric.Boundary:
			n *= len(boundaries)
		case metric.From:
			n *= len(froms)
		case metric.PhaseLabel:
			n *= len(metric.Phases())
		case metric.Quantile:
			n *= len(quantiles)
		case metric.Commit:
			n *= 2
		case metric.Status:
			n *= 3 // A busy machine makes a cell valid, noisy and invalid in turn.
		case metric.Fault:
			n *= 12 // All faults of loadgen/fault, and "other".
		}
	}
	if m.Kind != metric.Histogram {
		return n
	}
	of := 0
	if form.native {
		of++
	}
	if form.classic {
		of += len(m.Buckets) + 3 // Plus +Inf, count and sum.
	}
	return n * of
}

// exemplars checks that a latency links to a trace.
//
// Prometheus 3.15 with native histograms alone keeps only the exemplars of a metric's first series:
// ProtobufParser does not reset between series. Therefore compose keeps both forms.
func exemplars(t *testing.T, p *prometheus, w window) {
	var data []struct {
		Exemplars []struct{ Labels map[string]string }
	}
	err := p.get(context.WithoutCancel(t.Context()), "/api/v1/query_exemplars", url.Values{
		"query": {metric.EndToEndLatency.Name + " or " + metric.EndToEndLatency.Name + "_bucket"},
		"start": {at(w.from)}, "end": {at(w.to)},
	}, &data)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range data {
		for _, e := range s.Exemplars {
			if len(e.Labels["trace_id"]) == 32 {
				return
			}
		}
	}
	t.Errorf("no exemplar with a trace among %d series", len(data))
}

// TestPromtool checks the rules with promtool, and runs promtool's unit tests of them.
func TestPromtool(t *testing.T) {
	tool := programs.Installed(t, "promtool")
	for _, args := range [][]string{
		{"check", "rules", "watchlab.rules.yaml"},
		{"test", "rules", "watchlab.test.yaml"},
	} {
		cmd := exec.CommandContext(t.Context(), tool, args...)
		cmd.Dir = filepath.Join(dashboards, "rules")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}
