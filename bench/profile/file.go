package profile

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/google/pprof/profile"
)

// ofMoment reports whether the kind shows one moment instead of a sum over time.
func ofMoment(k Kind) bool { return k == Heap || k == Goroutine }

// save writes a profile, together with that of the earlier plays.
func save(path string, k Kind, p *profile.Profile, cell string, play int) error {
	if play > 1 {
		before, err := read(path)
		if err != nil {
			return err
		}
		if !ofMoment(k) {
			if p, err = profile.Merge([]*profile.Profile{before, p}); err != nil {
				return err
			}
		} else if weight(before) > weight(p) {
			p = before
		}
	}
	if ofMoment(k) {
		play = 1
	}
	p.Comments = []string{cellComment + cell, playsComment + strconv.Itoa(play)}
	return writeFile(path, p)
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

var errFormat = errors.New("not a profile")

// read reads a file that save has written. Errors wrap errFormat or come from the file system.
func read(path string) (*profile.Profile, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // The file was only read.
	p, err := parse(file)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w: %w", path, errFormat, err)
	case len(p.SampleType) == 0:
		return nil, fmt.Errorf("%s: %w: it has no kind of sample", path, errFormat)
	}
	return p, nil
}

const maxProfile = 64 << 20 // bytes of a decompressed profile

func parse(file io.Reader) (p *profile.Profile, err error) {
	in, err := gzip.NewReader(file)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(in, maxProfile+1))
	if err == nil && len(data) > maxProfile {
		err = fmt.Errorf("more than %d MiB", maxProfile>>20)
	}
	if err == nil {
		p, err = profile.ParseUncompressed(data)
	}
	if err == nil {
		err = p.CheckValid()
	}
	return p, err
}
