package delivery

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// fileEnding is that of parcels in folders and stores.
const fileEnding = ".wlshard"

// Folder keeps parcels in files, <run>/<index>-of-<shards>-<id>.wlshard under it: for a
// volume that all shards mount, or for one machine. Files are written beside their
// place first, synced, and renamed, so that a file of that name is whole even if the
// machine fails.
type Folder string

// fileName is where a parcel stands in a folder or a store. The index has as many
// digits as the last one, so that names sort by it.
func fileName(p Parcel) string {
	return fmt.Sprintf("%s/%0*d-of-%d-%s%s", p.Run, len(fmt.Sprint(p.Of-1)), p.Index, p.Of, p.ID(), fileEnding)
}

func (f Folder) path(p Parcel) string {
	return filepath.Join(string(f), filepath.FromSlash(fileName(p)))
}

// Deliver implements [Sink].
func (f Folder) Deliver(_ context.Context, p Parcel) error {
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
		// CreateTemp lets nobody else read it, and the one who collects is somebody else.
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

// put writes a parcel that would be fetched again after a failure.
func (f Folder) put(p Parcel) error {
	path := f.path(p)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, p.Data, 0o644)
}

// syncDir makes a rename last.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	// Some file systems can't, and then there is nothing to be done.
	_ = dir.Sync()
	return dir.Close()
}

// Read implements [Reader]. Parcels are found at any depth.
func (f Folder) Read(ctx context.Context, run string, take func(Parcel) error) ([]Damage, error) {
	wanted := runs{asked: run}
	var damaged []Damage
	err := filepath.WalkDir(string(f), func(path string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || d.IsDir() || !strings.HasSuffix(path, fileEnding) {
			return err
		}
		p, why, err := readParcel(path)
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

// readParcel reads a file; why says why it isn't whole.
func readParcel(path string) (p Parcel, why string, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Parcel{}, "", err
	}
	if p, err = Decode(data); err != nil {
		why = err.Error()
	}
	return p, why, nil
}
