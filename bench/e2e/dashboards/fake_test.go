package dashboards

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
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

// comparisons of the exporter that have every figure.
var comparisons = []map[string]string{
	{"family": "deltafifo", "pipeline": "queue"}, {"family": "deltafifo", "pipeline": "informer"}, {"family": "merge", "pipeline": "kubelet"},
}

// TestDashboards executes all queries of all dashboards. Each query must return data.
func TestDashboards(t *testing.T) {
	for _, form := range forms {
		t.Run(form.name, func(t *testing.T) {
			t.Parallel()
			p, w := observed(t, form)
			for _, d := range load(t) {
				for _, picks := range comparisons {
					t.Run(d.UID+"/"+picks["pipeline"], func(t *testing.T) { everything(t, p, d, w, picks) })
				}
			}
			t.Run("answers", func(t *testing.T) { answers(t, p, w) })
			t.Run("alerts", func(t *testing.T) { alerts(t, p) })
			t.Run("cardinality", func(t *testing.T) { bounded(t, p, w, len(cells), 1, form) })
			t.Run("exemplars", func(t *testing.T) { exemplars(t, p, w) })
		})
	}
}

// words has the reasons of empty panels, with what a run must not have for a reason to hold.
var words = map[string]string{
	"No variant has a verdict yet":                                               `watchlab_verdict{<picked>}`,
	"No cell has a verdict yet":                                                  `watchlab_verdict{<picked>}`,
	"Only unpaced cells have a throughput of their own (--pace max)":             `watchlab_phase{<picked>,rate="max"}`,
	"No unpaced play of this run lasted until its depth was read (every 250 ms)": `{__name__=~"watchlab_queued_events(_count)?",<picked>,rate="max"}`,
	"Only paced cells have a latency (--pace RATE)":                              `watchlab_phase{<picked>,rate!="max"}`,
	"The run has no paced cells (--pace RATE)":                                   `watchlab_phase{<picked>,rate!="max"}`,
	"Only paced cells have intended times (--pace RATE)":                         `watchlab_phase{<picked>,rate!="max"}`,
	"Only paced cells of the informer pipeline have a store to look at":          `watchlab_phase{<picked>,pipeline="informer",rate!="max"}`,
	"Only the informers of watchlab report the backlog of their handlers":        `watchlab_phase{<picked>,pipeline="informer",variant!~"clientgo.*"}`,
	"Only paced cells of the informer pipeline have client-go's own metrics":     `watchlab_phase{run="$run",pipeline="informer",rate!="max"}`,
	"No unpaced cell has a valid round yet (--pace max)":                         `watchlab_events_per_second{<picked>,rate="max"}`,
	"Only with --pipeline kubelet":                                               `watchlab_phase{run="$run",pipeline="kubelet"}`,
	"Only paced cells with --pipeline kubelet":                                   `watchlab_phase{run="$run",pipeline="kubelet",rate!="max"}`,
	"One commit only; run another one to compare":                                `count(count by (commit) (watchlab_build_info)) > 1`,
	"No unpaced cell has finished (--pace max)":                                  `watchlab_events_per_second{family="$family",pipeline="$pipeline",storm="$storm",rate="max"}`,
	"No paced cell has finished (--pace RATE)":                                   `watchlab_latency_quantile_seconds{family="$family",pipeline="$pipeline",storm="$storm"}`,
}

// excused reports whether a panel says why it has no data, and whether that is so.
func excused(ctx context.Context, p *prometheus, reason string, values map[string]string, w window) error {
	if reason == "" {
		return errors.New("no data, and no word why")
	}
	expr, known := words[reason]
	if !known {
		return fmt.Errorf("no condition for %q", reason)
	}
	expr, err := fill(strings.ReplaceAll(expr, "<picked>", `run="$run",family="$family",pipeline="$pipeline",storm="$storm"`), values)
	if err != nil {
		return err
	}
	got, err := p.series(ctx, expr, w)
	if err == nil && len(got) > 0 {
		err = fmt.Errorf("no data, and %q is not so: %s has %d series", reason, expr, len(got))
	}
	return err
}

