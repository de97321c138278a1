package programs

import "syscall"

// endsWithParent makes the kernel kill a program when this process ends. It also puts
// the program into its own process group, so that Ctrl-C reaches this process alone.
func endsWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
