package profile

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/metrics"
	"runtime/pprof"
	"runtime/trace"
	"slices"
	"strings"
	"time"

	"github.com/google/pprof/profile"
)

const (
	// blockRate is the waiting time per sample, in nanoseconds.
	blockRate = 10_000
	// pollEvery is the polling interval of [peak].
	pollEvery = 10 * time.Millisecond
)

// begin starts the profile of one kind. A trace goes into the hidden file of path.
func begin(k Kind, path string) (stop func() (*profile.Profile, error), err error) {
	switch k {
	case CPU:
		return beginCPU()
	case Trace:
		return beginTrace(path)
	case Heap:
		return peak(new(heapLevel).due, func() (*profile.Profile, error) {
			p, err := lookup(Heap)
			if err != nil {
				return nil, err
			}
			keepTypes(p, "inuse_")
			return p.Compact(), nil
		}), nil
	case Goroutine:
		return peak(func(highest int64) bool {
			const growth = 1.1 // the runtime stops the world for the profile
			return float64(runtime.NumGoroutine()) > growth*float64(highest)
		}, func() (*profile.Profile, error) { return lookup(Goroutine) }), nil
	case Allocs:
		return between(k, func() {}, func() {})
	case Mutex:
		var before int
		return between(k, func() { before = runtime.SetMutexProfileFraction(1) }, func() { runtime.SetMutexProfileFraction(before) })
	case Block:
		return between(k, func() { runtime.SetBlockProfileRate(blockRate) }, func() { runtime.SetBlockProfileRate(0) })
	}
	return nil, fmt.Errorf("%w %q", ErrKind, k)
}

func beginCPU() (func() (*profile.Profile, error), error) {
	var buf bytes.Buffer
	if err := pprof.StartCPUProfile(&buf); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBusy, err)
	}
	return func() (*profile.Profile, error) {
		pprof.StopCPUProfile()
		return profile.Parse(&buf)
	}, nil
}

// beginTrace writes directly into a hidden file: a trace does not fit in memory.
func beginTrace(path string) (func() (*profile.Profile, error), error) {
	file, err := os.Create(hidden(path))
	if err != nil {
		return nil, err
	}
	if err := trace.Start(file); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrBusy, err), file.Close(), os.Remove(file.Name()))
	}
	return func() (*profile.Profile, error) {
		trace.Stop()
		return nil, errors.Join(file.Sync(), file.Close())
	}, nil
}

// lookup reads one of the runtime's profiles; its name is the kind's.
func lookup(k Kind) (*profile.Profile, error) {
	var buf bytes.Buffer
	if err := pprof.Lookup(string(k)).WriteTo(&buf, 0); err != nil {
		return nil, err
	}
	return profile.Parse(&buf)
}

// between returns a profile of the activity from now until stop. The runtime only keeps sums since
// the start of the process, so between subtracts. on and off switch the runtime's sampling.
func between(k Kind, on, off func()) (func() (*profile.Profile, error), error) {
	before, err := lookup(k)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	on()
	return func() (*profile.Profile, error) {
		off()
		after, err := lookup(k)
		if err != nil {
			return nil, err
		}
		before.Scale(-1)
		p, err := profile.Merge([]*profile.Profile{before, after})
		if err != nil {
			return nil, fmt.Errorf("before and after: %w", err)
		}
		// The runtime estimates values by sampling, so the value of a stack may fall
		// slightly. Such a stack counts as unchanged.
		for _, s := range p.Sample {
			for i, v := range s.Value {
				s.Value[i] = max(v, 0)
			}
		}
		if k == Allocs {
			keepTypes(p, "alloc_")
		}
		// Merge adds the durations of both.
		p.TimeNanos, p.DurationNanos = began.UnixNano(), int64(time.Since(began))
		return p.Compact(), nil // without the samples whose values are all 0
	}, nil
}

// keepTypes keeps the values of the types with the prefix; the runtime lists them one
// after the other. The last one is the default.
func keepTypes(p *profile.Profile, prefix string) {
	has := func(t *profile.ValueType) bool { return strings.HasPrefix(t.Type, prefix) }
	from := max(slices.IndexFunc(p.SampleType, has), 0)
	p.SampleType = slices.DeleteFunc(p.SampleType, func(t *profile.ValueType) bool { return !has(t) })
	for _, s := range p.Sample {
		s.Value = s.Value[from : from+len(p.SampleType)]
	}
	p.DefaultSampleType = p.SampleType[len(p.SampleType)-1].Type
}

// peak takes profiles until stop and keeps the heaviest by weight. It takes at least
// one, at the end. due reports whether a new profile may exceed the highest weight so
// far: taking one costs milliseconds.
func peak(due func(highest int64) bool, take func() (*profile.Profile, error)) (stop func() (*profile.Profile, error)) {
	var (
		kept    *profile.Profile
		highest int64
		failed  error
	)
	poll := func() {
		if kept != nil && !due(highest) {
			return
		}
		p, err := take()
		if err != nil {
			failed = err
		} else if w := weight(p); kept == nil || w > highest {
			kept, highest, failed = p, w, nil
		}
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(pollEvery)
		defer tick.Stop()
		for {
			poll()
			select {
			case <-tick.C:
			case <-quit:
				return
			}
		}
	}()
	return func() (*profile.Profile, error) {
		close(quit)
		<-done
		poll()
		return kept, failed
	}
}

// weight returns the sum of the last value over the samples: the live bytes of a heap
// profile, the number of goroutines.
func weight(p *profile.Profile) (sum int64) {
	for _, s := range p.Sample {
		sum += s.Value[len(s.Value)-1]
	}
	return sum
}

// heapLevel follows the live heap. The runtime's profile shows the collection before
// the last, so the end of each collection makes a new one due.
type heapLevel struct{ cycles, live, before uint64 }

// due reports whether a collection has ended and the live heap may be a new maximum.
func (h *heapLevel) due(highest int64) bool {
	sample := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	cycles, live := sample[0].Value.Uint64(), sample[1].Value.Uint64()
	if cycles == h.cycles {
		return false
	}
	h.cycles, h.live, h.before = cycles, live, h.live
	// The profile's weight is an estimate from samples: a slightly smaller heap may weigh more.
	const nearly = 0.9
	return float64(max(h.live, h.before)) > nearly*float64(highest)
}
