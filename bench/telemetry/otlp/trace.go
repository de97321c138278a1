package otlp

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/bits"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"watchlab/bench/telemetry/probe"
)

// scope is the name of the instrumentation.
const scope = "watchlab/bench/telemetry"

// The attributes of spans.
const (
	attrRun      = attribute.Key("watchlab.run")
	attrFamily   = attribute.Key("watchlab.family")
	attrVariant  = attribute.Key("watchlab.variant")
	attrDelivery = attribute.Key("watchlab.delivery")
	attrPipeline = attribute.Key("watchlab.pipeline")
	attrStorm    = attribute.Key("watchlab.storm")
	attrSource   = attribute.Key("watchlab.source")
	attrRate     = attribute.Key("watchlab.rate")
	attrRound    = attribute.Key("watchlab.round")
	attrStatus   = attribute.Key("watchlab.verdict.status")
	attrCause    = attribute.Key("watchlab.verdict.cause")
	attrSeq      = attribute.Key("watchlab.event.seq")
	attrType     = attribute.Key("watchlab.event.type")
	attrKey      = attribute.Key("watchlab.event.key")
)

// Run is the span of a run; the parent of those of its cells. The nil Run has
// none.
type Run struct {
	ids    *identities
	tracer trace.Tracer
	ctx    context.Context
	span   trace.Span
}

// StartRun begins the span of the run; nil where traces are not exported.
func (e *Exporter) StartRun(ctx context.Context, name string) *Run {
	if !e.Traced() {
		return nil
	}
	t := e.traces.Tracer(scope)
	// What a run belongs to is the collector's to say, not that of whoever
	// called.
	ctx, span := t.Start(ctx, "run "+name, trace.WithNewRoot(), trace.WithAttributes(attrRun.String(name)))
	return &Run{ids: e.ids, tracer: t, ctx: ctx, span: span}
}

// End ends the span of the run, by an error where it came to grief.
func (r *Run) End(err error) {
	if r == nil {
		return
	}
	if err != nil {
		r.span.SetStatus(codes.Error, err.Error())
	}
	r.span.End()
}

// Cell is the span of one play of a cell; the parent of those of its events. The
// nil Cell has none.
type Cell struct {
	run  *Run
	ctx  context.Context
	span trace.Span
}

// StartCell begins the span of a play; round 0 is the warm-up.
func (r *Run) StartCell(name string, l probe.Labels, rate string, round int) *Cell {
	if r == nil {
		return nil
	}
	attrs := []attribute.KeyValue{
		attrRun.String(l.Run), attrFamily.String(l.Family), attrVariant.String(l.Variant),
		attrPipeline.String(l.Pipeline), attrStorm.String(l.Storm), attrSource.String(l.Source),
		attrRate.String(rate), attrRound.Int(round),
	}
	if l.Delivery != "" {
		attrs = append(attrs, attrDelivery.String(l.Delivery))
	}
	ctx, span := r.tracer.Start(r.ctx, "cell "+name, trace.WithAttributes(attrs...))
	return &Cell{run: r, ctx: ctx, span: span}
}

// Judge says what the cell's verdict is; one that isn't valid or noisy is an
// error.
func (c *Cell) Judge(v probe.Verdict) {
	if c == nil {
		return
	}
	c.span.SetAttributes(attrStatus.String(v.Status))
	if v.Cause != "" {
		c.span.SetAttributes(attrCause.String(v.Cause))
	}
	if v.Status == "invalid" {
		c.span.SetStatus(codes.Error, v.Cause)
	}
}

// End ends the span of the play.
func (c *Cell) End() {
	if c != nil {
		c.span.End()
	}
}

const (
	// tracedEvents is how many events of a play are traced, about.
	tracedEvents = 16
	// leastStep: unpaced cells stamp only every 64th event, and those have to be
	// among them.
	leastStep = 64
)

// Sampling picks about 16 of so many events, evenly, by their numbers. It is nil
// where the play isn't sampled.
func (c *Cell) Sampling(events int) *probe.Sampling {
	if c == nil || !c.span.SpanContext().IsSampled() || events <= 0 {
		return nil
	}
	step := uint64(1) << max(0, bits.Len64(uint64(events)/tracedEvents)-1)
	if events >= leastStep {
		step = max(step, leastStep)
	}
	return &probe.Sampling{
		Every: step,
		IDs: func(seq uint64) (string, string) {
			return c.span.SpanContext().TraceID().String(), c.eventID(seq).String()
		},
		Journey: c.journey,
	}
}

// eventID is that of an event's span: the same whoever asks, so that exemplars and
// links can name a span that has not been made yet.
func (c *Cell) eventID(seq uint64) trace.SpanID {
	h := fnv.New64a()
	id := c.span.SpanContext().SpanID()
	_, _ = h.Write(id[:])
	_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, seq))
	var out trace.SpanID
	binary.BigEndian.PutUint64(out[:], max(h.Sum64(), 1))
	return out
}

// journey makes the spans of an event: one for all of its way, with a child for
// each stretch between two stages.
func (c *Cell) journey(j probe.Journey) {
	if len(j.Stages) == 0 {
		return
	}
	start := j.Intended
	if start.IsZero() {
		start = j.Stages[0].At
	}
	end := start
	for _, a := range j.Stages {
		if a.At.After(end) {
			end = a.At
		}
	}
	attrs := []attribute.KeyValue{attrSeq.Int64(int64(j.Seq)), attrType.String(j.Type)}
	if j.Key != "" {
		attrs = append(attrs, attrKey.String(j.Key))
	}
	opts := []trace.SpanStartOption{trace.WithTimestamp(start), trace.WithAttributes(attrs...)}
	if j.Into != 0 {
		into := trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: c.span.SpanContext().TraceID(), SpanID: c.eventID(j.Into), TraceFlags: trace.FlagsSampled,
		})
		opts = append(opts, trace.WithLinks(trace.Link{
			SpanContext: into, Attributes: []attribute.KeyValue{attribute.Bool("watchlab.coalesced", true), attrSeq.Int64(int64(j.Into))},
		}))
	}
	ctx, span := c.run.tracer.Start(context.WithValue(c.ctx, wantedID{}, c.eventID(j.Seq)), "event "+j.Type, opts...)
	ctx = context.WithValue(ctx, wantedID{}, nil)
	child := func(name string, from, to time.Time) {
		_, s := c.run.tracer.Start(ctx, name, trace.WithTimestamp(from))
		if to.Before(from) {
			to = from
		}
		s.End(trace.WithTimestamp(to))
	}
	if !j.Intended.IsZero() {
		child("intended→"+j.Stages[0].Stage, j.Intended, j.Stages[0].At)
	}
	for i, a := range j.Stages[1:] {
		child(fmt.Sprintf("%s→%s", j.Stages[i].Stage, a.Stage), j.Stages[i].At, a.At)
	}
	span.End(trace.WithTimestamp(end))
}

// wantedID is the context's key of the ID that a new span is to get.
type wantedID struct{}

// identities makes random IDs, save where the context wants one.
type identities struct{}

func (i *identities) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	var t trace.TraceID
	binary.BigEndian.PutUint64(t[:8], max(rand.Uint64(), 1))
	binary.BigEndian.PutUint64(t[8:], rand.Uint64())
	return t, i.NewSpanID(ctx, t)
}

func (*identities) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	if id, ok := ctx.Value(wantedID{}).(trace.SpanID); ok {
		return id
	}
	var s trace.SpanID
	binary.BigEndian.PutUint64(s[:], max(rand.Uint64(), 1))
	return s
}
