// Package dashboards defines the Grafana dashboards, recording rules and alerts for the
// metrics of a run. `make dashboards` writes them to json/*.json,
// rules/watchlab.rules.yaml and RUNBOOKS.md, which are committed.
//
//  1. Each dashboard is a file of Go. Its queries take metric names from
//     watchlab/bench/telemetry/metric, so that a renamed metric is renamed here.
//  2. [Rules] are the recording rules and alerts; alerts.yaml has the texts and runbooks.
//  3. model.go describes dashboards, and the template grafana.tmpl makes Grafana's JSON of
//     them.
//  4. [Files] returns all generated files. A test fails if the committed ones differ.
//
// # Histograms
//
// Latencies, batch sizes and staleness are native histograms with classic buckets. Prometheus keeps
// one form or both, depending on its version and settings: 2.42 keeps either, 3.8 and later can
// keep both. All queries work with each. Quantiles are estimates within a bucket: off by at most
// 4.5 % with native histograms (schema 3), by up to the width of a bucket with classic ones.
//
// # Rates
//
// A run plays one variant at a time, so a rate over time shows a variant while it is played. Ratios
// between variants therefore use the figures of finished cells, or all observations of the time
// range, never two rates at one time. They compare variants of equal delivery only.
//
// Prometheus samples, the lab counts every event: the figures of a run are those of its
// results folder.
package dashboards

import (
	"embed"
	"fmt"

	"watchlab/bench/telemetry/metric"
)

// Manifests are the dashboards and rules with the kustomization.yaml that makes
// ConfigMaps of them. An overlay in scripts/deploy refers to it.
//
//go:embed kustomization.yaml json rules
var Manifests embed.FS

// all returns the dashboards, in reading order.
func all() []dashboard {
	return []dashboard{overview(), compare(), latency(), queue(), kubelet(), cluster(), history()}
}

// Files returns the generated files by their path below dashboards/.
func Files() (map[string][]byte, error) {
	files := map[string][]byte{"RUNBOOKS.md": runbooks()}
	for _, d := range all() {
		b, err := d.encode()
		if err != nil {
			return nil, fmt.Errorf("dashboard %s: %w", d.UID, err)
		}
		files["json/"+d.UID+".json"] = b
	}
	var err error
	files["rules/watchlab.rules.yaml"], err = encodeRules()
	return files, err
}

// page returns a dashboard with the pickers, links and annotations that all have.
func page(uid, title, description string, variables []variable, scope selector, rows ...row) dashboard {
	return dashboard{
		UID: uid, Title: title, Description: description, From: "now-15m", Refresh: "5s",
		Variables: append([]variable{
			{Name: "datasource", Label: "Data source"},
			picker("job", "The scrape job, or that of a push", labelValues(metric.BuildInfo.Name, "job")),
			picker("instance", "The process: host and port, or the pod", labelValues(selector{}.among("job", "job").of(metric.BuildInfo), "instance")),
		}, variables...),
		Annotations: annotations(scope),
		Rows:        rows,
	}
}
