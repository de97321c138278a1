package apiserver

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// queued returns the bytes in the send queue of a socket: unsent ones, and sent ones that the receiver has
// not acknowledged.
func queued(c syscall.Conn) int64 {
	if c == nil {
		return 0
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	n := 0
	_ = raw.Control(func(fd uintptr) {
		if n, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); err != nil {
			n = 0
		}
	})
	return int64(n)
}
