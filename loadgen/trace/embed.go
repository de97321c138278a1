package trace

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
)

//go:embed recorded/*.jsonl.gz recorded/*.wlt
var recorded embed.FS

const (
	folder = "recorded"
	// prefix keeps the names of recordings apart from those of profiles, some of
	// which generate what was recorded here.
	prefix = "recorded-"
)

// nameOf is the name of a recording by that of its file.
func nameOf(e fs.DirEntry) string {
	name, _, _ := strings.Cut(e.Name(), ".")
	return prefix + name
}

func recordedNames() []string {
	entries, err := fs.ReadDir(recorded, folder)
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, nameOf(e))
	}
	slices.Sort(names)
	return names
}

// Open opens a recording: one of those that are built in, by name, or a file, by
// path; where both fit, it is the name. A file can be sought. The error for one
// that isn't there wraps [fs.ErrNotExist] and lists the names.
func Open(nameOrPath string) (io.ReadCloser, error) {
	names := recordedNames()
	if slices.Contains(names, nameOrPath) {
		entries, err := fs.ReadDir(recorded, folder)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(entries, func(e fs.DirEntry) bool { return nameOf(e) == nameOrPath })
		return recorded.Open(folder + "/" + entries[i].Name())
	}
	f, err := os.Open(nameOrPath)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("trace %s: %w (a path, or one of %s)", printable(nameOrPath), fs.ErrNotExist, strings.Join(names, ", "))
	case err != nil:
		return nil, openError(nameOrPath, err)
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = errors.New("is a directory")
	}
	if err != nil {
		_ = f.Close()
		return nil, openError(nameOrPath, err)
	}
	return f, nil
}

// openError leaves out the path, which os repeats.
func openError(name string, err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	return fmt.Errorf("trace %s: %w", printable(name), err)
}
