//go:build !mutants

package conformance

import "time"

// Patience is the maximum duration of a concurrent check before [Watchdog] fails it.
const Patience = time.Minute
