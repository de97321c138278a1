package ring_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"watchlab/impls/internal/ring"
)

// TestPingPong sleeps and wakes as often as it can: each round the consumer
// waits for one value and answers it.
func TestPingPong(t *testing.T) {
	eachShape(t, func(t *testing.T, ctx context.Context, s shape) {
		const rounds = 2000
		ping, pong := newQueue[int](t, s), newQueue[int](t, s)
		receive := func(q ring.Queue[int], want int) error {
			if err := wait(ctx, q); err != nil {
				return err
			}
			var got [2]int
			if n := pop(q, got[:]); n != 1 || got[0] != want {
				t.Errorf("round %d: popped %v", want, got[:n])
			}
			return nil
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := range rounds {
				if err := receive(ping, i); err != nil {
					t.Errorf("round %d: ping: %v", i, err)
					return
				}
				if err := pong.Push(ctx, i); err != nil {
					t.Errorf("round %d: pong: %v", i, err)
				}
			}
		})
		for i := range rounds {
			if err := ping.Push(ctx, i); err != nil {
				t.Fatalf("round %d: ping: %v", i, err)
			}
			if err := receive(pong, i); err != nil {
				t.Fatalf("round %d: pong: %v", i, err)
			}
		}
		wg.Wait()
	})
}

// TestPushSleeps: producers wait for room in their order, and each gets a place as one is made. The bubble
// of synctest waits until every goroutine of it sleeps, and fails where one spins or sleeps for ever.
func TestPushSleeps(t *testing.T) {
	for _, s := range shapes(1, 2, 7) {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue[int](t, s)
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
