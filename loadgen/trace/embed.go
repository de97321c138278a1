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

//go:embed recorded/*.jsonl.gz
var recorded embed.FS

const suffix = ".jsonl.gz"

func recordedNames() []string {
	entries, err := fs.ReadDir(recorded, "recorded")
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), suffix))
	}
	slices.Sort(names)
	return names
}

// open finds a recording; a name goes before a path.
func open(nameOrPath string) (io.ReadCloser, error) {
	names := recordedNames()
	if slices.Contains(names, nameOrPath) {
		return recorded.Open("recorded/" + nameOrPath + suffix)
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
