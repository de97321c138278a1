package pipeline

import "time"

// SetStallLimit sets the longest time without progress, for cells created later.
func SetStallLimit(d time.Duration) { stallLimit = d }
