//go:build unix

package lab

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lockFolder takes the folder for this process, until the file is closed or the
// process ends, however it does.
func lockFolder(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errors.Join(fmt.Errorf("results folder %s: %w: a run is writing to it", dir, ErrResume), f.Close())
	}
	// A file system that has no locks is taken as it is.
	return f, nil
}
