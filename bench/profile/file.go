package profile

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"github.com/google/pprof/profile"
)

// ofMoment reports whether the kind shows one moment instead of a sum over time.
func ofMoment(k Kind) bool { return k == Heap || k == Goroutine }

// save writes the profile of a play, together with those of the cell's earlier plays.
func (p *Profiler) save(path string, k Kind, taken *profile.Profile) error {
	plays := p.plays
	before := p.taken[k]
	switch {
	case ofMoment(k):
		if plays = 1; before != nil && weight(before) > weight(taken) {
			taken = before
		}
	case before != nil:
		var err error
		if taken, err = profile.Merge([]*profile.Profile{before, taken}); err != nil {
			return err
		}
	}
	p.taken[k] = taken
	taken.Comments = []string{cellComment + p.cell, playsComment + strconv.Itoa(plays)}
	return writeFile(path, taken)
}

// The prefixes of a file's comments. The cell's name and the number of plays follow them.
const (
	cellComment  = "watchlab cell "
	playsComment = "watchlab plays "
)

// writeFile writes a profile completely or not at all.
func writeFile(path string, p *profile.Profile) error {
	file, err := os.Create(hidden(path))
	if err != nil {
		return err
	}
	err = errors.Join(p.Write(file), file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}

// hidden is the temporary file beside path; writeFile renames it.
func hidden(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmp")
}
