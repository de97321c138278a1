package dashboards

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"watchlab/bench/telemetry/metric"
)

// Record is a recording rule.
type Record struct{ Name, Expr string }

// Alert is an alerting rule with its runbook.
type Alert struct {
	// Name of the alert; Expr is its PromQL expression.
	Name, Expr string
	// For is the time for which the expression must hold before the alert fires.
	For string
	// Severity is warning if figures are in doubt, and critical if figures are lost.
	Severity string
	// Summary is one line with {{ $labels.x }} and {{ $value }}. Meaning is the
	// runbook's explanation.
	Summary, Meaning string
	// Steps of the runbook, in order.
	Steps []string
	// Dashboard is the UID of the dashboard to open.
	Dashboard string
}

// window of the rates in rules: four scrapes of 15 s, Prometheus's usual interval.
const window = "1m"

// identity has the labels that identify a process and a cell.
var identity = append([]string{"job", "instance"}, metric.CommonLabels()...)

// Bounds of alerts.
const (
	// staleEvents bounds the staleness at the 99th percentile.
	staleEvents = 1000
	// deepQueue is the depth from which a growing queue raises an alert.
	deepQueue = 1000
)

// interval of the evaluation of all rules. Alerts may use the records: Prometheus
// evaluates groups in parallel, so they are at most one interval old.
const interval = "15s"

// Rules returns the recording rules and alerts.
func Rules() ([]Record, []Alert) {
	all := selector{}
	stage := func(s string) selector { return all.equal(metric.Stage, s) }
	rate := func(s selector, m metric.Metric) string { return sum(s.rateNamed(m.Name, window), identity...) }
	with := func(label string) []string { return append(identity[:len(identity):len(identity)], label) }
	increased := func(m metric.Metric, by ...string) string {
		return sum("increase("+all.of(m)+"["+window+"])", by...) + " > 0"
	}
	return []Record{
			{"watchlab:events:rate1m", sum(all.rateNamed(metric.Events.Name, window), with(metric.Stage)...)},
			{"watchlab:end_to_end_latency_seconds:p50_1m", all.endToEnd(0.5, window, identity...)},
			{"watchlab:end_to_end_latency_seconds:p99_1m", all.endToEnd(0.99, window, identity...)},
			{"watchlab:staleness_events:p99_1m", all.quantile(0.99, metric.Staleness, window, identity...)},
			{"watchlab:generator_late:ratio1m", rate(all, metric.GeneratorLate) + " / " + rate(stage(metric.Released), metric.Events)},
			{"watchlab:deltas_per_event:ratio1m", rate(all, metric.Deltas) + " / " + rate(stage(metric.Enqueued), metric.Events)},
		}, []Alert{
			{
				Name: "WatchlabGeneratorLate", Severity: "warning", For: "30s", Dashboard: overviewUID,
				Expr:    fmt.Sprintf("watchlab:generator_late:ratio1m > %g", lateShare),
				Summary: "{{ $value | humanizePercentage }} of the releases for {{ $labels.family }}/{{ $labels.variant }} are late",
				Meaning: "The generator does not keep its schedule, so the pipeline receives another storm than the requested one. Above 1 % in the median round the cell's verdict is invalid: generator.",
				Steps: []string{
					"Look for other load on the machine: CPU on the dashboard Storm overview, Scheduling latency on Queue and memory.",
					"Lower --pace, or raise --lag-budget if the lag does not affect the question.",
					"In a cluster, use more pods at a lower pace each.",
				},
			},
			{
				Name: "WatchlabEventsMissed", Severity: "critical", For: "0s", Dashboard: overviewUID,
				Expr:    increased(metric.GeneratorMissed, identity...),
				Summary: "{{ $value | humanize }} events for {{ $labels.family }}/{{ $labels.variant }} were not released when the schedule was over",
				Meaning: "The schedule ended before the generator released the whole storm. Ignore the figures of this cell.",
				Steps: []string{
					"Follow the steps of WatchlabGeneratorLate.",
					"With --capacity a full queue blocks the generator: raise the capacity or lower the pace.",
				},
			},
			{
				Name: "WatchlabWatchErrors", Severity: "warning", For: "0s", Dashboard: overviewUID,
				Expr:    increased(metric.WatchErrors, with(metric.Fault)...),
				Summary: "{{ $value | humanize }} watches for {{ $labels.family }}/{{ $labels.variant }} ended within a minute, by {{ $labels.fault }}",
				Meaning: "Watches ended or were refused: by an injected fault, by a relist of the storm, or without a known cause (other). No event arrives until the Reflector watches or lists again, and then all arrive at once. Latencies of that time include the fault.",
				Steps: []string{
					"If --faults or the storm requested it, no action is needed.",
					"other: read the command's standard error. With --source cluster or apply, look at the API server: apiserver_terminated_watchers_total rises if clients are too slow, and in the first seconds after its start.",
					"Look at Relists and Staleness on the dashboard Storm overview: relists after broken watches are expensive, and Reflectors wait for seconds before a retry.",
					"Compare variants with equal faults and seeds only: the seed determines the times of the faults.",
				},
			},
			{
				Name: "WatchlabStale", Severity: "warning", For: "30s", Dashboard: queueUID,
				Expr:    fmt.Sprintf("watchlab:staleness_events:p99_1m > %d", staleEvents),
				Summary: "1 % of the store reads of {{ $labels.family }}/{{ $labels.variant }} are more than {{ $value | humanize }} events behind",
				Meaning: "Workers read stale objects: the store is behind the newest released event, so a controller acts on versions that have changed.",
				Steps: []string{
					"Find the slow boundary on the dashboard Stage latency.",
					"enqueued-popped: the queue's consumer is slow; popped-stored: the store; otherwise the handlers or workers.",
					"Compare with a variant that coalesces: it drops outdated versions.",
				},
			},
			{
				Name: "WatchlabQueueGrows", Severity: "warning", For: "30s", Dashboard: queueUID,
				Expr: fmt.Sprintf("%s > %d and %s > 0", sum(all.of(metric.QueueDepth), identity...), deepQueue,
					sum("deriv("+all.of(metric.QueueDepth)+"["+window+"])", identity...)),
				Summary: "the queue of {{ $labels.family }}/{{ $labels.variant }} has {{ $value | humanize }} events and grows",
				Meaning: "Events arrive faster than they are handled. Unpaced cells fill the queue on purpose; in a paced cell the pace is above the knee.",
				Steps: []string{
					"No action is needed for an unpaced cell.",
					"Find the highest sustainable rate with watchlab knee.",
					"Bound the queue with --capacity: producers block, and memory stays flat.",
				},
			},
			{
				Name: "WatchlabInvalid", Severity: "critical", For: "0s", Dashboard: compareUID,
				Expr:    maximum(all.equal(metric.Status, "invalid").of(metric.Verdict), with(metric.Cause)...) + " == 1",
				Summary: "{{ $labels.family }}/{{ $labels.variant }} is invalid: {{ $labels.cause }}",
				Meaning: "The cell violated an invariant (lost, reordered, duplicated, diverged), failed, or its conditions did not hold (generator, steal, throttled). Its figures do not count.",
				Steps: []string{
					"Read the run's report: it has the first violation with its key and version.",
					"lost, reordered, duplicated or diverged: the variant is wrong. Play the storm again with the seed in run.json.",
					"generator, steal, throttled or gc-limit: run again on a machine with less other load.",
				},
			},
		}
}

