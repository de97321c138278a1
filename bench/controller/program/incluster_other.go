//go:build !linux

package program

import (
	"errors"
	"os/exec"
)

// RunChild does nothing: no process is started for [InCluster].
func RunChild() {}

func (*InCluster) enter(*exec.Cmd, string) (func() error, error) {
	return nil, inClusterError(errors.New("only Linux has mount namespaces"))
}
