// Package profile takes pprof profiles of cells and labels them by stage.
//
//  1. [With] labels a workload's goroutines with [Labels]; [Do] and
//     [Switch] add the stage. Without a profiler, labels cost almost nothing.
//  2. A [Profiler] starts the requested kinds. After the cell it writes one file per
//     kind. Profiling disturbs, so a profiled round yields no figures.
//
// Files have pprof's format; execution traces are for go tool trace. The comments of a file are
// the cell's name and the number of plays. Only CPU and
// goroutine profiles have labels: the runtime records none for memory and locks.
package profile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/pprof/profile"
)

// ErrBusy is wrapped if another profile of the kind is running. A process has one of each kind.
var ErrBusy = errors.New("a profile is being taken already")

// Profiler takes the profiles of one cell at a time. It is not safe for concurrent use.
type Profiler struct {
	dir   string
	kinds []Kind // in the order of their start
	busy  bool
	cell  string
	plays int                       // number of profiled plays of the cell
	taken map[Kind]*profile.Profile // of these plays
}

// NewProfiler returns a profiler that writes the kinds into the [Dir] of a results
// folder. The results folder must exist when a profile starts.
func NewProfiler(results string, kinds []Kind) *Profiler {
	// Profiles with a snapshot at the start come before continuous ones, which would
	// otherwise see its cost.
	rank := map[Kind]int{Trace: 1, CPU: 2}
	kinds = slices.SortedStableFunc(slices.Values(kinds), func(a, b Kind) int { return rank[a] - rank[b] })
	return &Profiler{dir: filepath.Join(results, Dir), kinds: kinds}
}

// running is a running profile of one kind. stop ends it and returns the profile; an
// execution trace is in its hidden file instead.
type running struct {
	kind Kind
	path string
	stop func() (*profile.Profile, error)
}

// Start begins to profile a cell. A file sums up successive plays of its cell. Heap and goroutine files
// keep the play with the largest value, and the trace is that of the first play.
//
// stop ends the profiles and writes each file completely or not at all. Call it once. All kinds run
// at the same time and measure each other's cost. For an exact profile, request only one kind.
//
// Errors wrap [ErrBusy], or come from the file system or the runtime.
func (p *Profiler) Start(cell string) (stop func() error, err error) {
	if p.busy {
		return nil, fmt.Errorf("%s: %w", cell, ErrBusy)
	}
	// MkdirAll would recreate a deleted results folder.
	if err := os.Mkdir(p.dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%s: %w", cell, err)
	}
	if cell != p.cell {
		p.cell, p.plays, p.taken = cell, 0, map[Kind]*profile.Profile{}
	}
	var started []running
	for _, k := range p.kinds {
		if k == Trace && p.plays > 0 {
			continue
		}
		r := running{kind: k, path: filepath.Join(p.dir, k.FileName(cell))}
		if r.stop, err = begin(k, r.path); err != nil {
			err = fmt.Errorf("%s, %s profile: %w", cell, k, err)
			for _, r := range slices.Backward(started) {
				_, stopErr := r.stop()
				err = errors.Join(err, stopErr, os.RemoveAll(hidden(r.path)))
			}
			return nil, err
		}
		started = append(started, r)
	}
	p.busy = true
	return func() error {
		p.busy = false
		p.plays++
		return p.finish(started)
	}, nil
}

// finish stops all profiles, the last started first. Then it writes the files.
func (p *Profiler) finish(started []running) error {
	taken, errs := make([]*profile.Profile, len(started)), make([]error, len(started))
	for i, r := range slices.Backward(started) {
		taken[i], errs[i] = r.stop()
	}
	for i, r := range started {
		switch {
		case errs[i] != nil:
			errs[i] = errors.Join(errs[i], os.RemoveAll(hidden(r.path)))
		case r.kind == Trace:
			errs[i] = os.Rename(hidden(r.path), r.path)
		default:
			errs[i] = p.save(r.path, r.kind, taken[i])
		}
		if errs[i] != nil {
			errs[i] = fmt.Errorf("%s, %s profile: %w", p.cell, r.kind, errs[i])
		}
	}
	return errors.Join(errs...)
}
