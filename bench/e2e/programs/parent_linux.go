package programs

import "syscall"

// EndsWithParent makes the kernel kill a program when this process ends. It also puts
// the program into its own process group, so that Ctrl-C reaches this process alone.
func EndsWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
