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

// TestStress: in every interleaving, the events of each producer are popped once and in order.
func TestStress(t *testing.T) {
	eachShape(t, func(t *testing.T, ctx context.Context, s shape) {
		for _, producers := range []int{1, 2, 8} {
			each := 4000
			if testing.Short() {
				each = 1500
			}
			ctx, cancel := context.WithCancel(ctx)
			q := newQueue[event](t, s)
			var wg sync.WaitGroup
			for p := range producers {
				wg.Go(func() {
					for n := range each {
						if err := q.Push(ctx, newEvent(p, n)); err != nil {
							t.Errorf("producer %d: push %d: %v", p, n, err)
							return
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
				cancel()
			}
			wg.Wait()
			cancel()
			q.Close()
			for p, n := range a.next {
				if n != each && !t.Failed() {
					t.Errorf("producer %d: %d of %d events came", p, n, each)
				}
			}
			if l := q.Len(); l != 0 && !t.Failed() {
				t.Errorf("a drained queue has length %d", l)
			}
		}
	})
}

// TestClose: Close at a random time. Accepted values are popped, refused ones are
// not, and all goroutines return.
func TestClose(t *testing.T) {
	eachShape(t, func(t *testing.T, ctx context.Context, s shape) {
		for range 60 {
			const producers = 4
			ctx, cancel := context.WithCancel(ctx)
			q := newQueue[event](t, s)
			closeAt := rand.IntN(600)
			var pushed atomic.Int64
			var accepted [producers]int
			var wg sync.WaitGroup
			for p := range producers {
				wg.Go(func() {
					for n := range 400 {
						err := q.Push(ctx, newEvent(p, n))
						if errors.Is(err, ring.ErrClosed) {
							break
						}
						if err != nil {
							t.Errorf("producer %d: push %d: %v", p, n, err)
							break
						}
						accepted[p]++
						if pushed.Add(1) == int64(closeAt) {
							q.Close()
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
				cancel()
			}
			wg.Wait()
			cancel()
			for p, n := range a.next {
				if n != accepted[p] && !t.Failed() {
					t.Errorf("producer %d: %d events came, %d were accepted", p, n, accepted[p])
				}
			}
			if err := q.TryPush(event{}); !errors.Is(err, ring.ErrClosed) {
				t.Errorf("a push after Close returned %v", err)
			}
			if t.Failed() {
				return
			}
		}
	})
}

// TestCancel: producers that cancel their wait for room take no wake-up from
// others, and their values are not queued.
func TestCancel(t *testing.T) {
	eachShape(t, func(t *testing.T, ctx context.Context, s shape) {
		const producers, each = 8, 300
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		q := newQueue[event](t, s)
		var wg sync.WaitGroup
		for p := range producers {
			wg.Go(func() {
				for n := 0; n < each; {
					try, giveUp := context.WithCancel(ctx)
					if p%2 == 0 {
						// At about the time at which there may be room.
						go giveUp()
					}
					err := q.Push(try, newEvent(p, n))
					giveUp()
					switch {
					case err == nil:
						n++
					case ctx.Err() != nil || !errors.Is(err, context.Canceled):
						t.Errorf("producer %d: push %d: %v", p, n, err)
						return
					default:
						// On one processor those that give up would run
						// among themselves for a whole time slice.
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
			cancel()
		}
		wg.Wait()
		for p, n := range a.next {
			if n != each && !t.Failed() {
				t.Errorf("producer %d: %d of %d events came", p, n, each)
			}
		}
	})
}

// TestCloseWhilePushing lets Close meet producers that do nothing but push: it
// must know exactly which of them were accepted.
func TestCloseWhilePushing(t *testing.T) {
	eachShape(t, func(t *testing.T, ctx context.Context, s shape) {
		rounds := 40
		if runtime.GOMAXPROCS(0) == 1 {
			// Close runs only when a time slice has ended.
			rounds = 10
		}
		if testing.Short() {
			rounds /= 2
		}
		for range rounds {
			q := newQueue[event](t, s)
			begun := 100
			if s.capacity > 0 {
				begun = min(begun, s.capacity)
			}
			var accepted [2]int
			var wg sync.WaitGroup
			for p := range accepted {
				wg.Go(func() {
					for {
						switch err := q.TryPush(newEvent(p, accepted[p])); {
						case err == nil:
							accepted[p]++
						case errors.Is(err, ring.ErrClosed):
							return
						default:
							runtime.Gosched()
						}
					}
				})
			}
			wg.Go(func() {
				for q.Len() < begun {
					runtime.Gosched()
				}
				q.Close()
			})
			wg.Wait()
			a, err := drain(ctx, q, len(accepted))
			if err != nil {
				t.Fatal(err)
			}
			for p, n := range a.next {
				if n != accepted[p] {
					t.Fatalf("producer %d: %d events came, %d were accepted", p, n, accepted[p])
				}
			}
		}
	})
}
