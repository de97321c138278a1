//go:build !linux

package program

import "watchlab/bench/controller/record"

// Sample returns false: only Linux has /proc.
func (p *Program) Sample() (record.Sample, bool) { return record.Sample{}, false }
