//go:build !linux

package programs

import "syscall"

// endsWithParent returns nil: only Linux has Pdeathsig.
func endsWithParent() *syscall.SysProcAttr { return nil }
