package cell

import (
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// The histograms' geometry: nanoseconds up to an hour, three digits.
const (
	lowest  = int64(1)
	highest = int64(time.Hour)
	digits  = 3
)

// Quantiles sum a distribution of durations up, within the histogram's three
// significant digits; Max is exact.
type Quantiles struct {
	Count uint64        `json:"count"`
	Mean  time.Duration `json:"meanNs"`
	P50   time.Duration `json:"p50Ns"`
	P90   time.Duration `json:"p90Ns"`
	P99   time.Duration `json:"p99Ns"`
	P999  time.Duration `json:"p999Ns"`
	Max   time.Duration `json:"maxNs"`
	// Clamped is how many were longer than the histogram's hour and stand in
	// it as an hour; Negative how many were below zero and stand in it as zero.
	Clamped  uint64 `json:"clamped,omitempty"`
	Negative uint64 `json:"negative,omitempty"`
	// Histogram is the whole distribution as HdrHistogram's V2 compressed
	// base64 form, which [MergeHistograms] and every HdrHistogram library read.
	// It is kept out of run.json; the lab writes it to latency/*.hlog.
	Histogram string `json:"-"`
}

// durations is a histogram that loses nothing.
type durations struct {
	hist              *hdrhistogram.Histogram
	max               time.Duration
	clamped, negative uint64
}

func newDurations() durations {
	return durations{hist: hdrhistogram.New(lowest, highest, digits)}
}

func (d *durations) record(v time.Duration) {
	d.max = max(d.max, v)
	switch {
	case v < 0:
		d.negative++
		v = 0
	case int64(v) > highest:
		d.clamped++
		v = time.Duration(highest)
	}
	// The value is within range, so the only error left is a full counter
	// (2^63), which no run reaches.
	_ = d.hist.RecordValue(int64(v))
}

func (d *durations) quantiles() (Quantiles, error) {
	encoded, err := d.hist.EncodeV2()
	if err != nil {
		return Quantiles{}, fmt.Errorf("encode histogram: %w", err)
	}
	q := quantilesOf(d.hist)
	// A quantile is the upper edge of its bucket, which may lie above the
	// longest duration itself.
	for _, v := range []*time.Duration{&q.P50, &q.P90, &q.P99, &q.P999} {
		*v = min(*v, max(d.max, 0))
	}
	q.Max, q.Clamped, q.Negative, q.Histogram = d.max, d.clamped, d.negative, string(encoded)
	return q, nil
}

func quantilesOf(h *hdrhistogram.Histogram) Quantiles {
	v := h.ValueAtPercentilesSlice([]float64{50, 90, 99, 99.9})
	return Quantiles{
		Count: uint64(h.TotalCount()),
		Mean:  time.Duration(h.Mean()),
		P50:   time.Duration(v[0]),
		P90:   time.Duration(v[1]),
		P99:   time.Duration(v[2]),
		P999:  time.Duration(v[3]),
		Max:   time.Duration(h.Max()),
	}
}

// MergeHistograms adds the distributions of several rounds up. Its Max is
// within the histogram's three digits. The error names a form that cannot be
// read.
func MergeHistograms(parts ...Quantiles) (Quantiles, error) {
	sum := hdrhistogram.New(lowest, highest, digits)
	var out Quantiles
	for i, p := range parts {
		h, err := hdrhistogram.Decode([]byte(p.Histogram))
		if err != nil {
			return Quantiles{}, fmt.Errorf("histogram %d of %d: %w", i+1, len(parts), err)
		}
		if dropped := sum.Merge(h); dropped > 0 {
			return Quantiles{}, fmt.Errorf("histogram %d of %d: %d values beyond %v", i+1, len(parts), dropped, time.Duration(highest))
		}
		out.Clamped += p.Clamped
		out.Negative += p.Negative
	}
	encoded, err := sum.EncodeV2()
	if err != nil {
		return Quantiles{}, fmt.Errorf("encode histogram: %w", err)
	}
	q := quantilesOf(sum)
	q.Clamped, q.Negative, q.Histogram = out.Clamped, out.Negative, string(encoded)
	return q, nil
}
