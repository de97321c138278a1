package cell

import "time"

// QuantilesOf records durations without a measurement around them.
func QuantilesOf(durations []time.Duration) (Quantiles, error) {
	d := newDurations()
	for _, v := range durations {
		d.record(v)
	}
	return d.quantiles()
}

// PaidBytes is paidBytes between two readings of the runtime.
func PaidBytes(collections uint32, liveBefore, liveAfter uint64, gogc float64) float64 {
	return paidBytes(usage{live: liveBefore}, usage{gcs: collections, live: liveAfter, gogc: gogc})
}
