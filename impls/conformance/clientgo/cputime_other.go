//go:build !unix

package clientgo

import "time"

// cpuTime returns the CPU time that the process has used, and 0 on systems without getrusage.
func cpuTime() time.Duration { return 0 }
