//go:build !unix

package conformance

import "time"

// CPUTime returns the CPU time that the process has used, and 0 on systems without getrusage.
func CPUTime() time.Duration { return 0 }
