package telemetry

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"watchlab/bench/e2e/programs"
)

// attribute is an attribute in OTLP's JSON
// (https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding).
type attribute struct {
	Key   string `json:"key"`
	Value struct {
		String string `json:"stringValue"`
		Int    string `json:"intValue"`
		Bool   bool   `json:"boolValue"`
	} `json:"value"`
}

// span is a span in OTLP's JSON. Times are nanoseconds since the epoch.
type span struct {
	TraceID  string      `json:"traceId"`
	SpanID   string      `json:"spanId"`
	ParentID string      `json:"parentSpanId"`
	Name     string      `json:"name"`
	Start    string      `json:"startTimeUnixNano"`
	End      string      `json:"endTimeUnixNano"`
	Attrs    []attribute `json:"attributes"`
	Links    []struct {
		TraceID string `json:"traceId"`
		SpanID  string `json:"spanId"`
	} `json:"links"`
}

// point is a data point of a metric in OTLP's JSON.
type point struct {
	Attrs     []attribute `json:"attributes"`
	Count     string      `json:"count"`
	Scale     *int        `json:"scale"`
	Exemplars []struct {
		TraceID string `json:"traceId"`
		SpanID  string `json:"spanId"`
	} `json:"exemplars"`
}

// line is a line of the collector's output file.
type line struct {
	ResourceSpans []struct {
		Resource struct {
			Attrs []attribute `json:"attributes"`
		} `json:"resource"`
		ScopeSpans []struct {
			Spans []span `json:"spans"`
		} `json:"scopeSpans"`
	} `json:"resourceSpans"`
	ResourceMetrics []struct {
		ScopeMetrics []struct {
			Metrics []struct {
				Name        string                        `json:"name"`
				Sum         *struct{ DataPoints []point } `json:"sum"`
				Gauge       *struct{ DataPoints []point } `json:"gauge"`
				Exponential *struct{ DataPoints []point } `json:"exponentialHistogram"`
			} `json:"metrics"`
		} `json:"scopeMetrics"`
	} `json:"resourceMetrics"`
}

// TestCollector checks that a real collector receives the traces and metrics of a run.
// Parents, links and exemplars must name existing spans.
func TestCollector(t *testing.T) {
	dir, addr := t.TempDir(), programs.Address(t)
	config := fmt.Sprintf(`
receivers: {otlp: {protocols: {http: {endpoint: %q}}}}
exporters: {file/traces: {path: %q}, file/metrics: {path: %q}}
service:
  telemetry: {metrics: {level: none}, logs: {level: error}}
  pipelines:
    traces: {receivers: [otlp], exporters: [file/traces]}
    metrics: {receivers: [otlp], exporters: [file/metrics]}
`, addr, filepath.Join(dir, "traces.jsonl"), filepath.Join(dir, "metrics.jsonl"))
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	collector := start(t, "http://"+addr, programs.Pinned(t, "otelcol"), "--config", file)
	_, stderr := run(t, []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + addr, "OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=test",
	}, "--family", "queue", "--impl", "clientgo-fifo,cond", "--storm", "recorded-gang", "--pace", "max,20000", "--rounds", "1")
	if strings.Contains(stderr, "OTLP endpoint") {
		t.Errorf("warned: %s", stderr)
	}
	collector.Stop(t)
	spans := checkTraces(t, read(t, filepath.Join(dir, "traces.jsonl")))
	checkMetrics(t, read(t, filepath.Join(dir, "metrics.jsonl")), spans)
}

func read(t *testing.T, path string) []line {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var out []line
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		out = append(out, l)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

func value(attrs []attribute, key string) string {
	for _, a := range attrs {
		if a.Key == key {
			return a.Value.String + a.Value.Int
		}
	}
	return ""
}

// checkTraces checks the spans and returns them by ID. Parents and links of each kind have tests in bench/telemetry.
func checkTraces(t *testing.T, lines []line) map[string]span {
	t.Helper()
	spans := map[string]span{}
	for _, l := range lines {
		for _, rs := range l.ResourceSpans {
			for key, want := range map[string]string{"service.name": "watchlab", "deployment.environment.name": "test"} {
				if got := value(rs.Resource.Attrs, key); got != want {
					t.Errorf("resource attribute %s is %q, want %q", key, got, want)
				}
			}
			for _, ss := range rs.ScopeSpans {
				for _, s := range ss.Spans {
					if _, ok := spans[s.SpanID]; ok {
						t.Errorf("two spans have the ID %s", s.SpanID)
					}
					spans[s.SpanID] = s
				}
			}
		}
	}
	count, links := map[string]int{}, 0
	for _, s := range spans {
		kind, _, _ := strings.Cut(s.Name, " ")
		count[kind]++
		parent, ok := spans[s.ParentID]
		if root := kind == "run" || kind == "cell"; root != (s.ParentID == "") || !root && (!ok || parent.TraceID != s.TraceID) || s.End < s.Start {
			t.Errorf("%s has the parent %q, from %s to %s", s.Name, parent.Name, s.Start, s.End)
		}
		for _, l := range s.Links {
			links++
			if _, ok := spans[l.SpanID]; !ok {
				t.Errorf("%s has a link to a missing span", s.Name)
			}
		}
	}
	// Two variants at two paces in one round, an A/A pair, and a warm-up of each variant.
	if count["run"] != 1 || count["cell"] < 2*2+1+2 || count["event"] < 8*count["cell"] || links == 0 {
		t.Errorf("spans: %v, %d links", count, links)
	}
	return spans
}

func checkMetrics(t *testing.T, lines []line, spans map[string]span) {
	t.Helper()
	names, exemplars := map[string]int{}, 0
	for _, l := range lines {
		for _, rm := range l.ResourceMetrics {
			for _, sm := range rm.ScopeMetrics {
				for _, m := range sm.Metrics {
					switch {
					case m.Sum != nil:
						names[m.Name+" sum"] += len(m.Sum.DataPoints)
					case m.Gauge != nil:
						names[m.Name+" gauge"] += len(m.Gauge.DataPoints)
					case m.Exponential != nil:
						names[m.Name+" exponential"] += len(m.Exponential.DataPoints)
						for _, p := range m.Exponential.DataPoints {
							for _, x := range p.Exemplars {
								exemplars++
								if _, ok := spans[x.SpanID]; !ok {
									t.Errorf("%s has an exemplar of missing span %s", m.Name, x.SpanID)
								}
							}
						}
					}
				}
			}
		}
	}
	for _, want := range []string{
		"watchlab_events_total sum", "watchlab_queue_depth gauge", "watchlab_end_to_end_latency_seconds exponential",
		"watchlab_events_per_second gauge", "go_goroutines gauge",
	} {
		if names[want] == 0 {
			t.Errorf("no %s among %v", want, names)
		}
	}
	if exemplars == 0 {
		t.Error("no exemplars")
	}
}
