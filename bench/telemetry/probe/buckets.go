package probe

import (
	"math"
	"time"

	"watchlab/bench/telemetry/metric"
)

// The buckets are those of Prometheus's native histograms of [metric.Schema]: bucket i
// holds values in (2^((i-1)/8), 2^(i/8)]. A scrape copies the counts; it does not
// interpolate.
const (
	// perOctave is the number of buckets for each power of two.
	perOctave = 1 << metric.Schema
	// lowest and highest bucket: from below a nanosecond to 2^26, which is two years in
	// seconds. The highest also counts larger values.
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

// slotBits of a float's mantissa select a slot. A slot contains at most one bound.
const slotBits = 6

// firstBound has, for each slot, the first bound at or above the slot's start.
var firstBound = func() (t [1 << slotBits]int16) {
	for s := range t {
		from := 0.5 + float64(s)/(2<<slotBits)
		for int(t[s]) < perOctave && fractions[t[s]] < from {
			t[s]++
		}
	}
	return t
}()

const (
	mantissaBits = 52
	mantissa     = 1<<mantissaBits - 1
	// half is the exponent of 0.5, in place.
	half = 1022 << mantissaBits
	// octaveOfOne: Frexp(1) is 0.5 and 1, so that 1 is the end of octave 0.
	octaveOfOne = 1022 + 1
)

// bucketOf returns the bucket of a positive number above the zero threshold.
func bucketOf(v float64) int {
	bits := math.Float64bits(v)
	fraction := math.Float64frombits(bits&mantissa | half)
	i := int(firstBound[bits>>(mantissaBits-slotBits)&(1<<slotBits-1)])
	if i < perOctave && fraction > fractions[i] {
		i++
	}
	bucket := i + (int(bits>>mantissaBits)-octaveOfOne)*perOctave
	return min(max(bucket, lowest), highest)
}

// histogram holds the folded records.
type histogram struct {
	// zero counts the values up to [metric.ZeroThreshold].
	zero uint64
	// buckets has the counts of buckets lowest to highest.
	buckets [highest - lowest + 1]uint64
	// sum of all values in the unit of the records, an integer.
	sum uint64
	// exemplars by octave; nil for none.
	exemplars map[int]exemplar
}

// exemplar is the newest traced event of an octave.
type exemplar struct {
	// value in the unit of the records.
	value uint64
	seq   uint64
	at    time.Time
	trace *Sampling
}

// observe adds a record and returns its octave; ok is false for zero.
func (h *histogram) observe(value uint64, scale float64) (octave int, ok bool) {
	h.sum += value
	v := float64(value) * scale
	if v <= metric.ZeroThreshold {
		h.zero++
		return 0, false
	}
	b := bucketOf(v)
	h.buckets[b-lowest]++
	return octaveOf(b), true
}

// octaveOf returns the e for which a bucket lies within (2^(e-1), 2^e].
func octaveOf(bucket int) int {
	return (bucket-lowest+perOctave-1)/perOctave + lowest/perOctave
}

// observeOnes adds n records of value 1 and unit 1.
func (h *histogram) observeOnes(n uint64) {
	h.sum += n
	h.buckets[bucketOf(1)-lowest] += n
}

func (h *histogram) exemplify(octave int, e exemplar) {
	if h.exemplars == nil {
		h.exemplars = map[int]exemplar{}
	}
	h.exemplars[octave] = e
}
