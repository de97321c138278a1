package programs

import "syscall"

// EndsWithParent makes the kernel kill a program when this process ends, and gives
// the program a process group of its own: Ctrl-C reaches this process alone.
func EndsWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