// encodeRules returns Prometheus's rule file.
func encodeRules() ([]byte, error) {
	type rule struct {
		Record      string            `yaml:"record,omitempty"`
		Alert       string            `yaml:"alert,omitempty"`
		Expr        string            `yaml:"expr"`
		For         string            `yaml:"for,omitempty"`
		Labels      map[string]string `yaml:"labels,omitempty"`
		Annotations map[string]string `yaml:"annotations,omitempty"`
	}
	type group struct {
		Name     string `yaml:"name"`
		Interval string `yaml:"interval"`
		Rules    []rule `yaml:"rules"`
	}
	records, alerts := group{Name: "watchlab-records", Interval: interval}, group{Name: "watchlab-alerts", Interval: interval}
	r, a := Rules()
	for _, r := range r {
		records.Rules = append(records.Rules, rule{Record: r.Name, Expr: r.Expr})
	}
	for _, a := range a {
		alerts.Rules = append(alerts.Rules, rule{
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
	b := bytes.NewBufferString("# Generated by `make dashboards` from dashboards/rules.go.\n")
	enc := yaml.NewEncoder(b)
	enc.SetIndent(2)
	err := errors.Join(enc.Encode(map[string][]group{"groups": {records, alerts}}), enc.Close())
	return b.Bytes(), err
}

// runbooks returns a page with the steps for each alert.
func runbooks() []byte {
	b := bytes.NewBufferString("# Runbooks\n\nGenerated by `make dashboards` from [rules.go](rules.go): the meaning of each\nalert of [rules/watchlab.rules.yaml](rules/watchlab.rules.yaml), and the steps to take.\n")
	titles := map[string]string{}
	for _, d := range all() {
		titles[d.UID] = d.Title
	}
	_, alerts := Rules()
	for _, a := range alerts {
		fmt.Fprintf(b, "\n## %s\n\n%s, dashboard *%s*.\n\n%s\n\n", a.Name, strings.ToUpper(a.Severity[:1])+a.Severity[1:], titles[a.Dashboard], a.Meaning)
		for i, s := range a.Steps {
			fmt.Fprintf(b, "%d. %s\n", i+1, s)
		}
		fires := "at once"
		if a.For != "0s" {
			fires = "after " + a.For
		}
		fmt.Fprintf(b, "\nThe alert fires %s if:\n\n    %s\n", fires, a.Expr)
	}
	return b.Bytes()
}
