package pprof

import (
	"bytes"
	"fmt"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/google/pprof/profile"
)

// blockRate is the waiting time per sample, in nanoseconds.
const blockRate = 10_000

// begin starts the profile of one kind.
func begin(k Kind) (stop func() (*profile.Profile, error), err error) {
	switch k {
	case CPU:
		return beginCPU()
	case Heap:
		return func() (*profile.Profile, error) {
			p, err := lookup(Heap)
			if err != nil {
				return nil, err
			}
			keepTypes(p, "inuse_")
			return p.Compact(), nil
		}, nil
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

// lookup reads one of the runtime's profiles; its name is the kind's.
func lookup(k Kind) (*profile.Profile, error) {
	if k == Heap || k == Allocs {
		runtime.GC() // Profiles of memory are as of the last collection.
	}
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
