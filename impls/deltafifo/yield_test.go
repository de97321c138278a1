package deltafifo

import (
	"errors"
	"math"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// TestYield: on one processor, a sleeping consumer has got a delta when Update returns.
func TestYield(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, name := range []string{"cond", "ring"} {
		synctest.Test(t, func(t *testing.T) {
			q, err := New(name, Options{Delivery: InOrder})
			if err != nil {
				t.Fatal(err)
			}
			defer q.Close()
			var popped atomic.Int32
			go func() {
				for {
					if _, err := q.Pop(func(any, bool) error { popped.Add(1); return nil }); err != nil {
						if !errors.Is(err, cache.ErrFIFOClosed) {
							t.Error(err)
						}
						return
					}
				}
			}()
			// More than 61, since the scheduler treats each 61st call differently.
			for i := range 200 {
				time.Sleep(slowDelta)
				synctest.Wait()
				if err := q.Update(&metav1.ObjectMeta{Name: "a"}); err != nil {
					t.Fatal(err)
				}
				if n := int(popped.Load()); n != i+1 {
					t.Fatalf("%s: %d deltas are processed when Update %d returns", name, n, i+1)
				}
			}
		})
	}
}

// TestYieldOfFastProducer: the consumer of many deltas asks for no yield until they are as old as those
// of a slow producer.
func TestYieldOfFastProducer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var y yielder
		y.init()
		state := func(taken int) (s uint32) {
			y.taken = taken
			if err := y.sleep(func() error { s = y.state.Load(); return nil }); err != nil {
				t.Error(err)
			}
			return s
		}
		const fast = int(burst/slowDelta) + 1
		for _, step := range []struct {
			after time.Duration
			taken int
			want  uint32
		}{{burst, 0, asleep}, {0, fast, awake}, {slowDelta - 1, 0, awake}, {1, 0, asleep}, {slowDelta, 1, asleep}} {
			time.Sleep(step.after)
			if got := state(step.taken); got != step.want {
				t.Errorf("%v later, %d deltas: state %d, want %d", step.after, step.taken, got, step.want)
			}
		}
		if y.state.Load() != awake {
			t.Error("the state of a consumer that runs is not awake")
		}
	})
}

// TestYieldRests: while yields rest, a producer leaves the consumer to the scheduler.
func TestYieldRests(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var y yielder
	y.init()
	y.state.Store(asleep)
	y.next.Store(math.MaxInt64)
	go y.state.Store(awake)
	if y.yield(); y.state.Load() != asleep {
		t.Error("a producer yields while yields rest")
	}
	y.next.Store(0)
	if y.yield(); y.state.Load() != awake {
		t.Error("a producer does not yield afterwards")
	}
}
