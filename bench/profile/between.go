package profile

import (
	"bytes"
	"fmt"
	"runtime/pprof"
	"time"

	"github.com/google/pprof/profile"
)

// lookup reads one of the runtime's profiles; its name is the kind's.
func lookup(k Kind) (*profile.Profile, error) {
	var buf bytes.Buffer
	if err := pprof.Lookup(string(k)).WriteTo(&buf, 0); err != nil {
		return nil, err
	}
	return profile.Parse(&buf)
}

// between returns a profile of the activity from now until stop. The runtime only keeps
// sums since the start of the process, so between subtracts. on enables the runtime's
// sampling and returns the function that disables it.
func between(k Kind, on func() (off func())) (taking, error) {
	before, err := lookup(k)
	if err != nil {
		return taking{}, err
	}
	began := time.Now()
	off := on()
	var grown *profile.Profile
	return inMemory(k, &grown, func() error {
		off()
		after, err := lookup(k)
		if err != nil {
			return err
		}
		if grown, err = subtract(after, before); err != nil {
			return err
		}
		grown.TimeNanos, grown.DurationNanos = began.UnixNano(), int64(time.Since(began))
		if k == Allocs {
			return keepTypes(grown, "alloc_objects", "alloc_space")
		}
		return nil
	}), nil
}

// subtract returns the increase from before to after. The runtime estimates values by
// sampling, so the value of a stack may fall slightly. Such a stack counts as
// unchanged.
func subtract(after, before *profile.Profile) (*profile.Profile, error) {
	before.Scale(-1)
	sum, err := profile.Merge([]*profile.Profile{before, after})
	if err != nil {
		return nil, fmt.Errorf("before and after: %w", err)
	}
	// Merge adds the durations; the caller sets the right one.
	kept := sum.Sample[:0]
	for _, s := range sum.Sample {
		some := false
		for i, v := range s.Value {
			s.Value[i] = max(v, 0)
			some = some || v > 0
		}
		if some {
			kept = append(kept, s)
		}
	}
	sum.Sample = kept
	sum.DefaultSampleType, sum.PeriodType, sum.Period = after.DefaultSampleType, after.PeriodType, after.Period
	return sum.Compact(), nil
}

// keepTypes removes all other values from the samples.
func keepTypes(p *profile.Profile, names ...string) error {
	keep := make([]int, len(names))
	for i, name := range names {
		keep[i] = typeIndex(p, name)
		if keep[i] < 0 {
			return fmt.Errorf("the profile has no %s", name)
		}
	}
	types := make([]*profile.ValueType, len(keep))
	for i, k := range keep {
		types[i] = p.SampleType[k]
	}
	samples := p.Sample[:0]
	for _, s := range p.Sample {
		values := make([]int64, len(keep))
		some := false
		for i, k := range keep {
			values[i] = s.Value[k]
			some = some || values[i] != 0
		}
		if s.Value = values; some {
			samples = append(samples, s)
		}
	}
	p.SampleType, p.Sample, p.DefaultSampleType = types, samples, names[len(names)-1]
	return nil
}

func typeIndex(p *profile.Profile, name string) int {
	for i, t := range p.SampleType {
		if t.Type == name {
			return i
		}
	}
	return -1
}
