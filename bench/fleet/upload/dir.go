package upload

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// fileEnding is the suffix of bundles in directories and stores.
const fileEnding = ".wlresult"

// Dir stores bundles as files <run>/<index>-of-<pods>-<id>.wlresult, on a volume that
// all pods mount or on one machine. It writes a temporary file, syncs it and renames
// it. So each file of that name is complete, even after a crash.
type Dir string

// fileName returns the path of a bundle in a directory or store. Indexes are
// zero-padded, so that names sort by index.
func fileName(p Bundle) string {
	return fmt.Sprintf("%s/%0*d-of-%d-%s%s", p.Run, len(fmt.Sprint(p.Of-1)), p.Index, p.Of, p.ID(), fileEnding)
}

func (f Dir) path(p Bundle) string {
	return filepath.Join(string(f), filepath.FromSlash(fileName(p)))
}

// Upload implements [Sink].
func (f Dir) Upload(_ context.Context, p Bundle) error {
	path := f.path(p)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".tmp-")
	if err != nil {
		return err
	}
	_, err = file.Write(p.Data)
	if err == nil {
		// CreateTemp restricts the mode; the collector may run as another user.
		err = file.Chmod(0o644)
	}
	if err == nil {
		err = file.Sync()
	}
	err = errors.Join(err, file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return syncDir(filepath.Dir(path))
}

// put writes a bundle to the spool without a sync: it can be fetched again.
func (f Dir) put(p Bundle) error {
	path := f.path(p)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, p.Data, 0o644)
}

// syncDir makes a rename durable.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	// Some file systems do not support syncing a directory.
	_ = dir.Sync()
	return dir.Close()
}

// Read implements [Reader]. It finds bundles at any depth.
func (f Dir) Read(ctx context.Context, run string, take func(Bundle) error) ([]Damage, error) {
	wanted := runs{asked: run}
	var damaged []Damage
	err := filepath.WalkDir(string(f), func(path string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || d.IsDir() || !strings.HasSuffix(path, fileEnding) {
			return err
		}
		p, why, err := readBundle(path)
		switch {
		case err != nil:
			return err
		case why != "":
			damaged = append(damaged, Damage{Where: path, Of: unknown(), Why: why})
			return nil
		}
		if !wanted.wants(p.Run) {
			return nil
		}
		if err := wanted.err(); err != nil {
			return err
		}
		return take(p)
	})
	return damaged, err
}

// readBundle reads a file. why is non-empty if the bundle is damaged.
func readBundle(path string) (p Bundle, why string, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Bundle{}, "", err
	}
	if p, err = Decode(data); err != nil {
		why = err.Error()
	}
	return p, why, nil
}
