package ring_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/anishathalye/porcupine"

	"watchlab/impls/conformance"
	"watchlab/impls/internal/ring"
)

// The operations of a history. What a pop or a wait found is its output.
type (
	pushOp  struct{ v int }
	popOp   struct{}
	waitOp  struct{}
	closeOp struct{}
)

type state struct {
	values []int
	closed bool
}

func (s state) String() string { return fmt.Sprint(s.values, s.closed) }

// machine is a FIFO with the weak points of the package contract: a pop may take
// fewer values than there are, and a push to a bounded queue may find it full too
// early. All else is strict: order, no loss, no duplicates, capacity, Close.
func machine(capacity int) conformance.Machine[state] {
	return conformance.Machine[state]{
		Init: func() state { return state{} },
		Step: func(st state, in, out any) ([]state, error) {
			ok, after := false, st
			switch op := in.(type) {
			case pushOp:
				switch {
				case out == nil:
					ok = !st.closed && (capacity == 0 || len(st.values) < capacity)
					after.values = append(slices.Clone(st.values), op.v)
				case errors.Is(out.(error), ring.ErrFull):
					ok = capacity > 0 && !st.closed
				case errors.Is(out.(error), ring.ErrClosed):
					ok = st.closed
				}
			case popOp:
				got := out.([]int)
				if ok = len(got) <= len(st.values) && slices.Equal(got, st.values[:len(got)]); ok {
					after.values = st.values[len(got):]
				}
			case waitOp:
				if out == nil {
					ok = len(st.values) > 0
				} else {
					ok = errors.Is(out.(error), ring.ErrClosed) && st.closed && len(st.values) == 0
				}
			case closeOp:
				ok, after.closed = true, true
			}
			if !ok {
				return nil, fmt.Errorf("not of %v", st)
			}
			return []state{after}, nil
		},
		Describe: func(in, out any) string { return fmt.Sprintf("%T%v → %v", in, in, out) },
	}
}

// TestLinearizable checks small histories of three producers, one consumer and
// a Close against the machine.
func TestLinearizable(t *testing.T) {
	eachShape(t, func(t *testing.T, ctx context.Context, s shape) {
		for range 40 {
			seed := rand.Uint64()
			conformance.Linearizable(t, machine(s.capacity), seed, history(ctx, newQueue[int](s), seed))
		}
	})
}

// history runs random operations and records them. The last ones are sequential,
// so that a lost value is detected.
func history(ctx context.Context, q ring.Queue[int], seed uint64) []porcupine.Operation {
	const producers, each = 3, 6
	clients := conformance.Clients(seed, producers+1)
	closes := func() error { q.Close(); return nil }
	var producing, consuming sync.WaitGroup
	for p, c := range clients[:producers] {
		producing.Go(func() {
			for n := range each {
				v := p*100 + n
				c.Call(pushOp{v}, func() error {
					if c.IntN(2) == 0 {
						return q.TryPush(v)
					}
					return q.Push(v)
				})
			}
			if c.IntN(4) == 0 {
				c.Call(closeOp{}, closes)
			}
		})
	}
	consuming.Go(func() {
		c := clients[producers]
		take := func() {
			began, dst := c.Now(), make([]int, 1+c.IntN(5))
			n := pop(q, dst)
			c.Record(began, popOp{}, dst[:n])
		}
		for err := error(nil); err == nil; take() {
			if c.IntN(2) == 0 {
				take()
			}
			c.Call(waitOp{}, func() error { err = wait(ctx, q); return err })
		}
	})
	producing.Wait()
	clients[0].Call(closeOp{}, closes)
	consuming.Wait()
	return conformance.Operations(clients)
}
