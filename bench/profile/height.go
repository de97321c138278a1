package profile

import (
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"time"

	"github.com/google/pprof/profile"
)

// lookEvery is the polling interval of a level.
const lookEvery = 10 * time.Millisecond

// level takes profiles of a quantity and weighs them.
type level interface {
	// due reports whether a new profile may exceed highest, the weight of the heaviest
	// profile so far. Taking one costs milliseconds.
	due(highest uint64) bool
	// take takes a profile and returns its weight.
	take() (p *profile.Profile, weight uint64, err error)
}

// atHeight takes profiles until stop and keeps the heaviest. It takes at least one, at
// the end.
func atHeight(k Kind, l level) taking {
	var (
		quit    atomic.Bool
		done    = make(chan struct{})
		highest uint64
		kept    *profile.Profile
		failed  error
	)
	look := func() {
		if kept != nil && !l.due(highest) {
			return
		}
		p, weight, err := l.take()
		if err != nil {
			failed = err
			return
		}
		if kept == nil || weight > highest {
			highest, kept, failed = weight, p, nil
		}
	}
	go func() {
		defer close(done)
		for !quit.Load() {
			look()
			time.Sleep(lookEvery)
		}
	}()
	return inMemory(k, &kept, func() error {
		quit.Store(true)
		<-done
		look()
		return failed
	})
}

// goroutines weighs a profile by the number of goroutines.
type goroutines struct{}

func (goroutines) due(highest uint64) bool {
	const growth = 1.1 // the runtime stops the world for the profile
	return float64(runtime.NumGoroutine()) > growth*float64(highest)
}

func (goroutines) take() (*profile.Profile, uint64, error) {
	p, err := lookup(Goroutine)
	if err != nil {
		return nil, 0, err
	}
	return p, weigh(p, 0), nil
}

// heap weighs a profile by the live bytes. The runtime's profile shows the collection
// before the last, so the end of each collection makes a new one due.
type heap struct{ cycles, live, before uint64 }

// due reports whether a collection has ended and the live heap may be a new maximum.
func (h *heap) due(highest uint64) bool {
	sample := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	for _, s := range sample {
		if s.Value.Kind() != metrics.KindUint64 {
			return false
		}
	}
	cycles, live := sample[0].Value.Uint64(), sample[1].Value.Uint64()
	if cycles == h.cycles {
		return false
	}
	h.cycles, h.live, h.before = cycles, live, h.live
	// The profile's weight is an estimate from samples: a slightly smaller heap may
	// weigh more.
	const nearly = 0.9
	return float64(max(h.live, h.before)) > nearly*float64(highest)
}

func (*heap) take() (*profile.Profile, uint64, error) {
	p, err := lookup(Heap)
	if err != nil {
		return nil, 0, err
	}
	if err := keepTypes(p, "inuse_objects", "inuse_space"); err != nil {
		return nil, 0, err
	}
	return p, weigh(p, 1), nil
}

// weigh returns the sum of one value over the samples.
func weigh(p *profile.Profile, value int) uint64 {
	var sum int64
	for _, s := range p.Sample {
		sum += s.Value[value]
	}
	return uint64(max(sum, 0))
}
