package telemetry

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// servers returns the URLs of broken servers by fault.
func servers(t testing.TB) map[string]string {
	t.Helper()
	garbage := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusInternalServerError)
		for range 1000 {
			if _, err := io.WriteString(w, strings.Repeat("\x00garbage\r\n", 1000)); err != nil {
				return
			}
		}
	}))
	t.Cleanup(garbage.Close)
	// This server accepts connections and never answers.
	slow, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = slow.Close() })
	return map[string]string{"down": "http://127.0.0.1:1", "slow": "http://" + slow.Addr().String(), "garbage": garbage.URL}
}

// figures holds the fields of a run's JSON that the tests read.
type figures struct {
	Comparisons []struct {
		Cells []struct {
			Verdict struct{ Status, Cause string }
			Rounds  []struct {
				Result struct {
					EventsPerSecond float64 `json:"eventsPerSecond"`
				}
			}
		}
	}
}

// perSecond runs the command and returns the events/s of each measured round.
func perSecond(t testing.TB, env []string, args ...string) (rates []float64, stderr string) {
	t.Helper()
	args = append([]string{
		"--family", "deltafifo", "--delivery", "in-order", "--impl", "ring", "--pipeline", "informer",
		"--storm", "recorded-nodeloss", "--rounds", "5", "-o", "json",
	}, args...)
	stdout, stderr := run(t, env, args...)
	var f figures
	if err := json.Unmarshal([]byte(stdout), &f); err != nil {
		t.Fatal(err)
	}
	for _, c := range f.Comparisons {
		for _, cl := range c.Cells {
			if s := cl.Verdict.Status; s != "valid" && s != "noisy" {
				t.Errorf("the verdict is %s: %s", s, cl.Verdict.Cause)
			}
			for _, r := range cl.Rounds {
				rates = append(rates, r.Result.EventsPerSecond)
			}
		}
	}
	if len(rates) == 0 {
		t.Fatal("nothing was measured")
	}
	return rates, stderr
}

// toServer returns the settings that send all telemetry to a server.
func toServer(url string) (env, args []string) {
	return []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + url, "OTEL_EXPORTER_OTLP_TIMEOUT=1000", "OTEL_BSP_SCHEDULE_DELAY=100", "OTEL_METRIC_EXPORT_INTERVAL=200"},
		[]string{"--metrics-addr", "127.0.0.1:0"}
}

// TestServersFail checks that a run logs one warning per protocol if the server is down,
// slow or returns garbage. The run must lose no event and keep its verdict.
func TestServersFail(t *testing.T) {
	for name, url := range servers(t) {
		t.Run(name, func(t *testing.T) {
			env, args := toServer(url)
			_, stderr := perSecond(t, env, args...)
			var warnings []string
			lines := bufio.NewScanner(strings.NewReader(stderr))
			for lines.Scan() {
				if strings.Contains(lines.Text(), "the run continues") {
					warnings = append(warnings, lines.Text())
				}
			}
			if len(warnings) != 1 || !strings.Contains(warnings[0], "OTLP endpoint: ") {
				t.Errorf("warnings: %q", warnings)
			}
			for _, s := range warnings {
				if len(s) > 600 || strings.ContainsAny(s, "\x00\r") {
					t.Errorf("%d bytes: %q", len(s), s)
				}
			}
		})
	}
}
