package profile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/pprof/profile"
)

// inMemory is what is taken as a profile and written when it has ended; it stands at
// p by then.
func inMemory(k Kind, p **profile.Profile, stop func() error) taking {
	return taking{
		kind: k, stop: stop,
		write:   func(path, cell string) error { return writeFile(path, cell, *p) },
		discard: func() error { return nil },
	}
}

// cellComment stands before the cell's name among the comments of a file.
const cellComment = "watchlab cell "

// writeFile writes a profile whole or not at all.
func writeFile(path, cell string, p *profile.Profile) error {
	p.Comments = append(p.Comments, cellComment+cell)
	file, err := os.Create(hidden(path))
	if err != nil {
		return err
	}
	err = errors.Join(p.Write(file), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}

// hidden is the neighbour that a file is written into before it takes its name.
func hidden(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmp")
}

// ErrFormat is wrapped by the errors for files that aren't profiles.
var ErrFormat = errors.New("not a profile")

// Source is a profile that was read.
type Source struct {
	// Name says what it is of, as tables show it.
	Name string
	// Cell is the cell that was profiled, as a [Profiler] noted it; empty in other
	// files.
	Cell string
	// Events is how many events the cell played, where that is known: values are then
	// shown per event. 0 where it isn't: they are then shares of all.
	Events  float64
	profile *profile.Profile
}

// Read reads a file in pprof's format, of a [Profiler] or any other Go program.
func Read(path string) (*Source, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // It was only read.
	p, err := profile.Parse(file)
	switch {
	case err != nil && strings.HasSuffix(path, ".trace"):
		return nil, fmt.Errorf("%s: %w: it is for go tool trace", path, ErrFormat)
	case err != nil:
		return nil, fmt.Errorf("%s: %w: %w", path, ErrFormat, err)
	case len(p.SampleType) == 0:
		return nil, fmt.Errorf("%s: %w: it has no kind of sample", path, ErrFormat)
	}
	s := &Source{Name: path, profile: p}
	for _, c := range p.Comments {
		if cell, ok := strings.CutPrefix(c, cellComment); ok {
			s.Cell = cell
		}
	}
	return s, nil
}
