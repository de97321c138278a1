//go:build unix && !linux

package program

import "syscall"

// ownGroup starts a program in its own process group.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func awaitExit(int) {}

func killGroup(id int) { _ = syscall.Kill(-id, syscall.SIGKILL) }

func terminateGroup(id int) { _ = syscall.Kill(-id, syscall.SIGTERM) }
