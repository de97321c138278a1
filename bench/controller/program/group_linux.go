package program

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// OwnGroup starts a program in its own process group, which ends with this process.
func OwnGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitExit waits for the end of a child, whose id stays in use until it is waited for.
func awaitExit(pid int) {
	for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
}
