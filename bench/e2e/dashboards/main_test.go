// Package dashboards tries the dashboards, rules and alerts on a real Prometheus:
// every query of every panel, picker and annotation is parsed, executed as Grafana
// does, and must return the expected series; with native histograms, and with
// classic buckets.
//
//   - lint_test.go: what a PromQL parser finds without a server.
//   - schema_test.go: the JSON against the types that Grafana publishes, those of 9.3
//     and recent ones, by the TypeScript compiler.
//   - fake_test.go: an exporter with known values of all metrics, so that answers can
//     be compared with the right ones.
//   - run_test.go: real runs of the command.
//
// The tests need prometheus and promtool (scripts/prometheus.sh installs Debian's),
// node and npm; without them they skip and say so.
package dashboards

import (
	"fmt"
	"net/http"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// dashboards is the folder of the generated files.
const dashboards = "../../../dashboards"

func TestMain(m *testing.M) {
	code := m.Run()
	http.DefaultClient.CloseIdleConnections()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
