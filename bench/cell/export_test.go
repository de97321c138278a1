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
