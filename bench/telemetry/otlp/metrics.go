package otlp

import (
	"context"
	"encoding/hex"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// producer makes OpenTelemetry's metrics of what is gathered, under the same
// names. Native histograms become exponential ones of the same buckets, others
// explicit ones; summaries, of which there are few, become what they are there.
// See https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics.
type producer struct{ from prometheus.Gatherer }

func (p producer) Produce(context.Context) ([]metricdata.ScopeMetrics, error) {
	families, err := p.from.Gather()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	out := metricdata.ScopeMetrics{Scope: instrumentation.Scope{Name: scope}}
	for _, f := range families {
		for _, data := range aggregations(f, now) {
			out.Metrics = append(out.Metrics, metricdata.Metrics{Name: f.GetName(), Description: f.GetHelp(), Unit: unitOf(f.GetName()), Data: data})
		}
	}
	return []metricdata.ScopeMetrics{out}, nil
}

// unitOf reads UCUM's unit from a name's suffix.
func unitOf(name string) string {
	for suffix, unit := range map[string]string{"_seconds": "s", "_seconds_total": "s", "_bytes": "By", "_bytes_total": "By", "_ratio": "1"} {
		if len(name) > len(suffix) && name[len(name)-len(suffix):] == suffix {
			return unit
		}
	}
	return ""
}

// aggregations are one for each kind of data point that a family has.
func aggregations(f *dto.MetricFamily, now time.Time) []metricdata.Aggregation {
	var numbers []metricdata.DataPoint[float64]
	var explicit []metricdata.HistogramDataPoint[float64]
	var exponential []metricdata.ExponentialHistogramDataPoint[float64]
	var summaries []metricdata.SummaryDataPoint
	for _, m := range f.GetMetric() {
		attrs := attributes(m)
		switch {
		case m.GetCounter() != nil:
			numbers = append(numbers, metricdata.DataPoint[float64]{
				Attributes: attrs, Time: now, StartTime: created(m.GetCounter().GetCreatedTimestamp()), Value: m.GetCounter().GetValue(),
			})
		case m.GetGauge() != nil:
			numbers = append(numbers, metricdata.DataPoint[float64]{Attributes: attrs, Time: now, Value: m.GetGauge().GetValue()})
		case m.GetHistogram() != nil && m.GetHistogram().Schema != nil:
			exponential = append(exponential, exponentialOf(m.GetHistogram(), attrs, now))
		case m.GetHistogram() != nil:
			explicit = append(explicit, explicitOf(m.GetHistogram(), attrs, now))
		case m.GetSummary() != nil:
			summaries = append(summaries, summaryOf(m.GetSummary(), attrs, now))
		}
	}
	var out []metricdata.Aggregation
	switch {
	case len(numbers) > 0 && f.GetType() == dto.MetricType_COUNTER:
		out = append(out, metricdata.Sum[float64]{DataPoints: numbers, Temporality: metricdata.CumulativeTemporality, IsMonotonic: true})
	case len(numbers) > 0:
		out = append(out, metricdata.Gauge[float64]{DataPoints: numbers})
	}
	if len(exponential) > 0 {
		out = append(out, metricdata.ExponentialHistogram[float64]{DataPoints: exponential, Temporality: metricdata.CumulativeTemporality})
	}
	if len(explicit) > 0 {
		out = append(out, metricdata.Histogram[float64]{DataPoints: explicit, Temporality: metricdata.CumulativeTemporality})
	}
	if len(summaries) > 0 {
		out = append(out, metricdata.Summary{DataPoints: summaries})
	}
	return out
}

func attributes(m *dto.Metric) attribute.Set {
	var kvs []attribute.KeyValue
	for _, l := range m.GetLabel() {
		if l.GetValue() != "" {
			kvs = append(kvs, attribute.String(l.GetName(), l.GetValue()))
		}
	}
	return attribute.NewSet(kvs...)
}

type timestamp interface{ AsTime() time.Time }

// created is when a series began; the zero time where that isn't known.
func created[T interface {
	comparable
	timestamp
}](t T) time.Time {
	var none T
	if t == none {
		return time.Time{}
	}
	return t.AsTime()
}

func explicitOf(h *dto.Histogram, attrs attribute.Set, now time.Time) metricdata.HistogramDataPoint[float64] {
	p := metricdata.HistogramDataPoint[float64]{
		Attributes: attrs, Time: now, StartTime: created(h.GetCreatedTimestamp()), Count: h.GetSampleCount(), Sum: h.GetSampleSum(),
	}
	var before uint64
	for _, b := range h.GetBucket() {
		if math.IsInf(b.GetUpperBound(), 1) {
			continue
		}
		p.Bounds = append(p.Bounds, b.GetUpperBound())
		p.BucketCounts = append(p.BucketCounts, b.GetCumulativeCount()-before)
		before = b.GetCumulativeCount()
		if x := b.GetExemplar(); x != nil {
			p.Exemplars = append(p.Exemplars, exemplarOf(x))
		}
	}
	p.BucketCounts = append(p.BucketCounts, h.GetSampleCount()-before)
	return p
}

func exponentialOf(h *dto.Histogram, attrs attribute.Set, now time.Time) metricdata.ExponentialHistogramDataPoint[float64] {
	p := metricdata.ExponentialHistogramDataPoint[float64]{
		Attributes: attrs, Time: now, StartTime: created(h.GetCreatedTimestamp()), Count: h.GetSampleCount(), Sum: h.GetSampleSum(),
		Scale: h.GetSchema(), ZeroCount: h.GetZeroCount(), ZeroThreshold: h.GetZeroThreshold(),
		PositiveBucket: bucketsOf(h.GetPositiveSpan(), h.GetPositiveDelta()),
		NegativeBucket: bucketsOf(h.GetNegativeSpan(), h.GetNegativeDelta()),
	}
	for _, x := range h.GetExemplars() {
		p.Exemplars = append(p.Exemplars, exemplarOf(x))
	}
	return p
}

// bucketsOf fills the gaps between spans. Prometheus numbers a bucket by its upper
// bound, OpenTelemetry by its lower one.
func bucketsOf(spans []*dto.BucketSpan, deltas []int64) metricdata.ExponentialBucket {
	var out metricdata.ExponentialBucket
	count, next := int64(0), 0
	for i, s := range spans {
		if i == 0 {
			out.Offset = s.GetOffset() - 1
		} else {
			out.Counts = append(out.Counts, make([]uint64, max(0, s.GetOffset()))...)
		}
		for range s.GetLength() {
			if next == len(deltas) {
				return out
			}
			count += deltas[next]
			next++
			out.Counts = append(out.Counts, uint64(count))
		}
	}
	return out
}

func summaryOf(s *dto.Summary, attrs attribute.Set, now time.Time) metricdata.SummaryDataPoint {
	p := metricdata.SummaryDataPoint{Attributes: attrs, Time: now, StartTime: created(s.GetCreatedTimestamp()), Count: s.GetSampleCount(), Sum: s.GetSampleSum()}
	for _, q := range s.GetQuantile() {
		p.QuantileValues = append(p.QuantileValues, metricdata.QuantileValue{Quantile: q.GetQuantile(), Value: q.GetValue()})
	}
	return p
}

func exemplarOf(x *dto.Exemplar) metricdata.Exemplar[float64] {
	out := metricdata.Exemplar[float64]{Value: x.GetValue(), Time: x.GetTimestamp().AsTime()}
	for _, l := range x.GetLabel() {
		// What is no ID is left out.
		id, _ := hex.DecodeString(l.GetValue())
		switch l.GetName() {
		case "trace_id":
			out.TraceID = id
		case "span_id":
			out.SpanID = id
		}
	}
	return out
}
