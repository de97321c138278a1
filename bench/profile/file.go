package profile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/google/pprof/profile"
)

// inMemory is what is taken as a profile and written when it has ended; it stands at
// p by then.
func inMemory(k Kind, p **profile.Profile, stop func() error) taking {
	return taking{
		kind: k, stop: stop,
		write: func(path string, of play) error {
			whole, err := addTo(path, k, *p, of)
			if err != nil {
				return err
			}
			if ofMoment(k) {
				of.n = 1
			}
			return writeFile(path, whole, of)
		},
		discard: func() error { return nil },
	}
}

// ofMoment: the profile tells of a moment, not of all that happened.
func ofMoment(k Kind) bool { return k == Heap || k == Goroutine }

// addTo adds what was taken to what stands in the file of the plays before.
func addTo(path string, k Kind, p *profile.Profile, of play) (*profile.Profile, error) {
	if of.n == 1 {
		return p, nil
	}
	before, err := Read(path)
	if err != nil {
		return nil, err
	}
	if !ofMoment(k) {
		return profile.Merge([]*profile.Profile{before.profile, p})
	}
	last := len(p.SampleType) - 1
	if weigh(before.profile, last) > weigh(p, last) {
		return before.profile, nil
	}
	return p, nil
}

// What stands before the cell's name, and before the number of plays, among the
// comments of a file.
const (
	cellComment  = "watchlab cell "
	playsComment = "watchlab plays "
)

// writeFile writes a profile whole or not at all.
func writeFile(path string, p *profile.Profile, of play) error {
	p.Comments = []string{cellComment + of.cell, playsComment + strconv.Itoa(of.n)}
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
	Name string

	Cell string

	Plays int

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
	s := &Source{Name: path, Plays: 1, profile: p}
	for _, c := range p.Comments {
		if cell, ok := strings.CutPrefix(c, cellComment); ok {
			s.Cell = cell
		}
		if n, ok := strings.CutPrefix(c, playsComment); ok {
			if plays, err := strconv.Atoi(n); err == nil && plays > 0 {
				s.Plays = plays
			}
		}
	}
	return s, nil
}
