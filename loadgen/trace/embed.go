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

	"watchlab/loadgen/manifest"
	"watchlab/loadgen/storm"
)

//go:embed recorded/*.jsonl.zst
var recorded embed.FS

const (
	folder = "recorded"
	prefix = "recorded-" // separates the names of recordings from those of profiles
)

// Names returns the names of the built-in recordings, sorted, such as recorded-nodeloss.
func Names() []string {
	names := manifest.BuiltIn(recorded, folder+"/*")
	for i := range names {
		names[i] = prefix + names[i]
	}
	slices.Sort(names)
	return names
}

// Open opens a built-in recording by name, or a file by path; a name takes precedence. A file
// implements io.Seeker. The error for a missing file wraps [fs.ErrNotExist] and lists the names.
func Open(nameOrPath string) (io.ReadCloser, error) {
	if slices.Contains(Names(), nameOrPath) {
		return recorded.Open(folder + "/" + strings.TrimPrefix(nameOrPath, prefix) + ".jsonl.zst")
	}
	f, err := os.Open(nameOrPath)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("trace %s: %w (a path, or one of %s)", storm.Printable(nameOrPath), fs.ErrNotExist, strings.Join(Names(), ", "))
	case err != nil:
		return nil, fmt.Errorf("trace %s: %w", storm.Printable(nameOrPath), manifest.Plain(err))
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = errors.New("is a directory")
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("trace %s: %w", storm.Printable(nameOrPath), manifest.Plain(err))
	}
	return f, nil
}
