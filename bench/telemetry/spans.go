package telemetry

import (
	"context"
	"encoding/binary"
	"hash/fnv"
	"math/bits"
	"math/rand/v2"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"watchlab/bench/telemetry/live"
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
// are bounded: at most 2*[tracedEvents] sampled events and as many that they were coalesced into,
// with a span for each stage.
type cellSpan struct {
	trace.Span
	tracer trace.Tracer
	ctx    context.Context
}

// startCell starts the trace of a round; round 0 is the warm-up.
func (e *exporter) startCell(name string, l live.Labels, round int) *cellSpan {
	attrs := []attribute.KeyValue{attribute.Int(attrPrefix+"round", round)}
	for i, v := range l.Values() {
		if v != "" {
			attrs = append(attrs, attribute.String(attrPrefix+l.Names()[i], v))
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
func (c *cellSpan) sampling(events int) *live.Sampling {
	if !c.SpanContext().IsSampled() || events <= 0 {
		return nil
	}
	step := uint64(1) << max(0, bits.Len64(uint64(events)/tracedEvents)-1)
	if events >= minStep {
		step = max(step, minStep)
	}
	return &live.Sampling{
		Every: step,
		IDs: func(seq uint64) (string, string) {
			return c.SpanContext().TraceID().String(), c.eventID(seq).String()
		},
		Export: c.export,
	}
}

// eventID derives the ID of an event's span, for exemplars and links to a future span.
func (c *cellSpan) eventID(seq uint64) (out trace.SpanID) {
	h := fnv.New64a()
	id := c.SpanContext().SpanID()
	_, _ = h.Write(id[:])
	_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, seq))
	binary.BigEndian.PutUint64(out[:], max(h.Sum64(), 1))
	return out
}

// export exports the span of an event, with a child for each interval between two stages.
func (c *cellSpan) export(e live.EventTrace) {
	if len(e.Stages) == 0 {
		return
	}
	stages := e.Stages
	if !e.Intended.IsZero() {
		stages = append([]live.StageTime{{Stage: "intended", At: e.Intended}}, stages...)
	}
	start, end := stages[0].At, slices.MaxFunc(stages, func(a, b live.StageTime) int { return a.At.Compare(b.At) }).At
	attrs := []attribute.KeyValue{attrSeq.Int64(int64(e.Seq)), attribute.String(attrPrefix+"event.type", e.Type)}
	if e.Key != "" {
		attrs = append(attrs, attribute.String(attrPrefix+"event.key", e.Key))
	}
	opts := []trace.SpanStartOption{trace.WithTimestamp(start), trace.WithAttributes(attrs...)}
	if e.Into != 0 {
		into := trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: c.SpanContext().TraceID(), SpanID: c.eventID(e.Into), TraceFlags: trace.FlagsSampled,
		})
		opts = append(opts, trace.WithLinks(trace.Link{
			SpanContext: into, Attributes: []attribute.KeyValue{attribute.Bool(attrPrefix+"coalesced", true), attrSeq.Int64(int64(e.Into))},
		}))
	}
	ctx, span := c.tracer.Start(context.WithValue(c.ctx, spanIDKey{}, c.eventID(e.Seq)), "event "+e.Type, opts...)
	ctx = context.WithValue(ctx, spanIDKey{}, nil)
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

// spanIDKey is the context's key for the ID of a new span.
type spanIDKey struct{}

// spanIDs generates random IDs, or takes the span's from the context.
type spanIDs struct{}

func (g spanIDs) NewIDs(ctx context.Context) (t trace.TraceID, _ trace.SpanID) {
	binary.BigEndian.PutUint64(t[:8], max(rand.Uint64(), 1))
	binary.BigEndian.PutUint64(t[8:], rand.Uint64())
	return t, g.NewSpanID(ctx, t)
}

func (spanIDs) NewSpanID(ctx context.Context, _ trace.TraceID) (s trace.SpanID) {
	if id, ok := ctx.Value(spanIDKey{}).(trace.SpanID); ok {
		return id
	}
	binary.BigEndian.PutUint64(s[:], max(rand.Uint64(), 1))
	return s
}
