package ring_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"watchlab/impls/internal/ring"
)

// event has its producer and sequence number; check detects torn or unwritten values.
type event struct {
	producer, n int
	check       int
}

func newEvent(producer, n int) event { return event{producer, n, producer ^ n ^ 0x5ca1ab1e} }

// account is the next expected event of each producer: in order, none lost, none duplicated.
type account struct{ next []int }

func (a *account) see(e event) error {
	switch {
	case e != newEvent(e.producer, e.n):
		return fmt.Errorf("popped %+v, which nobody pushed", e)
	case e.n != a.next[e.producer]:
		return fmt.Errorf("producer %d: popped event %d, want %d", e.producer, e.n, a.next[e.producer])
	}
	a.next[e.producer]++
	return nil
}

// drain pops until the queue is closed and empty.
func drain(ctx context.Context, q ring.Queue[event], producers int) (account, error) {
	a := account{make([]int, producers)}
	buf := make([]event, 64)
	for {
		if err := wait(ctx, q); err != nil {
			if errors.Is(err, ring.ErrClosed) {
				err = nil
			}
			return a, err
		}
		n := pop(q, buf[:1+rand.IntN(len(buf))])
		if n == 0 {
			return a, errors.New("nothing to pop after Wait returned nil")
		}
		for _, e := range buf[:n] {
			if err := a.see(e); err != nil {
				return a, err
			}
		}
	}
}

// TestStress: in every interleaving, the accepted events of each producer are popped once and in order,
// refused ones are not, and all goroutines return. Of the producers of a round, each pushes or tries to;
// the round ends with all events, or with Close at a random time.
func TestStress(t *testing.T) {
	eachShape(t, func(t *testing.T, ctx context.Context, s shape) {
		rounds, each := 24, 800
		if testing.Short() {
			rounds, each = 12, 300
		}
		for round := range rounds {
			producers := []int{1, 2, 8}[round%3]
			closes := round%2 > 0
			closeAt := int64(rand.IntN(producers * each))
			q := newQueue[event](s)
			var pushed atomic.Int64
			accepted := make([]int, producers)
			var wg sync.WaitGroup
			for p := range producers {
				wg.Go(func() {
					for accepted[p] < each {
						push := q.Push
						if (p+round/6)%2 > 0 {
							push = q.TryPush
						}
						err := push(newEvent(p, accepted[p]))
						switch {
						case err == nil:
							accepted[p]++
							if pushed.Add(1) == closeAt && closes {
								q.Close()
							}
						case closes && errors.Is(err, ring.ErrClosed):
							return
						case ctx.Err() != nil || !errors.Is(err, ring.ErrFull):
							t.Errorf("producer %d: push %d: %v", p, accepted[p], err)
							return
						default:
							// On one processor those that give up would run among themselves for a whole time slice.
							runtime.Gosched()
						}
					}
				})
			}
			go func() {
				wg.Wait()
				q.Close()
			}()
			a, err := drain(ctx, q, producers)
			if err != nil {
				t.Error(err)
				q.Close()
			}
			wg.Wait()
			for p, n := range a.next {
				if n != accepted[p] && err == nil {
					t.Errorf("producer %d: %d events came, %d were accepted", p, n, accepted[p])
				}
			}
			if err := q.TryPush(event{}); !errors.Is(err, ring.ErrClosed) || q.Len() != 0 {
				t.Errorf("a push after Close returned %v; %d wait in a drained queue", err, q.Len())
			}
			if t.Failed() {
				return
			}
		}
	})
}
