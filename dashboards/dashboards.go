// Package dashboards has the Grafana dashboards, recording rules and alerts for the
// metrics of a run. `make dashboards` writes them to json/*.json,
// rules/watchlab.rules.yaml and RUNBOOKS.md, which are committed.
//
//  1. Each dashboard is a file panels/*.yaml of variables, rows, panels and queries. common.yaml
//     has what all dashboards share. model_test.go describes the fields.
//  2. rules.yaml has the recording rules and alerts, with the runbooks.
//  3. Queries are PromQL with named parts, <<picked>>, and the functions of query_test.go. Tests hold
//     their metrics and labels against watchlab/bench/telemetry/metric.
//  4. The template grafana.tmpl makes Grafana's JSON of a dashboard.
//  5. The generator is a part of the tests, since no program needs it. A test fails if the committed ones differ.
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
package dashboards

import "embed"

// Manifests are the dashboards and rules with the kustomization.yaml that makes
// ConfigMaps of them. An overlay in scripts/deploy refers to it.
//
//go:embed kustomization.yaml json rules
var Manifests embed.FS