// everything executes all queries of a dashboard as Grafana does, with the picked values. All values are
// finite, and a panel has data from each query or says why it has none.
func everything(t *testing.T, p *prometheus, d dashboard, w window, picks map[string]string) {
	t.Helper()
	ctx := t.Context()
	_, values, err := offered(ctx, p, d, w, picks)
	if err != nil {
		t.Fatal(err)
	}
	for _, panel := range d.Panels {
		var without []string
		data := 0
		for _, q := range panel.Targets {
			got, err := ask(ctx, p, q, values, w)
			if err != nil {
				t.Errorf("%s %s: %v\n%s", panel.Title, q.RefID, err, q.Expr)
				continue
			}
			if slices.ContainsFunc(got, series.drawable) {
				data++
			} else if !strings.Contains(q.Expr, metric.Objective.Name) {
				without = append(without, q.RefID+" "+q.Expr)
			}
			for _, wrong := range slices.Concat(labelled(got, q), infinite(got)) {
				t.Errorf("%s %s: %s\n%s", panel.Title, q.RefID, wrong, q.Expr)
			}
		}
		switch {
		case data == 0:
			if err := excused(ctx, p, panel.FieldConfig.Defaults.NoValue, values, w); err != nil {
				t.Errorf("%s: %v\n%q", panel.Title, err, without)
			}
		case panel.Type == "heatmap" && data != 1:
			// It has one query for native histograms and one for classic ones.
			t.Errorf("%s: %d of its queries have data", panel.Title, data)
		case panel.Type != "heatmap" && len(without) > 0:
			t.Errorf("%s: no data from %q", panel.Title, without)
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

// infinite reports values that Grafana cannot draw.
func infinite(got []series) (wrong []string) {
	for _, s := range got {
		for _, sample := range append(s.Values, s.Value) {
			text, _ := sample[1].(string)
			if v, err := strconv.ParseFloat(text, 64); err == nil && (math.IsNaN(v) || math.IsInf(v, 0)) {
				wrong = append(wrong, fmt.Sprintf("%v has the value %s", s.Metric, text))
				break
			}
		}
	}
	return wrong
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
	// Relative tolerances. An estimate is as precise as its bucket: 9 % wide in a native
	// histogram, a factor of two in a classic one, of four for counts. All other values are exact.
	const exact, estimated, roughly = 1e-6, 0.5, 3
	queue, informer, kubelet := comparisons[0], comparisons[1], comparisons[2]
	line := func(variant, delivery string) map[string]string {
		return map[string]string{"variant": variant, "delivery": delivery}
	}
	row := func(variant, delivery, source string) map[string]string {
		return map[string]string{"variant": variant, "delivery": delivery, "source": source}
	}
	wire := func(m map[string]string, more ...string) map[string]string {
		m["encoding"], m["decode"] = "protobuf", "shared"
		for i := 0; i < len(more); i += 2 {
			m[more[i]] = more[i+1]
		}
		return m
	}
	ring := wire(row("ring", "in-order", "apiserver"), "store", "snapshot", "workqueue", "sharded")
	late := (released / 20) / (released * 10.0) // of the sum of the paces of the informer's cells, 1+1+4+4+1
	late = late * 10 / 11
	for _, tt := range []struct {
		uid, panel string
		picks      map[string]string
		query      int
		series     map[string]string
		want       float64
		within     float64
		// count is the expected number of series. Zero skips the check.
		count int
	}{
		// The verdicts of unpaced and of paced cells: 0 for valid, 2 for invalid.
		{"watchlab-queues", "Ranking", informer, 0, ring, 0, exact, 2},
		{"watchlab-queues", "Ranking", informer, 6, wire(row("cond", "in-order", "apiserver")), 2, exact, 3},
		// In a per-key delivery, the variant has another baseline than the selected one.
		{"watchlab-queues", "Ranking", queue, 2, row("ring", "in-order", "memory"), 2, exact, 2},
		{"watchlab-queues", "Ranking", queue, 3, row("ring", "in-order", "memory"), 0.5, exact, 2},
		{"watchlab-queues", "Ranking", queue, 4, row("ring", "per-key", "memory"), 1000 * 3 * 0.95, exact, 4},
		// Upstream's informer is the baseline of ours with any store. An invalid cell has no figures.
		{"watchlab-queues", "Ranking", informer, 2, ring, 4, exact, 2},
		{"watchlab-queues", "Ranking", informer, 3, ring, 0.25, exact, 2},
		{"watchlab-queues", "Ranking", informer, 5, ring, endToEnd / 4 * (1 + 1/0.9) / 2, exact, 2},
		{"watchlab-queues", "Rates in and out", queue, 0, line("ring", "in-order"), released * 2 / playTime, exact, 4},
		{"watchlab-queues", "Rates in and out", queue, 1, line("ring", "in-order"), (released - coalesced) * 2 / playTime, exact, 4},
		{"watchlab-queues", "Queue depth, unpaced", queue, 0, line("ring", "in-order"), 20, roughly, 4},
		{"watchlab-queues", "Latency, 99th percentile", queue, 0, line("ring", "in-order"), endToEnd / 2, 1, 4},
		{"watchlab-queues", "Latency, 99th percentile", queue, 1, map[string]string{"limit": "p99"}, objective, exact, 1},
		{"watchlab-queues", "Progress", queue, 0, map[string]string{}, 0.5, exact, 1},
		{"watchlab-queues", "Cells", queue, 0, map[string]string{}, float64(len(cells)), exact, 1},
		{"watchlab-queues", "Verdicts of all cells", informer, 0, nil, 0, 0, 5},
		{"watchlab-stages", "Batch size, mean", queue, 0, line("ring", "per-key"), batch, exact, 4},
		{"watchlab-stages", "Deltas per event", queue, 0, line("ring", "in-order"), deltas / float64(released), exact, 4},
		{"watchlab-stages", "Staleness, 99th percentile", informer, 0, line("ring", "in-order"), stale, roughly, 3},
		{"watchlab-stages", "Generator lag, 99th percentile", queue, 0, line("ring", "in-order"), lag, estimated, 4},
		{"watchlab-stages", "Waiting in client-go", informer, 0, map[string]string{}, 7, exact, 1},
		{"watchlab-cost", "Cost of an event", queue, 0, row("ring", "in-order", "memory"), 0.5, exact, 2},
		{"watchlab-cost", "Cost of an event", queue, 3, row("ring", "per-key", "memory"), 100 / 3.0, exact, 4},
		{"watchlab-kubelet", "Pods in a notification, mean", kubelet, 0, map[string]string{"variant": "cond"}, batch, exact, 2},
		{"watchlab-kubelet", "Notifications per update", kubelet, 0, map[string]string{"variant": "cond"}, deltas / float64(released), exact, 2},
		{"watchlab-cluster", "Pods", queue, 0, map[string]string{}, 1, exact, 1},
		{"watchlab-cluster", "Late share", informer, 0, map[string]string{}, late, exact, 1},
		{"watchlab-history", "Ratios of $new to $old", queue, 0, map[string]string{"variant": "ring", "delivery": "per-key", "source": "memory", "rate": "max"}, 0.9, exact, 8},
		{"watchlab-history", "Ratios of $new to $old", queue, 1, map[string]string{"variant": "ring", "delivery": "per-key", "source": "memory", "rate": "1000"}, 1 / 0.9, exact, 4},
		{"watchlab-history", "Throughput by commit", queue, 0, nil, 0, 0, 8},
	} {
		t.Run(fmt.Sprintf("%s/%s %d", tt.uid, tt.panel, tt.query), func(t *testing.T) {
			d, q := find(t, tt.uid, tt.panel, tt.query)
			_, values, err := offered(ctx, p, d, w, tt.picks)
			if err != nil {
				t.Fatal(err)
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
	for _, tt := range []struct {
		uid   string
		picks map[string]string
		want  map[string][]string
	}{
		{"watchlab-queues", queue, map[string][]string{
			"job": {"watchlab"}, "run": {"fake"}, "family": {"deltafifo", "merge", "queue"}, "pipeline": {"informer", "queue"},
			"storm": {"recorded-gang"}, "rate": {"1000", "max"}, "baseline": {"clientgo-realfifo-batch", "clientgo-deltafifo", "ring"},
		}},
		{"watchlab-queues", informer, map[string][]string{"baseline": {"clientgo-informer", "ring", "cond"}}},
		{"watchlab-queues", kubelet, map[string][]string{"baseline": {"reference", "cond"}, "rate": {"200", "max"}}},
		{"watchlab-stages", queue, map[string][]string{"boundary": {
			metric.DecodedEnqueued, metric.EnqueuedPopped, metric.PoppedStored, metric.ReleasedEnqueued, metric.ReleasedWire, metric.StoredHandled, metric.WireDecoded,
		}}},
		// The newest commit first, and never the same twice.
		{"watchlab-history", queue, map[string][]string{"new": {commits[1], commits[0]}, "old": {commits[0]}}},
	} {
		d, _ := find(t, tt.uid, first(t, tt.uid), 0)
		choices, _, err := offered(ctx, p, d, w, tt.picks)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range tt.want {
			if !slices.Equal(choices[name], want) {
				t.Errorf("%s: values of %s: %v, want %v", tt.uid, name, choices[name], want)
			}
		}
	}
}

// first returns the title of a dashboard's first panel.
func first(t *testing.T, uid string) string {
	t.Helper()
	for _, d := range load(t) {
		if d.UID == uid {
			return d.Panels[0].Title
		}
	}
	t.Fatalf("no dashboard %s", uid)
	return ""
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
			if a.Labels["source"] != "apiserver" || a.Labels["variant"] != "cond" {
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
		if count[name] == 0 && name != metric.Objective.Name { // only with --slo
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
		case metric.Quantile, metric.Limit:
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
