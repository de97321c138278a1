// Package dashboards defines the Grafana dashboards, recording rules and alerts
// over what a run exports, and encodes them to the files that are committed
// beside it: json/*.json, rules/watchlab.rules.yaml and RUNBOOKS.md. The
// model of a dashboard is in watchlab/dashboards/grafana.
//
//  1. [All] are the dashboards, one file of Go each. Their queries are written
//     with the names of watchlab/bench/telemetry/metric, so that a metric that
//     is renamed there is renamed here.
//  2. [Rules] are what Prometheus evaluates.
//  3. [Files] is all of it, encoded. `make dashboards` writes it, and a test
//     fails where what is committed is something else.
//
// # Histograms
//
// Latencies, batches and staleness are exported as native histograms with classic
// buckets beside them. What a Prometheus keeps of that depends on its version and
// settings: version 2.42 with native histograms keeps no buckets, without the
// feature it keeps nothing else, and since 3.8 it may keep both. Every query works with
// either. Quantiles are estimates within a bucket: off by at most 4.5 % of the value
// with native histograms (schema 3), by up to the width of a bucket with classic
// ones.
//
// # What rates do and don't tell
//
// A run plays its variants in turn. So a rate over time shows a variant as long as
// it is being played, and two variants never at the same time. Ratios of variants
// are therefore made of what finished cells measured, or of all that was observed
// in the time range, and never of two rates at one moment. They are shown only
// between variants of the same delivery.
//
// What is charted here is for looking at a run in progress. The figures are those
// of its results folder: Prometheus samples, the lab counts every event.
package dashboards

import (
	"fmt"

	"watchlab/bench/telemetry/metric"
	"watchlab/dashboards/grafana"
)

// tag is on all dashboards; they lead to each other by it.
const tag = "watchlab"

// All returns the dashboards, in the order in which they are best read.
func All() []grafana.Dashboard {
	return []grafana.Dashboard{
		overview(),
		compare(),
		latency(),
		queue(),
		kubelet(),
		cluster(),
		history(),
	}
}

// Files returns what is generated, by its path below the folder dashboards.
func Files() (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, d := range All() {
		b, err := d.Encode()
		if err != nil {
			return nil, fmt.Errorf("dashboard %s: %w", d.UID, err)
		}
		files["json/"+d.UID+".json"] = b
	}
	rules, err := encodeRules(Rules())
	if err != nil {
		return nil, err
	}
	files["rules/watchlab.rules.yaml"] = rules
	files["RUNBOOKS.md"] = runbooks(Rules())
	return files, nil
}

// page is a dashboard with what all have: the pickers, the links to each other
// and the marks of phases and faults.
func page(uid, title, description string, variables []grafana.Variable, scope selector, rows ...grafana.Row) grafana.Dashboard {
	return grafana.Dashboard{
		UID:         uid,
		Title:       title,
		Description: description,
		Tags:        []string{tag},
		From:        "now-15m",
		Refresh:     "5s",
		Variables:   append(where(), variables...),
		Annotations: marks(scope),
		Links:       []grafana.Link{{Title: "watchlab", Tag: tag}},
		Rows:        rows,
	}
}

// where are the pickers of the data source and of the processes that are looked
// at.
func where() []grafana.Variable {
	return []grafana.Variable{
		{Name: grafana.DatasourceName, Label: "Data source"},
		{Name: "job", Label: "job", Description: "The scrape job, or that of a push", Query: labelValues(metric.BuildInfo.Name, "job"), Multi: true, AllValue: ".+"},
		{Name: "instance", Label: "instance", Description: "The process: host and port, or the pod", Query: labelValues(selector{}.among("job", "job").of(metric.BuildInfo), "instance"), Multi: true, AllValue: ".+"},
	}
}
