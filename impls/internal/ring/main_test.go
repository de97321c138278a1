package ring_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"

	"watchlab/impls/internal/ring"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// capacities are those that every concurrent test runs with; 0 is unbounded.
var capacities = []int{0, 1, 2, 7, 1024}

// eachCapacity runs a test with every capacity at GOMAXPROCS 1, 2 and 8. The
// context ends long after the test should have: a missed wake-up is an error
// rather than a test that hangs.
func eachCapacity(t *testing.T, test func(t *testing.T, ctx context.Context, capacity int)) {
	for _, procs := range []int{1, 2, 8} {
		for _, capacity := range capacities {
			t.Run(fmt.Sprintf("procs=%d/capacity=%d", procs, capacity), func(t *testing.T) {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
				ctx, cancel := context.WithTimeoutCause(context.Background(), time.Minute, errors.New("the watchdog"))
				defer cancel()
				test(t, ctx, capacity)
			})
		}
	}
}

func newQueue[T any](t testing.TB, capacity int) ring.Queue[T] {
	t.Helper()
	q, err := ring.New[T](capacity)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestCapacity(t *testing.T) {
	for _, c := range []int{-1, ring.MaxCapacity + 1} {
		if _, err := ring.New[int](c); !errors.Is(err, ring.ErrCapacity) {
			t.Errorf("New(%d) returned %v, want ErrCapacity", c, err)
		}
	}
	if _, err := ring.NewBounded[int](0); !errors.Is(err, ring.ErrCapacity) {
		t.Errorf("NewBounded(0) returned %v, want ErrCapacity", err)
	}
}
