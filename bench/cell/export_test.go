package cell

import "time"

// PaidBytes is paidBytes between two readings of the runtime.
func PaidBytes(collections uint32, liveBefore, liveAfter uint64, gogc float64) float64 {
	return paidBytes(usage{live: liveBefore}, usage{gcs: collections, live: liveAfter, gogc: gogc})
}

// SampledPeak is the largest heap sample so far of a recorder that is alone.
func (r *Recorder) SampledPeak() uint64 { return r.watcher.peak.Load() }

// CPUTime is that of the process so far.
func CPUTime() time.Duration { return cpuTime() }

// DecodeQuantiles returns the histogram of an encoded one and its count.
func DecodeQuantiles(encoded string) (Quantiles, error) {
	h, err := decode(encoded)
	if err != nil {
		return Quantiles{}, err
	}
	return Quantiles{Count: uint64(h.TotalCount()), Histogram: encoded}, nil
}
