package telemetry

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"watchlab/bench/e2e/programs"
)

// TestPrometheus checks that a real Prometheus takes the metrics of a run by OTLP, under the names of a
// scrape and with native histograms.
func TestPrometheus(t *testing.T) {
	program := programs.Pinned(t, "prometheus") // Debian's has no OTLP receiver.
	dir, addr := t.TempDir(), programs.Address(t)
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, []byte("global: {}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	start(t, "http://"+addr+"/-/ready", program, "--config.file", config, "--storage.tsdb.path", filepath.Join(dir, "data"),
		"--web.listen-address", addr, "--web.enable-otlp-receiver", "--enable-feature=native-histograms,exemplar-storage", "--log.level", "error")
	_, stderr := run(t, []string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=http://" + addr + "/api/v1/otlp/v1/metrics"}, "--family", "queue", "--impl", "clientgo-fifo,ring", "--storm", "recorded-gang", "--pace", "max,20000", "--rounds", "1")
	if stderr != "" {
		t.Errorf("stderr: %s", stderr)
	}
	for query, least := range map[string]int{
		`watchlab_events_total{stage="handled",job="watchlab"} > 0`:         2,
		`watchlab_run_progress_ratio == 1`:                                  1,
		`watchlab_events_per_second > 0`:                                    2,
		`histogram_count(watchlab_end_to_end_latency_seconds) > 0`:          4,
		`histogram_quantile(0.99, watchlab_end_to_end_latency_seconds) > 0`: 4,
		`histogram_count(watchlab_batch_size) > 0`:                          4,
		`go_goroutines`: 1,
	} {
		if n := ask(t, addr, query); n < least {
			t.Errorf("%s: %d series, want %d", query, n, least)
		}
	}
}

// ask runs a query and returns the number of its series.
func ask(t *testing.T, addr, query string) int {
	t.Helper()
	res, err := get("http://" + addr + "/api/v1/query?query=" + url.QueryEscape(query))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var answer struct {
		Status, Error string
		Data          struct{ Result []json.RawMessage }
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	if answer.Status != "success" {
		t.Errorf("%s: %s", query, answer.Error)
	}
	return len(answer.Data.Result)
}
