package profile

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/google/pprof/profile"
)

// ofMoment reports whether the kind shows one moment instead of a sum over time.
func ofMoment(k Kind) bool { return k == Heap || k == Goroutine }

// save writes a profile, together with that of the earlier plays.
func save(path string, k Kind, p *profile.Profile, cell string, play int) error {
	if play > 1 {
		before, err := Read(path)
		if err != nil {
			return err
		}
		if !ofMoment(k) {
			if p, err = profile.Merge([]*profile.Profile{before.profile, p}); err != nil {
				return err
			}
		} else if weight(before.profile) > weight(p) {
			p = before.profile
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

// ErrFormat is wrapped by the errors for files that are not profiles.
var ErrFormat = errors.New("not a profile")

// Source is a profile that [Read] has read.
type Source struct {
	Name    string  // appears in messages; Read sets it to the path
	Cell    string  // the cell's name; empty for a file of another program
	Plays   int     // number of plays in the file, at least 1
	Events  float64 // number of events in all plays, set by the caller for figures per event; 0 if unknown
	profile *profile.Profile
}

// Read reads a file in pprof's format, from a [Profiler] or any other Go program.
// Errors wrap [ErrFormat] or come from the file system.
func Read(path string) (*Source, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // The file was only read.
	p, err := parse(file)
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

// String names the source and says what its values are of.
func (s *Source) String() string {
	if s.Events > 0 {
		return fmt.Sprintf("%s, values of %d events", s.Name, PerEvents)
	}
	return s.Name
}

// PerEvents is the number of events that [Source.WritePerEvent] scales to. pprof stores
// integers, and a function may need less than a nanosecond per event.
const PerEvents = 1_000_000

// WritePerEvent writes the profile with values per [PerEvents] events. go tool pprof -diff_base can
// then compare runs of different lengths. Values of one moment, such as the live heap, are not
// scaled. Neither is a profile with unknown Events. The source does not change.
func (s *Source) WritePerEvent(path string) error {
	p := s.profile.Copy()
	if s.Events > 0 {
		ratios := make([]float64, len(p.SampleType))
		for i, kind := range p.SampleType {
			ratios[i] = PerEvents / s.Events
			if atMoment(kind) {
				ratios[i] = 1
			}
		}
		if err := p.ScaleN(ratios); err != nil { // It also drops the empty samples.
			return err
		}
		// The duration does not apply to the scaled values.
		p.DurationNanos = 0
		p.Comments = append(p.Comments, fmt.Sprintf("watchlab: values are per %d events", PerEvents))
	}
	return writeFile(path, p)
}

// atMoment reports whether a value is of one moment, such as the live heap. Such values
// do not grow with the number of events.
func atMoment(kind *profile.ValueType) bool {
	return strings.HasPrefix(kind.Type, "inuse_") || kind.Type == "goroutine"
}
