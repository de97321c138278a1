// Package pprof takes pprof profiles of cells and labels them by stage.
//
//  1. [With] labels a workload's goroutines with those of its cell; [Do] and
//     [Switch] add the stage. Without a profiler, labels cost almost nothing.
//  2. A [Profiler] starts the requested kinds. After the cell it writes one file per
//     kind. Profiling disturbs, so a profiled round yields no figures.
//
// The comments of a file are the cell's name and the number of plays. Only CPU and goroutine profiles have labels: the
// runtime records none for memory and locks. For an execution trace, ask the live page's server: /debug/pprof/trace.
package pprof

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/google/pprof/profile"

	"watchlab/bench/lab"
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
	// Kinds with a snapshot at the start begin before the CPU profile, which would otherwise see its cost.
	rank := map[Kind]int{CPU: 1}
	kinds = slices.SortedStableFunc(slices.Values(kinds), func(a, b Kind) int { return rank[a] - rank[b] })
	return &Profiler{dir: filepath.Join(results, Dir), kinds: kinds}
}

// Do calls f with the labels of a cell; see [Do].
func (p *Profiler) Do(ctx context.Context, family string, cell lab.Labels, f func(context.Context)) {
	Do(With(ctx, family, cell), "", f)
}

// Start begins to profile a cell. A file sums up successive plays of its cell. The heap is that of the last
// play.
//
// stop ends the profiles and writes their files. Call it once. All kinds run at the same time and
// measure each other's cost. For an exact profile, request only one kind.
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
	type running struct {
		kind Kind
		stop func() (*profile.Profile, error)
	}
	var started []running
	for _, k := range p.kinds {
		stop, err := begin(k)
		if err != nil {
			err = p.error(k, err)
			for _, r := range slices.Backward(started) {
				_, stopErr := r.stop()
				err = errors.Join(err, stopErr)
			}
			return nil, err
		}
		started = append(started, running{k, stop})
	}
	p.busy = true
	return func() error {
		p.busy = false
		p.plays++
		taken, errs := make([]*profile.Profile, len(started)), make([]error, len(started))
		for i, r := range slices.Backward(started) {
			taken[i], errs[i] = r.stop()
		}
		for i, r := range started {
			if errs[i] == nil {
				errs[i] = p.save(r.kind, taken[i])
			}
			errs[i] = p.error(r.kind, errs[i])
		}
		return errors.Join(errs...)
	}, nil
}

func (p *Profiler) error(k Kind, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s, %s profile: %w", p.cell, k, err)
}

// save writes the profile of a play, together with those of the cell's earlier plays.
func (p *Profiler) save(k Kind, taken *profile.Profile) error {
	plays, before := p.plays, p.taken[k]
	switch {
	case k == Heap:
		plays = 1
	case before != nil:
		var err error
		if taken, err = profile.Merge([]*profile.Profile{before, taken}); err != nil {
			return err
		}
	}
	p.taken[k] = taken
	taken.Comments = []string{"watchlab cell " + p.cell, "watchlab plays " + strconv.Itoa(plays)}
	return lab.ReplaceFile(filepath.Join(p.dir, k.FileName(p.cell)), func(w io.Writer) error { return taken.Write(w) })
}
