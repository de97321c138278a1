// Package telemetry runs the command against an OpenTelemetry collector and Prometheus, and against a server that
// never answers. bench/telemetry tests what is sent, servers that are down or return garbage, and Pyroscope.
package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"watchlab/bench/e2e/programs"
	"watchlab/bench/lab"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run plays a queue with the command to its end and returns its output.
func run(t *testing.T, env ...string) (o lab.Outcome, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), programs.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, programs.Watchlab(t), "run", "--ignore-host", "--family", "queue", "--impl", "clientgo-fifo,ring",
		"--storm", "recorded-gang", "--pace", "max,20000", "--lag-budget", "1m", "--rounds", "1", "-o", "json", "--metrics-addr", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), env...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err = errors.Join(err, json.Unmarshal(out, &o)); err != nil {
		t.Fatalf("watchlab run: %v\n%s", err, &errs)
	}
	return o, errs.String()
}

// start starts a server and waits until it answers at a URL.
func start(t *testing.T, ready, name string, args ...string) *programs.Process {
	t.Helper()
	p := programs.Start(t, exec.Command(name, args...))
	p.Ready(t, func() error {
		_, err := get(ready)
		return err
	})
	return p
}

// get returns the body of an answer and closes the connection.
func get(url string) ([]byte, error) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(res.Body)
	return body, errors.Join(err, res.Body.Close())
}

// TestSlowServer: a run loses no event, keeps its verdict and logs one warning if the server never answers.
func TestSlowServer(t *testing.T) {
	slow, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = slow.Close() }()
	o, stderr := run(t, "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+slow.Addr().String(), "OTEL_EXPORTER_OTLP_TIMEOUT=1000",
		"OTEL_BSP_SCHEDULE_DELAY=100", "OTEL_METRIC_EXPORT_INTERVAL=200")
	for _, cl := range o.Cells() {
		if cl.Verdict.Status == lab.Invalid || len(cl.Rounds) == 0 {
			t.Errorf("%s: %s", cl.BenchName(), cl.Verdict)
		}
	}
	if strings.Count(stderr, "the run continues") != 1 || !strings.Contains(stderr, "OTLP endpoint: ") {
		t.Errorf("stderr: %s", stderr)
	}
}

// TestCollector checks that a real collector receives the traces and metrics of a run, in OTLP's JSON
// (https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding). Parents, links and exemplars name spans of it.
func TestCollector(t *testing.T) {
	dir, addr := t.TempDir(), programs.Address(t)
	received, file := filepath.Join(dir, "received.jsonl"), filepath.Join(dir, "config.yaml")
	config := fmt.Sprintf(`
receivers: {otlp: {protocols: {http: {endpoint: %q}}}}
exporters: {file: {path: %q}}
service:
  telemetry: {metrics: {level: none}, logs: {level: error}}
  pipelines:
    traces: {receivers: [otlp], exporters: [file]}
    metrics: {receivers: [otlp], exporters: [file]}
`, addr, received)
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	collector := start(t, "http://"+addr, programs.Pinned(t, "otelcol"), "--config", file)
	if _, stderr := run(t, "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+addr); strings.Contains(stderr, "OTLP endpoint") {
		t.Errorf("warned: %s", stderr)
	}
	collector.Stop(t)

	text, err := os.ReadFile(received)
	if err != nil {
		t.Fatal(err)
	}
	spans, references, names := map[string]bool{}, map[string]int{}, map[string]int{}
	mentioned := map[string]string{} // why a span must exist, by its ID
	for lines := json.NewDecoder(bytes.NewReader(text)); lines.More(); {
		var line any
		if err := lines.Decode(&line); err != nil {
			t.Fatal(err)
		}
		walk("", line, func(under string, o map[string]any) {
			name, _ := o["name"].(string)
			id, _ := o["spanId"].(string)
			switch under {
			case "spans":
				kind, _, _ := strings.Cut(name, " ")
				names[kind]++
				spans[id] = true
				if parent, _ := o["parentSpanId"].(string); parent != "" {
					references["parents"]++
					mentioned[parent] = "parent of " + name
				}
			case "links", "exemplars":
				references[under]++
				mentioned[id] = under
			case "metrics":
				names[name]++
			}
		})
	}
	for id, why := range mentioned {
		if !spans[id] {
			t.Errorf("%s: there is no span %s", why, id)
		}
	}
	if references["parents"] == 0 || references["links"] == 0 || references["exemplars"] == 0 {
		t.Errorf("references: %v", references)
	}
	// Two variants at two paces in one round, an A/A pair, and a warm-up of each variant.
	if names["run"] != 1 || names["cell"] < 2*2+1+2 || names["event"] < 8*names["cell"] {
		t.Errorf("spans and metrics: %v", names)
	}
	for _, want := range []string{"watchlab_events_total", "watchlab_queue_depth", "watchlab_end_to_end_latency_seconds", "go_goroutines"} {
		if names[want] == 0 {
			t.Errorf("no %s among %v", want, names)
		}
	}
}

// walk calls each for each object in x, with the name of the list that it is in.
func walk(under string, x any, each func(under string, o map[string]any)) {
	switch x := x.(type) {
	case map[string]any:
		each(under, x)
		for key, inner := range x {
			walk(key, inner, each)
		}
	case []any:
		for _, inner := range x {
			walk(under, inner, each)
		}
	}
}

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
	if _, stderr := run(t, "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=http://"+addr+"/api/v1/otlp/v1/metrics"); strings.Contains(stderr, "OTLP endpoint") {
		t.Errorf("stderr: %s", stderr)
	}
	for query, least := range map[string]int{
		`watchlab_events_total{stage="handled",job="watchlab"} > 0`:         2,
		`watchlab_run_progress_ratio == 1`:                                  1,
		`watchlab_events_per_second > 0`:                                    2,
		`histogram_count(watchlab_end_to_end_latency_seconds) > 0`:          4,
		`histogram_quantile(0.99, watchlab_end_to_end_latency_seconds) > 0`: 4,
		`histogram_count(watchlab_batch_size) > 0`:                          4,
	} {
		body, err := get("http://" + addr + "/api/v1/query?query=" + url.QueryEscape(query))
		var answer struct {
			Data struct{ Result []json.RawMessage }
		}
		if err = errors.Join(err, json.Unmarshal(body, &answer)); err != nil || len(answer.Data.Result) < least {
			t.Errorf("%s: %d series, want %d: %v\n%s", query, len(answer.Data.Result), least, err, body)
		}
	}
}
