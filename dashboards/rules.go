package dashboards

import (
	"bytes"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"watchlab/bench/telemetry/metric"
)

// Group is a set of rules that Prometheus evaluates together, in order.
type Group struct {
	Name string

	Interval string
	Records  []Record
	Alerts   []Alert
}

// Record is a recording rule: an expression under a name of its own.
type Record struct{ Name, Expr string }

// Alert is an alerting rule with what to do about it.
type Alert struct {
	Name, Expr string

	For string

	Severity string

	Summary, Meaning string
	Steps            []string

	Dashboard string
}

// window is what rules take rates over: four scrapes of 15 s, Prometheus's usual
// interval.
const window = "1m"

// identity are the labels by which rules tell cells apart, and processes.
var identity = append([]string{"job", "instance"}, metric.CommonLabels()...)

// Bounds of alerts.
const (
	// staleEvents is how many events a store may be behind at the 99th percentile.
	staleEvents = 1000
	// deepQueue is from how many waiting events on a growing queue is worth a word.
	deepQueue = 1000
)

// Rules returns the recording rules and alerts.
func Rules() []Group {
	all := selector{}
	stage := func(s string) selector { return all.equal(metric.Stage, s) }
	rate := func(s selector, m metric.Metric) string { return sum(s.rateNamed(m.Name, window), identity...) }
	return []Group{
		{
			Name: "watchlab-records", Interval: "15s",
			Records: []Record{
				{"watchlab:events:rate1m", sum(all.rateNamed(metric.Events.Name, window), append(identity[:len(identity):len(identity)], metric.Stage)...)},
				{"watchlab:end_to_end_latency_seconds:p50_1m", all.endToEnd(0.5, window, identity...)},
				{"watchlab:end_to_end_latency_seconds:p99_1m", all.endToEnd(0.99, window, identity...)},
				{"watchlab:staleness_events:p99_1m", all.quantile(0.99, metric.Staleness, window, identity...)},
				{"watchlab:generator_late:ratio1m", rate(all, metric.GeneratorLate) + " / " + rate(stage(metric.Released), metric.Events)},
				{"watchlab:deltas_per_event:ratio1m", rate(all, metric.Deltas) + " / " + rate(stage(metric.Enqueued), metric.Events)},
			},
		},
		{
			Name: "watchlab-alerts", Interval: "15s",
			Alerts: []Alert{
				{
					Name: "WatchlabGeneratorLate", Severity: "warning", For: "30s", Dashboard: overviewUID,
					Expr:    fmt.Sprintf("watchlab:generator_late:ratio1m > %g", lateShare),
					Summary: "{{ $value | humanizePercentage }} of the releases for {{ $labels.family }}/{{ $labels.variant }} are late",
					Meaning: "The generator doesn't keep its schedule, so that the pipeline gets another storm than the one that was asked for. Beyond 1 % in the median round the cell's verdict is invalid: generator.",
					Steps: []string{
						"Look at CPU and at waiting for a processor on the dashboard Queue and memory: does something else run on the machine?",
						"Lower --pace, or raise --lag-budget where the lag doesn't matter to the question.",
						"In a cluster, use more pods with less each rather than a faster pace.",
					},
				},
				{
					Name: "WatchlabEventsMissed", Severity: "critical", For: "0s", Dashboard: overviewUID,
					Expr:    sum("increase("+all.named(metric.GeneratorMissed.Name)+"["+window+"])", identity...) + " > 0",
					Summary: "{{ $value | humanize }} events for {{ $labels.family }}/{{ $labels.variant }} were not released when the schedule was over",
					Meaning: "The generator was so late that a part of the storm was never played. Nothing of this cell may be believed.",
					Steps: []string{
						"As for WatchlabGeneratorLate.",
						"Does the variant block its producers? With --capacity it waits for room, and a generator that waits is late.",
					},
				},
				{
					Name: "WatchlabWatchErrors", Severity: "warning", For: "0s", Dashboard: overviewUID,
					Expr:    sum("increase("+all.named(metric.WatchErrors.Name)+"["+window+"])", append(identity[:len(identity):len(identity)], metric.Fault)...) + " > 0",
					Summary: "{{ $value | humanize }} watches for {{ $labels.family }}/{{ $labels.variant }} ended by {{ $labels.fault }} within a minute",
					Meaning: "Watches ended, or were refused: by the fault that was injected, by a relist of the storm, or, where the fault is other, by nothing that explains it. Until the Reflector has watched or listed anew nothing comes, and then all of it at once: latencies of that time are of the fault, not of the variant alone.",
					Steps: []string{
						"Was it asked for, by --faults or by the storm? Then it is how it is meant.",
						"other: read the command's standard error. With --source cluster or apply, look at the API server: apiserver_terminated_watchers_total rises where clients are too slow, and in the first seconds after it has started.",
						"Look at Relists and Staleness on the overview: a relist after a broken watch is what costs. Reflectors pause for seconds before they try again.",
						"Compare variants under the same faults only: the seed decides when they strike.",
					},
				},
				{
					Name: "WatchlabStale", Severity: "warning", For: "30s", Dashboard: queueUID,
					Expr:    fmt.Sprintf("watchlab:staleness_events:p99_1m > %d", staleEvents),
					Summary: "a hundredth of the reads from the store of {{ $labels.family }}/{{ $labels.variant }} are more than {{ $value | humanize }} events behind",
					Meaning: "What a worker decides by is that old. A controller then acts on objects that have changed since.",
					Steps: []string{
						"Which boundary is slow? See Stage latency.",
						"enqueued-popped: the queue's consumer is behind; popped-stored: the indexer is; otherwise the handler or worker.",
						"Compare with a variant that coalesces: it drops what is out of date instead of catching up on it.",
					},
				},
				{
					Name: "WatchlabQueueGrows", Severity: "warning", For: "30s", Dashboard: queueUID,
					Expr: fmt.Sprintf("%s > %d and %s > 0", sum(all.of(metric.QueueDepth), identity...), deepQueue,
						sum("deriv("+all.named(metric.QueueDepth.Name)+"["+window+"])", identity...)),
					Summary: "{{ $value | humanize }} events wait in {{ $labels.family }}/{{ $labels.variant }}, and more every second",
					Meaning: "Events come faster than they are handled. In an unpaced cell that is how it is meant; in a paced one the pace is beyond the knee.",
					Steps: []string{
						"Is the cell paced? Unpaced cells fill the queue on purpose.",
						"Look for the rate that it holds: watchlab knee.",
						"A bounded queue (--capacity) moves the wait to the producers, and memory stays flat.",
					},
				},
				{
					Name: "WatchlabInvalid", Severity: "critical", For: "0s", Dashboard: compareUID,
					Expr:    maximum(all.equal(metric.Status, "invalid").of(metric.Verdict), append(identity[:len(identity):len(identity)], metric.Cause)...) + " == 1",
					Summary: "{{ $labels.family }}/{{ $labels.variant }} is invalid: {{ $labels.cause }}",
					Meaning: "The cell broke an invariant (lost, reordered, duplicated, diverged), failed, or its conditions were not kept (generator, steal, throttled). Its figures are shown nowhere.",
					Steps: []string{
						"Read the run's report: it says what was broken first, with the key and the version.",
						"lost, reordered, duplicated or diverged: the variant is wrong. make mutants shows which check would catch what; the seed in run.json plays the storm again.",
						"generator, steal, throttled or gc-limit: the machine was in the way. Run again where less else runs.",
					},
				},
			},
		},
	}
}

