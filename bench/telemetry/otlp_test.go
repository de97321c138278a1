package telemetry

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"watchlab/bench/lab"
)

// TestExports: the variables select the exported signals.
func TestExports(t *testing.T) {
	const endpoint = "http://localhost:4318"
	for _, test := range []struct {
		env             map[string]string
		traces, metrics bool
		bad             string
	}{
		{env: nil},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}, traces: true, metrics: true},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_SDK_DISABLED": "TRUE"}},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_METRICS_EXPORTER": "none"}, traces: true},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, bad: `OTEL_EXPORTER_OTLP_PROTOCOL="grpc" (allowed: http/protobuf, http/json)`},
		{env: map[string]string{"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/json", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, metrics: true},
		{env: map[string]string{"OTEL_TRACES_EXPORTER": "jaeger"}, bad: "OTEL_TRACES_EXPORTER"},
		{env: map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "smoke"}, bad: "OTEL_EXPORTER_OTLP_PROTOCOL"},
	} {
		t.Run("", func(t *testing.T) {
			for k, v := range test.env {
				t.Setenv(k, v)
			}
			gotTraces, err := exports("TRACES")
			gotMetrics, err2 := exports("METRICS")
			if err = errors.Join(err, err2); test.bad != "" {
				if !errors.Is(err, ErrVariable) || !strings.Contains(err.Error(), test.bad) {
					t.Errorf("%v: %v, want one that wraps %v and names %s", test.env, err, ErrVariable, test.bad)
				}
				if s, err := Start(t.Context(), Options{}); s != nil || !errors.Is(err, ErrVariable) {
					t.Errorf("Start: %v, %v", s, err)
				}
				return
			}
			if err != nil || gotTraces != test.traces || gotMetrics != test.metrics {
				t.Errorf("%v: traces %v, metrics %v, %v", test.env, gotTraces, gotMetrics, err)
			}
		})
	}
}

// TestSpans: a cell is the root of a trace that links to the run. The spans of its events and stages
// form a tree and have their times.
func TestSpans(t *testing.T) {
	kept := tracetest.NewInMemoryExporter()
	e := &exporter{}
	e.setTraces(trace.WithSyncer(kept))
	e.startRun(t.Context(), "test")
	cell := e.startCell("Informer/impl=ring", LabelsOf("", lab.Labels{{Key: "impl", Value: "ring"}, {Key: "delivery", Value: "in-order"}, {Key: "rate", Value: "1000"}}), 2)
	s := cell.sampling(16 << 10)
	if s.Every != 1024 {
		t.Errorf("every %d", s.Every)
	}
	at := func(ms int) time.Time { return time.UnixMilli(1_800_000_000_000 + int64(ms)) }
	s.Export(EventTrace{Seq: 1024, Type: "MODIFIED", Key: "a/b", Intended: at(0), Stages: []StageTime{
		{Stage: "released", At: at(1)}, {Stage: "enqueued", At: at(2)}, {Stage: "handled", At: at(9)},
	}})
	s.Export(EventTrace{Seq: 1030, Type: "DELETED", Stages: []StageTime{{Stage: "released", At: at(3)}, {Stage: "popped", At: at(8)}}})
	s.Export(EventTrace{Seq: 2048, Type: "ADDED"})
	cell.invalid("invalid", "lost")
	cell.End()
	e.endRun(errors.New("it broke"))
	spans := map[string]tracetest.SpanStub{}
	for _, sp := range kept.GetSpans() {
		spans[sp.Name] = sp
	}
	if err := e.close(t.Context()); err != nil {
		t.Error(err)
	}
	for name, parent := range map[string]string{
		"event MODIFIED":    "cell Informer/impl=ring",
		"event DELETED":     "cell Informer/impl=ring",
		"intended→released": "event MODIFIED",
		"released→enqueued": "event MODIFIED",
		"enqueued→handled":  "event MODIFIED",
		"released→popped":   "event DELETED",
	} {
		got, want := spans[name], spans[parent]
		if got.Name == "" || got.Parent.SpanID() != want.SpanContext.SpanID() || got.SpanContext.TraceID() != want.SpanContext.TraceID() {
			t.Errorf("%s is not the child of %s", name, parent)
		}
	}
	if len(spans) != 8 {
		t.Errorf("%d spans", len(spans))
	}
	event := spans["event MODIFIED"]
	if !event.StartTime.Equal(at(0)) || !event.EndTime.Equal(at(9)) {
		t.Errorf("from %v to %v", event.StartTime, event.EndTime)
	}
	if got := spans["released→enqueued"]; !got.StartTime.Equal(at(1)) || !got.EndTime.Equal(at(2)) {
		t.Errorf("enqueued from %v to %v", got.StartTime, got.EndTime)
	}
	if root := spans["cell Informer/impl=ring"].SpanContext; root.TraceID().String() != s.Trace || root.SpanID().String() != s.Span {
		t.Errorf("an exemplar would name %s %s", s.Trace, s.Span)
	}
	if got := spans["cell Informer/impl=ring"]; got.Status.Code != codes.Error || !has(got.Attributes, attribute.String("watchlab.verdict.cause", "lost")) || !has(got.Attributes, attribute.Int("watchlab.round", 2)) {
		t.Errorf("cell: %v %v", got.Status, got.Attributes)
	}
	run := spans["run test"]
	if got := spans["cell Informer/impl=ring"]; got.Parent.IsValid() || got.SpanContext.TraceID() == run.SpanContext.TraceID() ||
		len(got.Links) != 1 || !got.Links[0].SpanContext.Equal(run.SpanContext) {
		t.Errorf("cell: parent %v, links %v", got.Parent, got.Links)
	}
	if got := run; got.Status.Description != "it broke" || got.Parent.IsValid() {
		t.Errorf("run: %v, parent %v", got.Status, got.Parent)
	}
}

