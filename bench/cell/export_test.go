package cell

// PaidBytes is paidBytes between two readings of the runtime.
func PaidBytes(collections uint32, liveBefore, liveAfter uint64, gogc float64) float64 {
	return paidBytes(usage{live: liveBefore}, usage{gcs: collections, live: liveAfter, gogc: gogc})
}
