// Package otlp exports a run to an OpenTelemetry collector: traces of the run, its
// cells and sampled events, and metrics, as an alternative to scraping.
//
// It is configured by the standard variables alone
// (https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables
// and .../protocol/exporter): it is on where an endpoint is named or an exporter
// asked for, and OTEL_SDK_DISABLED isn't true.
//
//	OTEL_EXPORTER_OTLP_ENDPOINT, _TRACES_ENDPOINT, _METRICS_ENDPOINT
//	OTEL_EXPORTER_OTLP_PROTOCOL, _TRACES_PROTOCOL, _METRICS_PROTOCOL
//	        http/protobuf (the default), http/json or grpc
//	OTEL_TRACES_EXPORTER, OTEL_METRICS_EXPORTER
//	        otlp or none
//	OTEL_TRACES_SAMPLER, OTEL_BSP_*, OTEL_METRIC_EXPORT_*, OTEL_RESOURCE_ATTRIBUTES,
//	OTEL_SERVICE_NAME, OTEL_EXPORTER_OTLP_HEADERS, _TIMEOUT, _COMPRESSION, ...
//	        as the SDK reads them
//
// Nothing here is done while a clock runs but to count: spans of events are made of
// the stamps when a round is over. What can't be sent is dropped, with one warning;
// memory is bounded by the SDK's queue.
package otlp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// ErrVariable is wrapped by the error for an OTEL_* variable that says nothing
// that is known. It names the variable.
var ErrVariable = errors.New("bad variable")

// signal is one of the two that are exported.
type signal string

const (
	traces  signal = "TRACES"
	metrics signal = "METRICS"
)

// The protocols.
const (
	grpcProtocol = "grpc"
	httpProtocol = "http/protobuf"
	jsonProtocol = "http/json"
)

// lookup returns the first variable that is set and not empty, and its value.
func lookup(names ...string) (name, value string) {
	for _, n := range names {
		if v := strings.TrimSpace(os.Getenv(n)); v != "" {
			return n, v
		}
	}
	return "", ""
}

// asked returns the protocol by which a signal is to be exported; empty where it
// isn't.
func asked(s signal) (protocol string, err error) {
	if _, off := lookup("OTEL_SDK_DISABLED"); strings.EqualFold(off, "true") {
		return "", nil
	}
	exporterName := "OTEL_" + string(s) + "_EXPORTER"
	_, exporter := lookup(exporterName)
	_, endpoint := lookup("OTEL_EXPORTER_OTLP_"+string(s)+"_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
	switch exporter {
	case "none":
		return "", nil
	case "":
		if endpoint == "" {
			return "", nil
		}
	case "otlp":
	default:
		return "", unknown(exporterName, exporter, "otlp", "none")
	}
	name, protocol := lookup("OTEL_EXPORTER_OTLP_"+string(s)+"_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
	known := []string{httpProtocol, jsonProtocol, grpcProtocol}
	if protocol == "" {
		return httpProtocol, nil
	}
	if !slices.Contains(known, protocol) {
		return "", unknown(name, protocol, known...)
	}
	return protocol, nil
}

func unknown(name, value string, allowed ...string) error {
	return fmt.Errorf("%w: %s=%q (allowed: %s)", ErrVariable, name, value, strings.Join(allowed, ", "))
}

// Options of an exporter.
type Options struct {
	Run, Commit string

	Metrics prometheus.Gatherer

	Warn func(error)
}

// Exporter exports what the variables ask for.
type Exporter struct {
	traces  *sdktrace.TracerProvider
	metrics *sdkmetric.MeterProvider
	ids     *identities
}

// New returns an exporter; nil where the variables ask for none. Whether a
// collector is there shows later. The error wraps [ErrVariable].
func New(ctx context.Context, opts Options) (*Exporter, error) {
	traceProtocol, err := asked(traces)
	if err != nil {
		return nil, err
	}
	metricProtocol, err := asked(metrics)
	if err != nil {
		return nil, err
	}
	if traceProtocol == "" && metricProtocol == "" {
		return nil, nil
	}
	if opts.Warn == nil {
		opts.Warn = func(error) {}
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(opts.Warn))
	otel.SetLogger(logr.Discard())
	res, err := describe(ctx, opts)
	if err != nil {
		return nil, err
	}
	e := &Exporter{ids: new(identities)}
	if traceProtocol != "" {
		x, err := traceExporter(ctx, traceProtocol)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrVariable, err)
		}
		e.traces = sdktrace.NewTracerProvider(sdktrace.WithBatcher(x), sdktrace.WithResource(res), sdktrace.WithIDGenerator(e.ids))
	}
	if metricProtocol != "" {
		x, err := metricExporter(ctx, metricProtocol)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%w: %w", ErrVariable, err), e.Close(ctx))
		}
		reader := sdkmetric.NewPeriodicReader(x, sdkmetric.WithProducer(producer{opts.Metrics}))
		e.metrics = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithResource(res))
	}
	return e, nil
}

// Traced reports whether traces are exported.
func (e *Exporter) Traced() bool { return e != nil && e.traces != nil }

// describe makes the resource: by semantic conventions, OTEL_RESOURCE_ATTRIBUTES and
// OTEL_SERVICE_NAME last, so that they win. An attribute that can't be found out is
// left out.
func describe(ctx context.Context, opts Options) (*resource.Resource, error) {
	res, err := resource.New(ctx,
		resource.WithAttributes(
			semconv.ServiceName("watchlab"), semconv.ServiceVersion(opts.Commit), semconv.ServiceInstanceID(opts.Run),
		),
		resource.WithTelemetrySDK(), resource.WithHost(), resource.WithOSType(),
		resource.WithProcessPID(), resource.WithProcessRuntimeName(), resource.WithProcessRuntimeVersion(),
		resource.WithFromEnv(),
	)
	switch {
	case errors.Is(err, resource.ErrPartialResource):
		return nil, fmt.Errorf("%w: OTEL_RESOURCE_ATTRIBUTES: %w", ErrVariable, err)
	case err != nil:
		return nil, err
	}
	return res, nil
}

func traceExporter(ctx context.Context, protocol string) (*otlptrace.Exporter, error) {
	switch protocol {
	case grpcProtocol:
		return otlptracegrpc.New(ctx)
	default:
		return otlptracehttp.New(ctx)
	}
}

func metricExporter(ctx context.Context, protocol string) (sdkmetric.Exporter, error) {
	switch protocol {
	case grpcProtocol:
		return otlpmetricgrpc.New(ctx)
	default:
		return otlpmetrichttp.New(ctx)
	}
}

// closing is how long Close waits for a collector at most.
const closing = 5 * time.Second

// Close exports what is left and ends. It waits for a collector until ctx ends, and
// five seconds at most.
func (e *Exporter) Close(ctx context.Context) error {
	if e == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, closing)
	defer cancel()
	var errs []error
	if e.traces != nil {
		errs = append(errs, e.traces.Shutdown(ctx))
	}
	if e.metrics != nil {
		errs = append(errs, e.metrics.Shutdown(ctx))
	}
	return errors.Join(errs...)
}
