package profile

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"slices"

	"github.com/google/pprof/profile"
)

// ErrBusy is wrapped if another profile of the kind is running. A process has one of
// each kind.
var ErrBusy = errors.New("a profile is being taken already")

// Profiler takes the profiles of one cell at a time. It is not safe for concurrent use.
type Profiler struct {
	dir   string
	kinds []Kind
	busy  bool
	plays map[string]int // number of profiled plays by cell
}

// NewProfiler returns a profiler that writes the kinds into the [Dir] of a results
// folder. The results folder must exist when a profile starts.
func NewProfiler(results string, kinds []Kind) *Profiler {
	return &Profiler{dir: filepath.Join(results, Dir), kinds: slices.Clone(kinds), plays: map[string]int{}}
}

// blockRate is the waiting time per sample, in nanoseconds.
const blockRate = 10_000

// taking is a running profile of one kind. stop ends it; then write saves it or discard
// drops it.
type taking struct {
	kind    Kind
	stop    func() error
	write   func(path string, of play) error
	discard func() error
}

// play identifies one profiled play of a cell.
type play struct {
	cell string
	n    int // from 1
}

// Start begins to profile a cell. A file sums up all plays of its cell. Heap and
// goroutine files keep the play with the largest value, and the trace is that of the
// first play.
//
// stop ends the profiles and writes each file completely or not at all. Call it once.
// All kinds run at the same time and measure each other's cost. For an exact profile,
// request only one kind.
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
	var running []taking
	for _, k := range p.order(cell) {
		t, err := p.begin(k, cell)
		if err != nil {
			err = fmt.Errorf("%s, %s profile: %w", cell, k, err)
			for _, t := range slices.Backward(running) {
				err = errors.Join(err, t.stop(), t.discard())
			}
			return nil, err
		}
		running = append(running, t)
	}
	p.busy = true
	return func() error {
		p.busy = false
		return p.finish(cell, running)
	}, nil
}

// finish stops all profiles, the last started first. Then it writes the files.
func (p *Profiler) finish(cell string, running []taking) error {
	var all error
	failed := func(t taking, err error) bool {
		if err != nil {
			all = errors.Join(all, fmt.Errorf("%s, %s profile: %w", cell, t.kind, err))
		}
		return err != nil
	}
	var whole []taking
	for _, t := range slices.Backward(running) {
		if failed(t, t.stop()) {
			failed(t, t.discard())
			continue
		}
		whole = append(whole, t)
	}
	p.plays[cell]++
	for _, t := range whole {
		failed(t, t.write(filepath.Join(p.dir, t.kind.FileName(cell)), play{cell, p.plays[cell]}))
	}
	return all
}

// order returns the kinds in the order of their start. Profiles with a snapshot at the
// start come before continuous ones, which would otherwise see its cost.
func (p *Profiler) order(cell string) []Kind {
	kinds := slices.Clone(p.kinds)
	if p.plays[cell] > 0 {
		kinds = slices.DeleteFunc(kinds, func(k Kind) bool { return k == Trace })
	}
	rank := map[Kind]int{Trace: 1, CPU: 2}
	slices.SortStableFunc(kinds, func(a, b Kind) int { return rank[a] - rank[b] })
	return kinds
}

// begin starts the profile of one kind.
func (p *Profiler) begin(k Kind, cell string) (taking, error) {
	switch k {
	case CPU:
		return beginCPU()
	case Trace:
		return beginTrace(filepath.Join(p.dir, k.FileName(cell)))
	case Heap:
		return atHeight(k, new(heap)), nil
	case Goroutine:
		return atHeight(k, goroutines{}), nil
	case Allocs:
		return between(k, func() func() { return func() {} })
	case Mutex:
		return between(k, func() func() {
			before := runtime.SetMutexProfileFraction(1)
			return func() { runtime.SetMutexProfileFraction(before) }
		})
	case Block:
		return between(k, func() func() {
			runtime.SetBlockProfileRate(blockRate)
			return func() { runtime.SetBlockProfileRate(0) }
		})
	}
	return taking{}, fmt.Errorf("%w %q", ErrKind, k)
}

func beginCPU() (taking, error) {
	var buf bytes.Buffer
	if err := pprof.StartCPUProfile(&buf); err != nil {
		return taking{}, fmt.Errorf("%w: %w", ErrBusy, err)
	}
	var kept *profile.Profile
	return inMemory(CPU, &kept, func() (err error) {
		pprof.StopCPUProfile()
		kept, err = profile.Parse(&buf)
		return err
	}), nil
}

// beginTrace writes directly into a hidden file: a trace does not fit in memory.
func beginTrace(path string) (taking, error) {
	file, err := os.Create(hidden(path))
	if err != nil {
		return taking{}, err
	}
	if err := trace.Start(file); err != nil {
		return taking{}, errors.Join(fmt.Errorf("%w: %w", ErrBusy, err), file.Close(), os.Remove(file.Name()))
	}
	return taking{
		kind:    Trace,
		stop:    func() error { trace.Stop(); return file.Close() },
		write:   func(path string, _ play) error { return os.Rename(file.Name(), path) },
		discard: func() error { return os.Remove(file.Name()) },
	}, nil
}
