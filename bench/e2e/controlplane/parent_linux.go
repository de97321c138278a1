package controlplane

import "syscall"

// endsWithParent has a program killed when this one ends in whatever way, and
// keeps a terminal's Ctrl-C from it: it is stopped in its turn.
func endsWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
