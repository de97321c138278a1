package push

import (
	"math"
	"slices"
	"sort"
	"strconv"
	"time"

	writev2 "github.com/prometheus/client_golang/exp/api/remote/genproto/v2"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// The message is prometheus.WriteRequest of remote write 1.0
// (https://prometheus.io/docs/specs/prw/remote_write_spec, prompb/remote.proto and
// types.proto), which every receiver takes; Prometheus knows 2.0 since 3.0 only.
// client_golang has no type of it, but 2.0's Histogram is the same message.

// series is a time series with one sample: a number or a native histogram.
type series struct {
	labels    []label
	value     float64
	native    *writev2.Histogram
	exemplars []*dto.Exemplar
}

type label struct{ name, value string }

// seriesOf makes series of gathered families: numbers first, then native
// histograms. Histograms become buckets, sum and count, and beside them the native
// one where there is one. extra labels are added to all.
func seriesOf(families []*dto.MetricFamily, at time.Time, extra []label) (numbers, natives []series) {
	for _, f := range families {
		for _, m := range f.GetMetric() {
			add := func(name string, v float64, more ...label) *series {
				numbers = append(numbers, series{labels: labelsOf(name, m, slices.Concat(extra, more)), value: v})
				return &numbers[len(numbers)-1]
			}
			switch {
			case m.GetCounter() != nil:
				add(f.GetName(), m.GetCounter().GetValue())
			case m.GetGauge() != nil:
				add(f.GetName(), m.GetGauge().GetValue())
			case m.GetUntyped() != nil:
				add(f.GetName(), m.GetUntyped().GetValue())
			case m.GetSummary() != nil:
				for _, q := range m.GetSummary().GetQuantile() {
					add(f.GetName(), q.GetValue(), label{"quantile", number(q.GetQuantile())})
				}
				add(f.GetName()+"_sum", m.GetSummary().GetSampleSum())
				add(f.GetName()+"_count", float64(m.GetSummary().GetSampleCount()))
			case m.GetHistogram() != nil:
				h := m.GetHistogram()
				for _, b := range h.GetBucket() {
					if math.IsInf(b.GetUpperBound(), 1) {
						continue
					}
					s := add(f.GetName()+"_bucket", float64(b.GetCumulativeCount()), label{"le", number(b.GetUpperBound())})
					if x := b.GetExemplar(); x != nil {
						s.exemplars = append(s.exemplars, x)
					}
				}
				if len(h.GetBucket()) > 0 || h.Schema == nil {
					add(f.GetName()+"_bucket", float64(h.GetSampleCount()), label{"le", "+Inf"})
					add(f.GetName()+"_sum", h.GetSampleSum())
					add(f.GetName()+"_count", float64(h.GetSampleCount()))
				}
				if h.Schema != nil && h.GetSampleCountFloat() == 0 {
					natives = append(natives, series{
						labels: labelsOf(f.GetName(), m, extra), native: nativeOf(h, at), exemplars: h.GetExemplars(),
					})
				}
			}
		}
	}
	return numbers, natives
}

// labelsOf returns the sorted labels of a series. A label that a metric has
// already is not taken from more.
func labelsOf(name string, m *dto.Metric, more []label) []label {
	out := []label{{"__name__", name}}
	for _, l := range m.GetLabel() {
		if l.GetValue() != "" {
			out = append(out, label{l.GetName(), l.GetValue()})
		}
	}
	for _, l := range more {
		if l.value != "" && !slices.ContainsFunc(out, func(o label) bool { return o.name == l.name }) {
			out = append(out, l)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].name < out[j].name })
	return out
}

// number writes a bound as Prometheus does.
func number(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1e15 {
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

func nativeOf(h *dto.Histogram, at time.Time) *writev2.Histogram {
	out := &writev2.Histogram{
		Count: &writev2.Histogram_CountInt{CountInt: h.GetSampleCount()}, Sum: h.GetSampleSum(),
		Schema: h.GetSchema(), ZeroThreshold: h.GetZeroThreshold(),
		ZeroCount:      &writev2.Histogram_ZeroCountInt{ZeroCountInt: h.GetZeroCount()},
		PositiveDeltas: h.GetPositiveDelta(), NegativeDeltas: h.GetNegativeDelta(),
		Timestamp: at.UnixMilli(),
	}
	spans := func(in []*dto.BucketSpan) (out []*writev2.BucketSpan) {
		for _, s := range in {
			out = append(out, &writev2.BucketSpan{Offset: s.GetOffset(), Length: s.GetLength()})
		}
		return out
	}
	out.PositiveSpans, out.NegativeSpans = spans(h.GetPositiveSpan()), spans(h.GetNegativeSpan())
	return out
}

// request is the encoded message, in the shape in which client_golang's remote
// API takes one that it doesn't know.
type request []byte

func (r request) Size() int { return len(r) }

// MarshalToSizedBuffer writes to the end of the buffer, as gogo's do.
func (r request) MarshalToSizedBuffer(b []byte) (int, error) { return copy(b[len(b)-len(r):], r), nil }

// The fields of WriteRequest, TimeSeries, Label, Sample and Exemplar.
const (
	requestTimeSeries = 1

	seriesLabels     = 1
	seriesSamples    = 2
	seriesExemplars  = 3
	seriesHistograms = 4

	labelName  = 1
	labelValue = 2

	sampleValue     = 1
	sampleTimestamp = 2

	exemplarLabels    = 1
	exemplarValue     = 2
	exemplarTimestamp = 3
)

func encode(all []series, at time.Time) (request, error) {
	var out request
	for _, s := range all {
		var b []byte
		for _, l := range s.labels {
			b = appendLabel(b, seriesLabels, l.name, l.value)
		}
		if s.native != nil {
			h, err := proto.Marshal(s.native)
			if err != nil {
				return nil, err
			}
			b = appendMessage(b, seriesHistograms, h)
		} else {
			sample := appendDouble(nil, sampleValue, s.value)
			b = appendMessage(b, seriesSamples, appendInt(sample, sampleTimestamp, at.UnixMilli()))
		}
		for _, x := range s.exemplars {
			var e []byte
			for _, l := range x.GetLabel() {
				e = appendLabel(e, exemplarLabels, l.GetName(), l.GetValue())
			}
			e = appendDouble(e, exemplarValue, x.GetValue())
			b = appendMessage(b, seriesExemplars, appendInt(e, exemplarTimestamp, x.GetTimestamp().AsTime().UnixMilli()))
		}
		out = appendMessage(out, requestTimeSeries, b)
	}
	return out, nil
}

func appendMessage(b []byte, field protowire.Number, m []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), m)
}

func appendLabel(b []byte, field protowire.Number, name, value string) []byte {
	l := protowire.AppendString(protowire.AppendTag(nil, labelName, protowire.BytesType), name)
	return appendMessage(b, field, protowire.AppendString(protowire.AppendTag(l, labelValue, protowire.BytesType), value))
}

func appendDouble(b []byte, field protowire.Number, v float64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, field, protowire.Fixed64Type), math.Float64bits(v))
}

func appendInt(b []byte, field protowire.Number, v int64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), uint64(v))
}
