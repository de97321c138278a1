//go:build !linux

package programs

import "syscall"

// EndsWithParent does nothing: only Linux can do this.
func EndsWithParent() *syscall.SysProcAttr { return nil }
