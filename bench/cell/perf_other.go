//go:build !linux

package cell

// perf counts nothing on this system.
type perf struct{}

func openPerf() (none perf) { return none }
func (perf) on()            {}
func (perf) off()           {}
func (perf) close() []Note  { return nil }
