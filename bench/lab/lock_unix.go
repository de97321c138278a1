//go:build unix

package lab

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lockFolder locks the folder for this process. The lock ends when the file is closed
// or the process ends, even if it is killed.
func lockFolder(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errors.Join(fmt.Errorf("results folder %s: %w: a run is writing to it", dir, ErrResume), f.Close())
	}
	// Other errors are ignored: the file system has no locks.
	return f, nil
}

// SyncDir makes the names in a directory durable.
func SyncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	// Some file systems cannot sync a directory.
	if err = dir.Sync(); errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		err = nil
	}
	return errors.Join(err, dir.Close())
}
