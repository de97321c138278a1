//go:build !unix

package conformance

import "testing"

// Idle does nothing on systems without getrusage.
func Idle(*testing.T) {}
