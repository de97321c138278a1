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

// shape is a queue to test: its capacity, 0 being unbounded, and whether it has a lock.
type shape struct {
	capacity int
	locked   bool
}

func (s shape) String() string { return fmt.Sprintf("capacity=%d/locked=%t", s.capacity, s.locked) }

// shapes of capacities.
func shapes(capacities ...int) []shape {
	var all []shape
	for _, c := range capacities {
		all = append(all, shape{c, false}, shape{c, true})
	}
	return all
}

// allShapes are those that every concurrent test runs with.
var allShapes = shapes(0, 1, 2, 7, 1024)

// eachShape runs a test with every shape at GOMAXPROCS 1, 2 and 8. The context ends long after the
// test should have: a consumer that is not woken is an error rather than a test that hangs.
func eachShape(t *testing.T, test func(t *testing.T, ctx context.Context, s shape)) {
	for _, procs := range []int{1, 2, 8} {
		for _, s := range allShapes {
			t.Run(fmt.Sprintf("procs=%d/%v", procs, s), func(t *testing.T) {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
				ctx, cancel := context.WithTimeoutCause(context.Background(), time.Minute, errors.New("the watchdog"))
				defer cancel()
				test(t, ctx, s)
			})
		}
	}
}

func newQueue[T any](s shape) ring.Queue[T] {
	if s.locked {
		return ring.NewLocked[T](s.capacity)
	}
	return ring.NewLockFree[T](s.capacity)
}

// pop is TakeBatch with the release.
func pop[T any](q ring.Queue[T], dst []T) int {
	n := q.TakeBatch(dst)
	q.Release(n)
	return n
}

// wait is Wait under a watchdog: it closes the queue when ctx ends.
func wait[T any](ctx context.Context, q ring.Queue[T]) error {
	defer context.AfterFunc(ctx, q.Close)()
	err := q.Wait()
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
