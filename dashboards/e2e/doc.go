// Package e2e tries the dashboards, rules and alerts on a real Prometheus: every
// query of every panel, picker and annotation is parsed, executed as Grafana
// would, and must give the series that are expected; with native histograms, and
// with classic buckets.
//
//   - lint_test.go: what a PromQL parser can tell without a server.
//   - schema_test.go: the JSON against the types that Grafana publishes of it, those
//     of 9.3 and recent ones, by the TypeScript compiler.
//   - fake_test.go: over an exporter that has all metrics, with figures that are
//     known, so that answers can be compared with what they must be.
//   - run_test.go: over real runs of the command, while they last.
//
// It needs prometheus and promtool (scripts/prometheus.sh installs Debian's); where
// they are not to be had, the tests that need them say so and are skipped. So is the
// one that needs node and npm.
package e2e
