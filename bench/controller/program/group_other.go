//go:build !linux

package program

import "syscall"

// ownGroup starts a program in its own process group.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func awaitExit(int) {}
