// Command dashboards generates the Grafana dashboards, recording rules and alerts for the metrics of a run.
// `make dashboards` writes them to json/*.json and rules/watchlab.rules.yaml in scripts/deploy/dashboards,
// and to RUNBOOKS.md. They are committed.
//
//  1. Each dashboard is a file panels/*.yaml of variables, rows, panels and queries. common.yaml
//     has what all dashboards share. model.go describes the fields.
//  2. rules.yaml has the recording rules and alerts, with the runbooks.
//  3. Queries are PromQL with named parts, <<picked>>, and the functions of query.go. Tests hold
//     their metrics and labels against watchlab/bench/telemetry.
//  4. The template grafana.tmpl makes Grafana's JSON of a dashboard.
//  5. A test fails if a committed file differs.
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
// A run plays one variant at a time, and often for less than a scrape: throughput is the rate of events by
// that of the time of the plays. Ratios between variants use the figures of finished cells, never two rates
// at one time. They compare variants of equal delivery only.
//
// Prometheus samples, the lab counts every event: the figures of a run are those of its
// results folder.
package main

import (
	"fmt"
	"os"
)

func main() {
	if err := write(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// write writes the generated files, from the root of the tree.
func write() error {
	files, err := generate()
	if err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(name, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// deployed is the folder of the files that Grafana and Prometheus load.
const deployed = "scripts/deploy/dashboards/"

// generate returns the generated files by their paths in the tree.
func generate() (map[string][]byte, error) {
	pages, err := allPages()
	if err != nil {
		return nil, err
	}
	groups, err := rules()
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, d := range pages {
		if files[deployed+"json/"+d.UID+".json"], err = d.encode(); err != nil {
			return nil, fmt.Errorf("dashboard %s: %w", d.UID, err)
		}
	}
	if files[deployed+"rules/watchlab.rules.yaml"], err = encodeRules(groups); err != nil {
		return nil, err
	}
	files["dashboards/RUNBOOKS.md"], err = render("runbooks", map[string]any{"Groups": groups, "Pages": pages})
	return files, err
}
