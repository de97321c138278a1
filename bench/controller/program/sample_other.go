//go:build !linux

package program

import (
	"errors"

	"watchlab/bench/controller/record"
)

// Sample returns false: only Linux has /proc.
func (p *Program) Sample() (record.Sample, bool) { return record.Sample{}, false }

// ResetPeak is an error.
func (p *Program) ResetPeak() error { return errors.ErrUnsupported }
