package lab

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// fileSystem has the operations that change a results folder.
type fileSystem interface {
	Mkdir(dir string) error
	Create(path string) (file, error) // truncates an existing file
	Rename(from, to string) error
	Remove(path string) error // removes a file, or a directory with its contents; a missing one is no error
	Sync(dir string) error    // makes the names in a directory durable
}

// file is a file in creation.
type file interface {
	io.WriteCloser
	Sync() error // makes the content durable
}

type osFiles struct{}

func (osFiles) Mkdir(dir string) error       { return os.Mkdir(dir, 0o755) }
func (osFiles) Rename(from, to string) error { return os.Rename(from, to) }
func (osFiles) Remove(path string) error     { return os.RemoveAll(path) }
func (osFiles) Sync(dir string) error        { return syncDir(dir) }

// Create replaces a link, which in a folder from elsewhere may lead out of it.
func (osFiles) Create(path string) (file, error) {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	return os.Create(path)
}

// readFile reads a file of a results folder. A folder from elsewhere may have pipes and links to
// devices, which have no end: they are errors.
func readFile(path string) ([]byte, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: path, Err: errors.New("it is no regular file")}
	}
	return os.ReadFile(path)
}

// ReplaceFile writes a file of a results folder atomically and durably: it writes a hidden file
// in the same directory, syncs it, renames it and syncs the directory. A reader always sees one
// whole version, even after a power cut. The hidden file's name is fixed: a run has its folder
// to itself, so a crash leaves at most one such file.
//
// The lab writes between plays. The sync also keeps the system from writing back during the next one.
func ReplaceFile(path string, write func(io.Writer) error) error {
	return replaceFile(osFiles{}, path, write)
}

// ReplaceFile is [ReplaceFile] for a file of the run's results folder.
func (o *Outcome) ReplaceFile(path string, write func(io.Writer) error) error {
	return replaceFile(o.disk(), path, write)
}

func replaceFile(disk fileSystem, path string, write func(io.Writer) error) error {
	temp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmp")
	f, err := disk.Create(temp)
	if err != nil {
		return err
	}
	buffered := bufio.NewWriter(f)
	if err = cmp.Or(write(buffered), buffered.Flush()); err == nil {
		err = f.Sync()
	}
	if err = cmp.Or(err, f.Close()); err == nil {
		err = disk.Rename(temp, path)
	}
	if err != nil {
		_ = disk.Remove(temp) // The first error counts.
		return err
	}
	return disk.Sync(filepath.Dir(path))
}

// MakeDir creates a directory and its missing parents durably. For an existing directory the
// error wraps [fs.ErrExist].
func MakeDir(dir string) error { return makeDir(osFiles{}, dir) }

func makeDir(disk fileSystem, dir string) error {
	dir = filepath.Clean(dir)
	parent, err := filepath.Dir(dir), disk.Mkdir(dir)
	if errors.Is(err, fs.ErrNotExist) && parent != dir {
		if err = makeDir(disk, parent); err == nil || errors.Is(err, fs.ErrExist) {
			err = disk.Mkdir(dir)
		}
	}
	if err != nil {
		return err
	}
	return disk.Sync(parent)
}

// OutFile is a new file that gets its name when it is complete.
type OutFile struct {
	*os.File
	path string
}

// NewOutFile creates a file, whose name has the suffix until [OutFile.Keep]. overwrite allows that path exists.
func NewOutFile(path, suffix string, overwrite bool) (*OutFile, error) {
	if info, err := os.Lstat(path); err == nil {
		switch {
		case info.IsDir():
			return nil, fmt.Errorf("%s is a directory", path)
		case !overwrite:
			return nil, fmt.Errorf("%s exists (--overwrite replaces it)", path)
		}
	}
	f, err := os.OpenFile(path+suffix, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		err = fmt.Errorf("%s exists: somebody is writing it, or was killed; move it away", path+suffix)
	}
	return &OutFile{f, path}, err
}

// Keep ends the file, and renames it durably.
func (f *OutFile) Keep() error {
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return cmp.Or(os.Rename(f.Name(), f.path), syncDir(filepath.Dir(f.path)))
}

// Discard removes the file.
func (f *OutFile) Discard() error { return errors.Join(f.Close(), os.Remove(f.Name())) }

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
// started meanwhile: it holds a copy of the descriptor between its fork and its exec. No file is no lock.
func unlockFolder(f *os.File) error {
	if f == nil {
		return nil
	}
	// An error is that of a file system without locks.
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
	return f.Close()
}

// syncDir makes the names in a directory durable.
func syncDir(path string) error {
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
