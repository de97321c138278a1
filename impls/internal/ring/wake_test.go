package ring_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"watchlab/impls/internal/ring"
)

// TestPushSleeps: producers wait for room in their order, and each gets a place as one is made. The bubble
// of synctest waits until every goroutine of it sleeps, and fails where one spins or sleeps for ever.
func TestPushSleeps(t *testing.T) {
	for _, s := range shapes(1, 2, 7) {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue[int](s)
			for i := range s.capacity {
				if err := q.TryPush(i); err != nil {
					t.Fatal(err)
				}
			}
			if err := q.TryPush(0); !errors.Is(err, ring.ErrFull) {
				t.Fatalf("a push to a full queue returned %v", err)
			}
			const waiting = 5
			errs := make([]error, waiting)
			var returned atomic.Int32
			for i := range waiting {
				go func() {
					errs[i] = q.Push(s.capacity + i)
					returned.Add(1)
				}()
				synctest.Wait()
			}
			if returned.Load() != 0 {
				t.Fatalf("%d pushes to a full queue returned", returned.Load())
			}
			var got [1]int
			for i := range 3 {
				if n := pop(q, got[:]); n != 1 || got[0] != i {
					t.Fatalf("popped %v, want %d", got[:n], i)
				}
				synctest.Wait()
				if int(returned.Load()) != i+1 || errs[i] != nil {
					t.Fatalf("%d pushes returned after %d places were made", returned.Load(), i+1)
				}
			}
			q.Close()
			synctest.Wait()
			if returned.Load() != waiting {
				t.Fatalf("%d of %d pushes returned after Close", returned.Load(), waiting)
			}
			for _, i := range []int{3, 4} {
				if !errors.Is(errs[i], ring.ErrClosed) {
					t.Errorf("push %d returned %v after Close", i, errs[i])
				}
			}
		})
	}
}
