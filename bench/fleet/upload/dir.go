package upload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"watchlab/bench/lab"
)

const fileEnding = ".wlresult" // suffix of bundles in directories and stores

// fileName is the path in a directory or store. Indexes are zero-padded, so that names sort.
func fileName(p Bundle) string {
	return fmt.Sprintf("%s/%0*d-of-%d-%s%s", p.Run, len(fmt.Sprint(p.Of-1)), p.Index, p.Of, p.ID(), fileEnding)
}

// Dir stores bundles as files <run>/<index>-of-<pods>-<id>.wlresult, on a volume that all pods
// mount or on one machine. Each file of that name is complete, even after a crash.
type Dir string

// create creates the directory of a bundle's file and returns its path.
func (f Dir) create(p Bundle) (string, error) {
	path := filepath.Join(string(f), filepath.FromSlash(fileName(p)))
	err := lab.MakeDir(filepath.Dir(path))
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	return path, err
}

// Upload implements [Sink].
func (f Dir) Upload(_ context.Context, p Bundle) error {
	path, err := f.create(p)
	if err != nil {
		return err
	}
	return lab.ReplaceFile(path, func(w io.Writer) error {
		_, err := w.Write(p.Data)
		return err
	})
}

// Read implements [Reader]. It finds bundles at any depth.
func (f Dir) Read(ctx context.Context, run string, take func(Bundle) error) ([]Damage, error) {
	r := newReceiver(run, take)
	err := filepath.WalkDir(string(f), func(path string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || d.IsDir() || !strings.HasSuffix(path, fileEnding) {
			return err
		}
		data, err := lab.ReadFile(path)
		if err != nil {
			return err
		}
		return r.whole(path, data)
	})
	return r.unrepaired(), err
}
