package live

import (
	"math"
	"slices"
	"sort"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
)

// The buckets are those of Prometheus's native histograms of [nativeSchema]: bucket i holds
// values in (2^((i-1)/8), 2^(i/8)]. A scrape copies the counts; it does not interpolate.
const (
	perOctave = 1 << nativeSchema // number of buckets for each power of two
	// From below a nanosecond to two years in seconds. The highest also counts larger values.
	lowest  = -34 * perOctave
	highest = 26 * perOctave
)

// fractions are the bounds within an octave, relative to the octave's end.
var fractions = func() (b [perOctave]float64) {
	for i := range b {
		b[i] = 0.5 * math.Exp2(float64(i)/perOctave)
	}
	return b
}()

// bucketOf returns the bucket of a positive number.
func bucketOf(v float64) int {
	fraction, octave := math.Frexp(v)
	bucket := sort.SearchFloat64s(fractions[:], fraction) + (octave-1)*perOctave
	return min(max(bucket, lowest), highest)
}

// Distribution counts the values of a histogram. Quantiles are in the unit of the metric.
type Distribution struct {
	Count     uint64 // number of values
	zero      uint64 // values up to [zeroThreshold]
	buckets   [highest - lowest + 1]uint64
	sum       uint64                      // sum of all values in the observed unit, an integer
	exemplars map[int]prometheus.Exemplar // newest traced event by octave; nil for none
}

func (d *Distribution) observe(value int64, n uint64, per float64) {
	d.Count += n
	v := float64(value) / per
	if v <= zeroThreshold {
		d.zero += n
		return
	}
	d.sum += uint64(value) * n
	d.buckets[bucketOf(v)-lowest] += n
}

func (d *Distribution) exemplify(v float64, trace, span string) {
	if v <= zeroThreshold {
		return
	}
	if d.exemplars == nil {
		d.exemplars = map[int]prometheus.Exemplar{}
	}
	octave := int(math.Ceil(float64(bucketOf(v)) / perOctave))
	d.exemplars[octave] = prometheus.Exemplar{
		Value: v, Labels: prometheus.Labels{"trace_id": trace, "span_id": span}, Timestamp: time.Now(),
	}
}

// upTo returns the number of values up to 2^e.
func (d *Distribution) upTo(e int) uint64 {
	n := d.zero
	for _, c := range d.buckets[:max(0, e*perOctave-lowest+1)] {
		n += c
	}
	return n
}

// Quantile returns the upper bound of the bucket that holds quantile q, at most 9 % above the
// value; NaN for an empty distribution.
func (d *Distribution) Quantile(q float64) float64 {
	if d.Count == 0 {
		return math.NaN()
	}
	rank := max(1, uint64(math.Ceil(q*float64(d.Count))))
	n := d.zero
	if n >= rank {
		return 0
	}
	for i, c := range d.buckets {
		if n += c; n >= rank {
			return math.Exp2(float64(i+lowest) / perOctave)
		}
	}
	return math.NaN()
}

// Sum returns the sum of a histogram's values in the unit of its metric.
func (f *Figures) Sum(h Histogram) float64 { return float64(f.dists[h].sum) / series[h].per }

// bothBuckets adds classic buckets to a native histogram, for scrapers without native ones.
type bothBuckets struct {
	prometheus.Metric
	classic []*dto.Bucket
}

func newHistogram(s *Figures, h Histogram) prometheus.Metric {
	m, d, values := series[h], s.Distribution(h), s.Labels.Values()
	if len(m.Labels) > 0 {
		values = append(values, m.label)
	}
	buckets := map[int]int64{}
	for i, n := range d.buckets {
		if n > 0 {
			buckets[i+lowest] = int64(n)
		}
	}
	out := bothBuckets{Metric: prometheus.MustNewConstNativeHistogram(
		m.desc, d.Count, s.Sum(h), buckets, nil, d.zero, nativeSchema, zeroThreshold, s.Created, values...,
	)}
	for _, bound := range m.Buckets {
		n := d.zero
		if bound > 0 {
			n = d.upTo(math.Ilogb(bound)) // bounds are powers of two
		}
		out.classic = append(out.classic, &dto.Bucket{UpperBound: proto.Float64(bound), CumulativeCount: proto.Uint64(n)})
	}
	if len(d.exemplars) == 0 {
		return out
	}
	var exemplars []prometheus.Exemplar
	for _, e := range d.exemplars {
		exemplars = append(exemplars, e)
	}
	slices.SortFunc(exemplars, func(a, b prometheus.Exemplar) int { return a.Timestamp.Compare(b.Timestamp) })
	return prometheus.MustNewMetricWithExemplars(out, exemplars...)
}

// Write implements prometheus.Metric.
func (h bothBuckets) Write(out *dto.Metric) error {
	err := h.Metric.Write(out)
	out.Histogram.Bucket = slices.Clone(h.classic)
	return err
}
