package telemetry

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"watchlab/bench/lab"
)

// TestServersFail: a run loses no event, keeps its verdict and logs one warning if the server is down, slow or
// returns garbage.
func TestServersFail(t *testing.T) {
	garbage := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, strings.Repeat("\x00garbage\r\n", 1_000_000)) // until the client has enough
	}))
	defer garbage.Close()
	slow, err := net.Listen("tcp", "127.0.0.1:0") // It accepts connections and never answers.
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = slow.Close() }()
	for name, url := range map[string]string{"down": "http://127.0.0.1:1", "slow": "http://" + slow.Addr().String(), "garbage": garbage.URL} {
		t.Run(name, func(t *testing.T) {
			stdout, stderr := run(t, []string{
				"OTEL_EXPORTER_OTLP_ENDPOINT=" + url, "OTEL_EXPORTER_OTLP_TIMEOUT=1000", "OTEL_BSP_SCHEDULE_DELAY=100", "OTEL_METRIC_EXPORT_INTERVAL=200",
			}, "--family", "deltafifo", "--delivery", "in-order", "--impl", "ring", "--pipeline", "informer",
				"--storm", "recorded-nodeloss", "--rounds", "5", "-o", "json", "--metrics-addr", "127.0.0.1:0")
			var o lab.Outcome
			if err := json.Unmarshal([]byte(stdout), &o); err != nil {
				t.Fatal(err)
			}
			for _, cl := range o.Cells() {
				if cl.Verdict.Status == lab.Invalid || len(cl.Rounds) == 0 {
					t.Errorf("%s: %s", cl.BenchName(), cl.Verdict)
				}
			}
			var warnings []string
			for line := range strings.Lines(stderr) {
				if strings.Contains(line, "the run continues") {
					warnings = append(warnings, line)
				}
			}
			if len(warnings) != 1 || !strings.Contains(warnings[0], "OTLP endpoint: ") || len(warnings[0]) > 600 || strings.ContainsAny(warnings[0], "\x00\r") {
				t.Errorf("warnings: %q", warnings)
			}
		})
	}
}
