// Package dashboards tests the dashboards, rules and alerts with a real Prometheus. The
// tests execute every query of every panel, picker and annotation as Grafana does, with
// native and with classic histograms. Each query must return the expected series.
//
//   - lint_test.go: rules that need only a PromQL parser.
//   - schema_test.go: the JSON against Grafana's published types of 9.3 and of a recent
//     release, with the TypeScript compiler.
//   - fake_test.go: an exporter with known values of all metrics, to check the values of
//     panels.
//   - run_test.go: real runs of the command.
//
// The tests need prometheus and promtool (scripts/prometheus.sh installs Debian's),
// node and npm. Without them they skip with a message.
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
