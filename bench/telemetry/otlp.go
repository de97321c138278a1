package telemetry

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	prometheusbridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// ErrVariable is returned for an invalid OTEL_* variable. The error names the variable.
var ErrVariable = errors.New("bad variable")

// lookup returns the first variable that is not empty, and its value.
func lookup(names ...string) (name, value string) {
	for _, n := range names {
		if v := strings.TrimSpace(os.Getenv(n)); v != "" {
			return n, v
		}
	}
	return "", ""
}

// exports reports whether a signal (TRACES or METRICS) is exported.
func exports(signal string) (bool, error) {
	if _, off := lookup("OTEL_SDK_DISABLED"); strings.EqualFold(off, "true") {
		return false, nil
	}
	name, exporter := lookup("OTEL_" + signal + "_EXPORTER")
	if exporter == "" {
		if _, endpoint := lookup("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"); endpoint == "" {
			exporter = "none"
		}
	}
	switch exporter {
	case "none":
		return false, nil
	case "", "otlp":
	default:
		return false, fmt.Errorf("%w: %s=%q (allowed: otlp, none)", ErrVariable, name, exporter)
	}
	name, protocol := lookup("OTEL_EXPORTER_OTLP_"+signal+"_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
	if !slices.Contains([]string{"", "http/protobuf", "http/json"}, protocol) {
		return false, fmt.Errorf("%w: %s=%q (allowed: http/protobuf, http/json)", ErrVariable, name, protocol)
	}
	return true, nil
}

// exporter exports spans and metrics to an OpenTelemetry collector. The SDK's queues
// bound its memory; it drops what it cannot send. The standard variables configure it
// (https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables):
//
//	OTEL_EXPORTER_OTLP_ENDPOINT, _TRACES_ENDPOINT, _METRICS_ENDPOINT
//	OTEL_EXPORTER_OTLP_PROTOCOL, _TRACES_PROTOCOL, _METRICS_PROTOCOL
//	        http/protobuf (default) or http/json
//	OTEL_TRACES_EXPORTER, OTEL_METRICS_EXPORTER
//	        otlp or none; the default is otlp with an endpoint, else none
//	OTEL_SDK_DISABLED=true
//	OTEL_TRACES_SAMPLER, OTEL_BSP_*, OTEL_METRIC_EXPORT_*, OTEL_RESOURCE_ATTRIBUTES,
//	OTEL_SERVICE_NAME, OTEL_EXPORTER_OTLP_HEADERS, _TIMEOUT, _COMPRESSION, ...
//	        read by the SDK
type exporter struct {
	tracer   trace.Tracer
	run      context.Context // carries the span of the run
	shutdown []func(context.Context) error
}

// newExporter does not connect. The error wraps [ErrVariable].
func newExporter(ctx context.Context, run, commit string, metrics prometheus.Gatherer, warn func(error)) (_ *exporter, err error) {
	e := &exporter{tracer: noop.NewTracerProvider().Tracer(scope), run: context.Background()}
	traces, err := exports("TRACES")
	measured, err2 := exports("METRICS")
	if err := errors.Join(err, err2); err != nil || !traces && !measured {
		return e, err
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(warn))
	otel.SetLogger(logr.Discard())
	res, err := resource.New(ctx,
		resource.WithAttributes(
			semconv.ServiceName("watchlab"), semconv.ServiceVersion(commit), semconv.ServiceInstanceID(run),
		),
		resource.WithTelemetrySDK(), resource.WithHost(), resource.WithOSType(),
		resource.WithProcessPID(), resource.WithProcessRuntimeName(), resource.WithProcessRuntimeVersion(),
		resource.WithFromEnv(), // last: OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME win
	)
	if errors.Is(err, resource.ErrPartialResource) {
		err = fmt.Errorf("%w: OTEL_RESOURCE_ATTRIBUTES: %w", ErrVariable, err)
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%w: %w", ErrVariable, err), e.close(ctx))
		}
	}()
	if traces {
		x, err := otlptracehttp.New(ctx)
		if err != nil {
			return nil, err
		}
		e.setTraces(sdktrace.WithBatcher(x), sdktrace.WithResource(res))
	}
	if measured {
		x, err := otlpmetrichttp.New(ctx)
		if err != nil {
			return nil, err
		}
		p := sdkmetric.NewMeterProvider(sdkmetric.WithResource(res),
			sdkmetric.WithReader(sdkmetric.NewPeriodicReader(x, sdkmetric.WithProducer(producer{metrics}))))
		e.shutdown = append(e.shutdown, p.Shutdown)
	}
	return e, nil
}

func (e *exporter) setTraces(opts ...sdktrace.TracerProviderOption) {
	p := sdktrace.NewTracerProvider(opts...)
	e.tracer = p.Tracer(scope)
	e.shutdown = append(e.shutdown, p.Shutdown)
}

// close exports the remaining data for at most half of flushTimeout.
func (e *exporter) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout/2)
	defer cancel()
	var errs []error
	for _, f := range e.shutdown {
		errs = append(errs, f(ctx))
	}
	return errors.Join(errs...)
}

// producer converts gathered metrics to OpenTelemetry's. It adds what the bridge drops: exemplars
// of native histograms, and units.
type producer struct{ from prometheus.Gatherer }

func (p producer) Produce(ctx context.Context) ([]metricdata.ScopeMetrics, error) {
	families, err := p.from.Gather()
	if err != nil {
		return nil, err
	}
	gathered := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return families, nil })
	out, err := prometheusbridge.NewMetricProducer(prometheusbridge.WithGatherer(gathered)).Produce(ctx)
	for s := range out {
		for i := range out[s].Metrics {
			m := &out[s].Metrics[i]
			at := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == m.Name })
			m.Unit = unitOf(m.Name)
			if data, ok := m.Data.(metricdata.ExponentialHistogram[float64]); ok {
				for j := range data.DataPoints {
					data.DataPoints[j].Exemplars = otlpExemplars(families[at].GetMetric()[j].GetHistogram().GetExemplars())
				}
			}
		}
	}
	return out, err
}

// unitOf returns the UCUM unit of a name's suffix.
func unitOf(name string) string {
	name = strings.TrimSuffix(name, "_total")
	for suffix, unit := range map[string]string{"_seconds": "s", "_bytes": "By", "_ratio": "1"} {
		if strings.HasSuffix(name, suffix) {
			return unit
		}
	}
	return ""
}

func otlpExemplars(all []*dto.Exemplar) (out []metricdata.Exemplar[float64]) {
	for _, x := range all {
		e := metricdata.Exemplar[float64]{Value: x.GetValue(), Time: x.GetTimestamp().AsTime()}
		for _, l := range x.GetLabel() {
			id, _ := hex.DecodeString(l.GetValue()) // nil for other labels
			switch l.GetName() {
			case "trace_id":
				e.TraceID = id
			case "span_id":
				e.SpanID = id
			}
		}
		out = append(out, e)
	}
	return out
}
