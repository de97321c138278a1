package pipeline

import "time"

// SetStallLimit shortens how long a pipeline may stand still, before any cell
// is made.
func SetStallLimit(d time.Duration) { stallLimit = d }