func has(all []attribute.KeyValue, want attribute.KeyValue) bool {
	for _, kv := range all {
		if kv == want {
			return true
		}
	}
	return false
}

// TestSamplingStep: the step is a power of two that bounds the traced events of a round.
func TestSamplingStep(t *testing.T) {
	e := &exporter{}
	e.setTraces()
	defer func() { _ = e.close(context.Background()) }()
	e.startRun(t.Context(), "r")
	cell := e.startCell("c", Labels{}, 1)
	for events, want := range map[int]uint64{1: 1, 32: 2, 63: 2, 64: 64, 1000: 64, 2048: 128, 200_000: 8192, math.MaxInt32: 1 << 26} {
		if got := cell.sampling(events).Every; got != want {
			t.Errorf("%d events: every %d, want %d", events, got, want)
		}
		if traced := uint64(events) / want; traced > 2*tracedEvents {
			t.Errorf("%d of %d events are traced", traced, events)
		}
	}
	if cell.sampling(0) != nil {
		t.Error("no events are sampled")
	}
}

// TestMetrics: OpenTelemetry's metrics have the gathered values. Exponential histograms
// have the buckets and exemplars of the native ones.
func TestMetrics(t *testing.T) {
	r := New("test", "abc")
	s := r.Set(LabelsOf("", lab.Labels{{Key: "impl", Value: "ring"}}))
	s.Sampler(func(int) *Sampling {
		return &Sampling{Every: 1, Trace: "0a0b", Span: "0c"}
	})
	s.Begin(1)
	values := []int64{0, 1, 2, 3, 1000, 1001, 65_000, 1 << 20}
	s.Count(Released, Added, 42)
	for _, v := range values {
		s.Observe(Staleness, v)
	}
	s.ObserveEvent(ReleasedHandled, 1e9, 7)
	scopes, err := producer{r}.Produce(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]metricdata.Metrics{}
	for _, m := range scopes[0].Metrics {
		got[m.Name] = m
	}
	events := got["watchlab_events_total"].Data.(metricdata.Sum[float64])
	at := slices.IndexFunc(events.DataPoints, func(p metricdata.DataPoint[float64]) bool { return p.Value != 0 })
	if p := events.DataPoints[at]; p.Value != 42 || !events.IsMonotonic || p.StartTime.IsZero() || p.Attributes.Len() != 2+len(CommonLabels) {
		t.Errorf("events %+v", events)
	}
	h := got["watchlab_staleness_events"].Data.(metricdata.ExponentialHistogram[float64]).DataPoints[0]
	if h.Count != uint64(len(values)) || h.ZeroCount != 1 || len(h.PositiveBucket.Counts) == 0 {
		t.Errorf("staleness %+v", h)
	}
	latency := got["watchlab_end_to_end_latency_seconds"].Data.(metricdata.ExponentialHistogram[float64]).DataPoints[0]
	if x := latency.Exemplars; len(x) != 1 || string(x[0].TraceID) != "\x0a\x0b" || string(x[0].SpanID) != "\x0c" || x[0].Value != 1 {
		t.Errorf("exemplars %+v", x)
	}
	if u := got["process_resident_memory_bytes"].Unit; u != "By" {
		t.Errorf("unit %q", u)
	}
}

// TestHTTP: traces and metrics reach their paths, and close leaves no goroutine.
func TestHTTP(t *testing.T) {
	var traced, measured atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			t.Error(err)
		}
		switch r.URL.Path {
		case "/v1/traces":
			traced.Add(n)
		case "/v1/metrics":
			measured.Add(n)
		default:
			t.Errorf("path %s", r.URL.Path)
		}
	}))
	defer s.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", s.URL)
	e, err := newExporter(t.Context(), "r", "abc", New("r", "abc"), func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	e.startRun(t.Context(), "r")
	e.endRun(nil)
	if err := e.close(t.Context()); err != nil {
		t.Error(err)
	}
	if traced.Load() == 0 || measured.Load() == 0 {
		t.Errorf("%d bytes of traces, %d of metrics", traced.Load(), measured.Load())
	}
}
