//go:build !linux

package programs

import "syscall"

// EndsWithParent returns nil: only Linux has Pdeathsig.
func EndsWithParent() *syscall.SysProcAttr { return nil }
