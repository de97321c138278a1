//go:build !linux

package cell

// perf counts nothing on this system.
type perf struct{}

func openPerf() *perf       { return nil }
func (*perf) on()           {}
func (*perf) off()          {}
func (*perf) close() []Note { return nil }
