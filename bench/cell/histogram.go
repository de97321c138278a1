package cell

import (
	"compress/zlib"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Range and precision of the histograms: 1 ns to 1 h, three significant digits.
const (
	lowest  = int64(1)
	highest = int64(time.Hour)
	digits  = 3
)

// Quantiles summarises a distribution of durations. P50 to P999 are accurate to the
// histogram's three significant digits; all other fields are exact.
type Quantiles struct {
	Count uint64 `json:"count"` // number of durations
	// Sum is in ns. Clamped durations count as one hour and negative ones as 0.
	Sum      uint64        `json:"sumNs,omitempty"`
	Mean     time.Duration `json:"meanNs"`             // Sum over Count, rounded down to 1 ns
	P50      time.Duration `json:"p50Ns"`              // median
	P90      time.Duration `json:"p90Ns"`              // 90th percentile
	P99      time.Duration `json:"p99Ns"`              // 99th percentile
	P999     time.Duration `json:"p999Ns"`             // 99.9th percentile
	Min      time.Duration `json:"minNs,omitempty"`    // as reported, neither clamped nor raised
	Max      time.Duration `json:"maxNs"`              // as reported, neither clamped nor raised
	Clamped  uint64        `json:"clamped,omitempty"`  // values above one hour, recorded as one hour
	Negative uint64        `json:"negative,omitempty"` // values below 0, recorded as 0
	// Histogram is the whole distribution as compressed base64 (HdrHistogram V2), for
	// [MergeHistograms] and other HdrHistogram libraries.
	Histogram string `json:"histogram,omitempty"`
}

type durations struct {
	hist              *hdrhistogram.Histogram
	sum               uint64
	min, max          time.Duration
	clamped, negative uint64
}

func newDurations() durations {
	return durations{hist: hdrhistogram.New(lowest, highest, digits), min: math.MaxInt64, max: math.MinInt64}
}

func (d *durations) record(v time.Duration) {
	d.min, d.max = min(d.min, v), max(d.max, v)
	switch {
	case v < 0:
		d.negative++
		v = 0
	case int64(v) > highest:
		d.clamped++
		v = time.Duration(highest)
	}
	d.sum += uint64(v)
	_ = d.hist.RecordValue(int64(v)) // The value is in range, and no run fills a counter (2^63).
}

// QuantilesOf summarises durations. It fails only if the histogram cannot be encoded.
func QuantilesOf(values []time.Duration) (Quantiles, error) {
	d := newDurations()
	for _, v := range values {
		d.record(v)
	}
	return d.quantiles()
}

func (d *durations) quantiles() (Quantiles, error) {
	encoded, err := d.hist.EncodeV2()
	if err != nil {
		return Quantiles{}, fmt.Errorf("encode histogram: %w", err)
	}
	q := Quantiles{
		Count: uint64(d.hist.TotalCount()), Sum: d.sum,
		Clamped: d.clamped, Negative: d.negative, Histogram: string(encoded),
	}
	if q.Count == 0 {
		return q, nil
	}
	q.Mean, q.Min, q.Max = time.Duration(q.Sum/q.Count), d.min, d.max
	v := d.hist.ValueAtPercentilesSlice([]float64{50, 90, 99, 99.9})
	for i, to := range []*time.Duration{&q.P50, &q.P90, &q.P99, &q.P999} {
		// A quantile is the upper bound of its bucket, which may exceed the longest duration.
		*to = min(time.Duration(v[i]), max(d.max, 0))
	}
	return q, nil
}

// MergeHistograms adds up the distributions of several rounds. The result is the same
// as that of one recorder with all durations. An error names a part that cannot be
// decoded or has another range or precision.
func MergeHistograms(parts ...Quantiles) (Quantiles, error) {
	all := newDurations()
	for i, p := range parts {
		h, err := decode(p.Histogram)
		if err != nil {
			return Quantiles{}, fmt.Errorf("histogram %d of %d: %w", i+1, len(parts), err)
		}
		if n := uint64(h.TotalCount()); n != p.Count {
			return Quantiles{}, fmt.Errorf("histogram %d of %d: it holds %d values, not %d", i+1, len(parts), n, p.Count)
		}
		if p.Count == 0 {
			continue
		}
		// Range and precision are equal, so each count falls into its own bucket.
		if dropped := all.hist.Merge(h); dropped > 0 {
			return Quantiles{}, fmt.Errorf("histogram %d of %d: %d values too many to count", i+1, len(parts), dropped)
		}
		all.sum += p.Sum
		all.min, all.max = min(all.min, p.Min), max(all.max, p.Max)
		all.clamped += p.Clamped
		all.negative += p.Negative
	}
	return all.quantiles()
}

// decode checks range and precision first: others may have 47 MB of counters.
func decode(encoded string) (*hdrhistogram.Histogram, error) {
	in := base64.NewDecoder(base64.StdEncoding, strings.NewReader(encoded))
	_, err := io.CopyN(io.Discard, in, 8) // cookie and length
	var body io.Reader
	if err == nil {
		body, err = zlib.NewReader(in)
	}
	var head struct {
		_, _, _, Digits int32
		Lowest, Highest int64
	}
	if err == nil {
		err = binary.Read(body, binary.BigEndian, &head)
	}
	if err != nil {
		return nil, fmt.Errorf("the histogram's header: %w", err)
	}
	if head.Lowest != lowest || head.Highest != highest || head.Digits != digits {
		return nil, fmt.Errorf("a histogram of %d to %d ns with %d digits, not of %d to %d with %d",
			head.Lowest, head.Highest, head.Digits, lowest, highest, digits)
	}
	return hdrhistogram.Decode([]byte(encoded))
}
