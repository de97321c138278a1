//go:build !unix

package program

import (
	"os"
	"syscall"
)

// ownGroup returns nil: only Unix has process groups.
func ownGroup() *syscall.SysProcAttr { return nil }

func awaitExit(id int) {
	if p, err := os.FindProcess(id); err == nil {
		_, _ = p.Wait()
	}
}

func killGroup(id int) {
	if p, err := os.FindProcess(id); err == nil {
		_ = p.Kill()
	}
}

func terminateGroup(id int) { killGroup(id) }
