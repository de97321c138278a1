package lab

import (
	"bufio"
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// FileSystem has the operations that change a results folder.
type FileSystem interface {
	Mkdir(dir string) error
	Create(path string) (File, error) // truncates an existing file
	Rename(from, to string) error
	Remove(path string) error // removes a file, or a directory with its contents; a missing one is no error
	Sync(dir string) error    // makes the names in a directory durable
}

// File is a file in creation.
type File interface {
	io.WriteCloser
	Sync() error // makes the content durable
}

// Files is the file system of results folders. Tests replace it by one that fails.
var Files FileSystem = osFiles{}

type osFiles struct{}

func (osFiles) Mkdir(dir string) error       { return os.Mkdir(dir, 0o755) }
func (osFiles) Rename(from, to string) error { return os.Rename(from, to) }
func (osFiles) Remove(path string) error     { return os.RemoveAll(path) }
func (osFiles) Sync(dir string) error        { return syncDir(dir) }

// Create replaces a link, which in a folder from elsewhere may lead out of it.
func (osFiles) Create(path string) (File, error) {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	return os.Create(path)
}

// ReadFile reads a file of a results folder or a bundle. A folder from elsewhere may have pipes and links to
// devices, which have no end: they are errors.
func ReadFile(path string) ([]byte, error) {
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
	temp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmp")
	file, err := Files.Create(temp)
	if err != nil {
		return err
	}
	buffered := bufio.NewWriter(file)
	if err = cmp.Or(write(buffered), buffered.Flush()); err == nil {
		err = file.Sync()
	}
	if err = cmp.Or(err, file.Close()); err == nil {
		err = Files.Rename(temp, path)
	}
	if err != nil {
		_ = Files.Remove(temp) // The first error counts.
		return err
	}
	return Files.Sync(filepath.Dir(path))
}

// MakeDir creates a directory and its missing parents durably. For an existing directory the
// error wraps [fs.ErrExist].
func MakeDir(dir string) error {
	dir = filepath.Clean(dir)
	parent, err := filepath.Dir(dir), Files.Mkdir(dir)
	if errors.Is(err, fs.ErrNotExist) && parent != dir {
		if err = MakeDir(parent); err == nil || errors.Is(err, fs.ErrExist) {
			err = Files.Mkdir(dir)
		}
	}
	if err != nil {
		return err
	}
	return Files.Sync(parent)
}
