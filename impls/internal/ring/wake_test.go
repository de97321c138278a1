package ring_test

import (
	"context"
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
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var returned atomic.Int32
			for i := range waiting {
				own := context.Background()
				if i == 1 {
					own = ctx
				}
				go func() {
					errs[i] = q.Push(own, s.capacity+i)
					returned.Add(1)
				}()
				synctest.Wait()
			}
			if returned.Load() != 0 {
				t.Fatalf("%d pushes to a full queue returned", returned.Load())
			}
			cancel()
			synctest.Wait()
			if returned.Load() != 1 || !errors.Is(errs[1], context.Canceled) {
				t.Fatalf("%d pushes returned, that with the canceled context %v", returned.Load(), errs[1])
			}
			var got [1]int
			for i, want := range []int{s.capacity, s.capacity + 2} {
				if n := pop(q, got[:]); n != 1 || got[0] != i {
					t.Fatalf("popped %v, want %d", got[:n], i)
				}
				synctest.Wait()
				if int(returned.Load()) != i+2 || errs[want-s.capacity] != nil {
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
