//go:build !linux

package program

import (
	"errors"
	"os/exec"
	"syscall"

	"watchlab/bench/controller/record"
)

// OwnGroup starts a program in its own process group.
func OwnGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func awaitExit(int) {}

// RunChild does nothing: no process is started for [InCluster].
func RunChild() {}

func (*InCluster) enter(*exec.Cmd, string) (func() error, error) {
	return nil, inClusterError(errors.New("only Linux has mount namespaces"))
}

// Sample returns false: only Linux has /proc.
func (p *Program) Sample() (record.Sample, bool) { return record.Sample{}, false }

// ResetPeak is an error.
func (p *Program) ResetPeak() error { return errors.ErrUnsupported }
