//go:build !linux

package controlplane

import "syscall"

func endsWithParent() *syscall.SysProcAttr { return nil }
