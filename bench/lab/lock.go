package lab

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lockFolder locks the folder for this process, until unlockFolder or the end of the
// process, even if it is killed.
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

// unlockFolder ends the lock at once. Closing alone leaves it to a process that is being
// started meanwhile: it holds a copy of the descriptor between its fork and its exec.
func unlockFolder(f *os.File) error {
	// An error is that of a file system without locks.
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
	return f.Close()
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
