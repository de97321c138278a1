package telemetry

import (
	"context"
	"math/bits"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

const scope = "watchlab/bench/telemetry" // name of the instrumentation

const (
	attrPrefix = "watchlab."
	attrSeq    = attribute.Key(attrPrefix + "event.seq")
)

// startRun starts the span of the run, which is a trace of its own: the traces of plays link to it.
func (e *exporter) startRun(ctx context.Context, name string) {
	// A new root: the caller's trace, if any, is not the collector's.
	e.run, _ = e.tracer.Start(ctx, "run "+name, trace.WithNewRoot(), trace.WithAttributes(attribute.String(attrPrefix+"run", name)))
}

func (e *exporter) endRun(err error) {
	span := trace.SpanFromContext(e.run)
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// cellSpan is the span of one play of a cell: the root of a trace with the spans of its events. These
// are bounded: at most 2*[tracedEvents] sampled events, with a span for each stage.
type cellSpan struct {
	trace.Span
	tracer trace.Tracer
	ctx    context.Context
}

// startCell starts the trace of a round; round 0 is the warm-up.
func (e *exporter) startCell(name string, l Labels, round int) *cellSpan {
	attrs := []attribute.KeyValue{attribute.Int(attrPrefix+"round", round)}
	for i, v := range l {
		if v != "" {
			attrs = append(attrs, attribute.String(attrPrefix+CommonLabels[i], v))
		}
	}
	run := trace.Link{SpanContext: trace.SpanContextFromContext(e.run)}
	ctx, span := e.tracer.Start(e.run, "cell "+name, trace.WithNewRoot(), trace.WithLinks(run), trace.WithAttributes(attrs...))
	return &cellSpan{Span: span, tracer: e.tracer, ctx: ctx}
}

func (c *cellSpan) invalid(status, cause string) {
	c.SetAttributes(attribute.String(attrPrefix+"verdict.status", status), attribute.String(attrPrefix+"verdict.cause", cause))
	c.SetStatus(codes.Error, cause)
}

const (
	tracedEvents = 16 // approximate number of traced events a round
	// minStep: unpaced cells stamp every 64th event, which the traced ones must be among.
	minStep = 64
)

// sampling selects about tracedEvents events at even intervals; nil if the round is not sampled.
func (c *cellSpan) sampling(events int) *Sampling {
	if !c.SpanContext().IsSampled() || events <= 0 {
		return nil
	}
	step := uint64(1) << max(0, bits.Len64(uint64(events)/tracedEvents)-1)
	if events >= minStep {
		step = max(step, minStep)
	}
	return &Sampling{
		Every:  step,
		Trace:  c.SpanContext().TraceID().String(),
		Span:   c.SpanContext().SpanID().String(),
		Export: c.export,
	}
}

// export exports the span of an event, with a child for each interval between two stages.
func (c *cellSpan) export(e EventTrace) {
	if len(e.Stages) == 0 {
		return
	}
	stages := e.Stages
	if !e.Intended.IsZero() {
		stages = append([]StageTime{{Stage: "intended", At: e.Intended}}, stages...)
	}
	start, end := stages[0].At, slices.MaxFunc(stages, func(a, b StageTime) int { return a.At.Compare(b.At) }).At
	attrs := []attribute.KeyValue{attrSeq.Int64(int64(e.Seq)), attribute.String(attrPrefix+"event.type", e.Type)}
	if e.Key != "" {
		attrs = append(attrs, attribute.String(attrPrefix+"event.key", e.Key))
	}
	opts := []trace.SpanStartOption{trace.WithTimestamp(start), trace.WithAttributes(attrs...)}
	ctx, span := c.tracer.Start(c.ctx, "event "+e.Type, opts...)
	for i, to := range stages[1:] {
		from := stages[i]
		_, child := c.tracer.Start(ctx, from.Stage+"→"+to.Stage, trace.WithTimestamp(from.At))
		if to.At.Before(from.At) { // released before its intended time
			to = from
		}
		child.End(trace.WithTimestamp(to.At))
	}
	span.End(trace.WithTimestamp(end))
}
