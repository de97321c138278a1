package ring

import (
	"math"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestYieldOfFastProducer: the consumer of many deltas asks for no yield until they are as old as those
// of a slow producer.
func TestYieldOfFastProducer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var y Yielder
		y.Init()
		state := func(taken int) uint32 {
			y.Took(taken)
			y.Asleep()
			defer y.Awake()
			return y.state.Load()
		}
		const fast = int(burst/slowDelta) + 1
		for _, step := range []struct {
			after time.Duration
			taken int
			want  uint32
		}{{burst, 0, sleeping}, {0, fast, running}, {slowDelta - 1, 0, running}, {1, 0, sleeping}, {slowDelta, 1, sleeping}} {
			time.Sleep(step.after)
			if got := state(step.taken); got != step.want {
				t.Errorf("%v later, %d deltas: state %d, want %d", step.after, step.taken, got, step.want)
			}
		}
		if y.state.Load() != running {
			t.Error("the state of a consumer that runs is not running")
		}
	})
}

// TestYieldReadsNoClock: the consumer of a much faster producer reads no clock for some sleeps, and then
// sees that time has passed.
func TestYieldReadsNoClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var y Yielder
		y.Init()
		y.Took(int(2 * farAhead / slowDelta))
		y.Asleep()
		time.Sleep(3 * farAhead)
		for n := range clockless + 1 {
			y.Asleep()
			if got, want := y.state.Load() == sleeping, n == clockless; got != want {
				t.Fatalf("sleep %d: asks for a yield: %v, want %v", n, got, want)
			}
		}
	})
}

// TestYieldRests: while yields rest, a producer leaves the consumer to the scheduler.
func TestYieldRests(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	// The scheduler may stop the producer anywhere, so a few of many turns differ.
	const turns = 100
	resting, yielding := 0, 0
	for range turns {
		var y Yielder
		y.Init()
		y.state.Store(sleeping)
		y.next.Store(math.MaxInt64)
		var consumer sync.WaitGroup
		consumer.Go(func() { y.state.Store(running) })
		if y.Yield(); y.state.Load() == sleeping {
			resting++
		}
		y.next.Store(0)
		if y.Yield(); y.state.Load() == running {
			yielding++
		}
		consumer.Wait()
	}
	if resting < turns/2 {
		t.Errorf("a producer yields in %d of %d turns while yields rest", turns-resting, turns)
	}
	if yielding < turns/2 {
		t.Errorf("a producer yields in %d of %d turns afterwards", yielding, turns)
	}
}
