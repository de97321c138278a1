package expose

import (
	"math"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"watchlab/bench/telemetry/metric"
	"watchlab/bench/telemetry/probe"
)

// histogram is a native one with classic buckets beside it, which
// prometheus.NewConstNativeHistogram lacks. A scraper that doesn't know native
// ones sees the classic.
type histogram struct {
	prometheus.Metric
	classic []*dto.Bucket

	exemplars []*dto.Exemplar
}

func newHistogram(s *probe.Snapshot, h *probe.HistogramSnapshot) prometheus.Metric {
	m, label := h.Histogram.Metric()
	values := s.Labels.Values()
	if len(m.Labels) > 0 {
		values = append(values, label)
	}
	out := &histogram{Metric: prometheus.MustNewConstNativeHistogram(
		descs[m.Name], h.Count, h.Sum, h.Buckets, nil, h.Zero,
		metric.Schema, metric.ZeroThreshold, s.Created, values...,
	)}
	for _, bound := range m.Buckets {
		out.classic = append(out.classic, &dto.Bucket{UpperBound: proto.Float64(bound), CumulativeCount: proto.Uint64(upTo(h, bound))})
	}
	for _, e := range h.Exemplars {
		out.exemplify(e)
	}
	slices.SortFunc(out.exemplars, func(a, b *dto.Exemplar) int {
		return a.GetTimestamp().AsTime().Compare(b.GetTimestamp().AsTime())
	})
	return out
}

// exemplify adds an exemplar, to the classic bucket that it is in as well; what is
// above the last one goes into +Inf.
func (h *histogram) exemplify(e probe.Exemplar) {
	x := &dto.Exemplar{
		Label: []*dto.LabelPair{
			{Name: proto.String("trace_id"), Value: proto.String(e.TraceID)},
			{Name: proto.String("span_id"), Value: proto.String(e.SpanID)},
		},
		Value:     proto.Float64(e.Value),
		Timestamp: timestamppb.New(e.At),
	}
	h.exemplars = append(h.exemplars, x)
	i, _ := slices.BinarySearchFunc(h.classic, e.Value, func(b *dto.Bucket, v float64) int {
		switch {
		case b.GetUpperBound() < v:
			return -1
		case b.GetUpperBound() > v:
			return 1
		}
		return 0
	})
	if i == len(h.classic) {
		return
	}
	h.classic[i].Exemplar = x
}

// upTo returns how many values are not above a bound, which is a power of two or
// 0.
func upTo(h *probe.HistogramSnapshot, bound float64) uint64 {
	if bound == 0 {
		return h.Zero
	}
	_, e := math.Frexp(bound)
	return h.CountUpTo(e - 1)
}

// Write is part of prometheus.Metric.
func (h *histogram) Write(out *dto.Metric) error {
	if err := h.Metric.Write(out); err != nil {
		return err
	}
	out.Histogram.Bucket = h.classic
	out.Histogram.Exemplars = h.exemplars
	return nil
}