// rule is one of Prometheus's, as its files have them.
type rule struct {
	Record      string            `yaml:"record,omitempty"`
	Alert       string            `yaml:"alert,omitempty"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for,omitempty"`
	Labels      map[string]string `yaml:"labels,omitempty"`
	Annotations map[string]string `yaml:"annotations,omitempty"`
}

// encodeRules returns the file that Prometheus reads.
func encodeRules(groups []Group) ([]byte, error) {
	type group struct {
		Name     string `yaml:"name"`
		Interval string `yaml:"interval"`
		Rules    []rule `yaml:"rules"`
	}
	var file struct {
		Groups []group `yaml:"groups"`
	}
	for _, g := range groups {
		out := group{Name: g.Name, Interval: g.Interval}
		for _, r := range g.Records {
			out.Rules = append(out.Rules, rule{Record: r.Name, Expr: r.Expr})
		}
		for _, a := range g.Alerts {
			out.Rules = append(out.Rules, rule{
				Alert: a.Name, Expr: a.Expr, For: a.For,
				Labels: map[string]string{"severity": a.Severity},
				Annotations: map[string]string{
					"summary":       a.Summary,
					"description":   a.Meaning,
					"runbook":       strings.Join(a.Steps, " "),
					"runbook_file":  "dashboards/RUNBOOKS.md#" + strings.ToLower(a.Name),
					"dashboard_uid": a.Dashboard,
				},
			})
		}
		file.Groups = append(file.Groups, out)
	}
	var b bytes.Buffer
	b.WriteString("# Generated by `make dashboards` from dashboards/rules.go.\n")
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(file); err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	if err := enc.Close(); err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	return b.Bytes(), nil
}

// runbooks returns what to do about each alert, as a page.
func runbooks(groups []Group) []byte {
	var b bytes.Buffer
	b.WriteString("# Runbooks\n\nGenerated by `make dashboards` from [rules.go](rules.go): what each alert of\n[rules/watchlab.rules.yaml](rules/watchlab.rules.yaml) means, and what to do.\n")
	titles := map[string]string{}
	for _, d := range All() {
		titles[d.UID] = d.Title
	}
	for _, g := range groups {
		for _, a := range g.Alerts {
			fmt.Fprintf(&b, "\n## %s\n\n%s, dashboard *%s*.\n\n%s\n\n", a.Name, strings.ToUpper(a.Severity[:1])+a.Severity[1:], titles[a.Dashboard], a.Meaning)
			for i, s := range a.Steps {
				fmt.Fprintf(&b, "%d. %s\n", i+1, s)
			}
			held := "At once"
			if a.For != "0s" {
				held = "After " + a.For
			}
			fmt.Fprintf(&b, "\n%s of:\n\n    %s\n", held, a.Expr)
		}
	}
	return b.Bytes()
}
