package live

import (
	"math"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"

	"watchlab/bench/telemetry/metric"
	"watchlab/bench/telemetry/probe"
)

// histogram adds classic buckets to a native histogram, for scrapers without support of
// native ones. prometheus.NewConstNativeHistogram has none.
type histogram struct {
	prometheus.Metric
	classic []*dto.Bucket
}

func newHistogram(s *probe.Snapshot, h *probe.HistogramSnapshot) prometheus.Metric {
	m, label := h.Histogram.Metric()
	values := s.Labels.Values()
	if len(m.Labels) > 0 {
		values = append(values, label)
	}
	out := histogram{Metric: prometheus.MustNewConstNativeHistogram(
		descs[m.Name], h.Count, h.Sum, h.Buckets, nil, h.Zero,
		metric.Schema, metric.ZeroThreshold, s.Created, values...,
	)}
	for _, bound := range m.Buckets {
		n := h.Zero
		if bound > 0 {
			_, e := math.Frexp(bound) // bounds are powers of two
			n = h.CountUpTo(e - 1)
		}
		out.classic = append(out.classic, &dto.Bucket{UpperBound: proto.Float64(bound), CumulativeCount: proto.Uint64(n)})
	}
	if len(h.Exemplars) == 0 {
		return out
	}
	var exemplars []prometheus.Exemplar
	for _, e := range h.Exemplars {
		exemplars = append(exemplars, prometheus.Exemplar{
			Value: e.Value, Timestamp: e.At, Labels: prometheus.Labels{"trace_id": e.TraceID, "span_id": e.SpanID},
		})
	}
	slices.SortFunc(exemplars, func(a, b prometheus.Exemplar) int { return a.Timestamp.Compare(b.Timestamp) })
	return prometheus.MustNewMetricWithExemplars(out, exemplars...)
}

// Write implements prometheus.Metric.
func (h histogram) Write(out *dto.Metric) error {
	err := h.Metric.Write(out)
	out.Histogram.Bucket = slices.Clone(h.classic)
	return err
}
