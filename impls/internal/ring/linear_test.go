package ring_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

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

// model is a FIFO with the weak points of the package contract: a pop may take
// fewer values than there are, and a push to a bounded queue may find it full too
// early. All else is strict: order, no loss, no duplicates, capacity, Close.
func model(capacity int) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return state{} },
		Step: func(s, in, out any) (bool, any) {
			st := s.(state)
			switch op := in.(type) {
			case pushOp:
				switch out {
				case nil:
					room := capacity == 0 || len(st.values) < capacity
					return !st.closed && room, state{append(slices.Clone(st.values), op.v), st.closed}
				case ring.ErrFull:
					return capacity > 0 && !st.closed, st
				case ring.ErrClosed:
					return st.closed, st
				}
			case popOp:
				got := out.([]int)
				if len(got) > len(st.values) || !slices.Equal(got, st.values[:len(got)]) {
					return false, st
				}
				return true, state{st.values[len(got):], st.closed}
			case waitOp:
				switch out {
				case nil:
					return len(st.values) > 0, st
				case ring.ErrClosed:
					return st.closed && len(st.values) == 0, st
				}
			case closeOp:
				return true, state{st.values, true}
			}
			return false, st
		},
		Equal: func(a, b any) bool {
			x, y := a.(state), b.(state)
			return x.closed == y.closed && slices.Equal(x.values, y.values)
		},
		DescribeOperation: func(in, out any) string { return fmt.Sprintf("%T%v → %v", in, in, out) },
	}
}

// TestLinearizable checks small histories of three producers, one consumer and
// a Close against the model.
func TestLinearizable(t *testing.T) {
	eachShape(t, func(t *testing.T, ctx context.Context, s shape) {
		for range 40 {
			seed := rand.Uint64()
			ops := history(ctx, newQueue[int](t, s), seed)
			res := porcupine.CheckOperationsTimeout(model(s.capacity), ops, time.Minute)
			if res == porcupine.Illegal {
				m := model(s.capacity)
				slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
				for _, op := range ops {
					t.Logf("%d: %d to %d: %s", op.ClientId, op.Call, op.Return, m.DescribeOperation(op.Input, op.Output))
				}
			}
			if res != porcupine.Ok {
				t.Fatalf("seed %d: the history is %s", seed, res)
			}
		}
	})
}

// history runs random operations and records them. The last ones are sequential,
// so that a lost value is detected.
func history(ctx context.Context, q ring.Queue[int], seed uint64) []porcupine.Operation {
	const producers, each = 3, 6
	start := time.Now()
	var mu sync.Mutex
	var ops []porcupine.Operation
	record := func(client int, in any, do func() any) any {
		call := time.Since(start)
		out := do()
		end := time.Since(start)
		mu.Lock()
		defer mu.Unlock()
		ops = append(ops, porcupine.Operation{
			ClientId: client, Input: in, Call: int64(call), Output: out, Return: int64(end),
		})
		return out
	}
	// Outputs are compared by identity: nil, ErrFull or ErrClosed.
	plain := func(err error) any {
		for _, e := range []error{ring.ErrFull, ring.ErrClosed} {
			if errors.Is(err, e) {
				return e
			}
		}
		if err != nil {
			return err.Error()
		}
		return nil
	}
	closer := func() any { q.Close(); return nil }
	var wg sync.WaitGroup
	for p := range producers {
		rng := rand.New(rand.NewPCG(seed, uint64(p)))
		wg.Go(func() {
			for n := range each {
				v := p*100 + n
				if rng.IntN(2) == 0 {
					record(p, pushOp{v}, func() any { return plain(q.TryPush(v)) })
				} else {
					record(p, pushOp{v}, func() any { return plain(q.Push(ctx, v)) })
				}
			}
			if rng.IntN(4) == 0 {
				record(p, closeOp{}, closer)
			}
		})
	}
	var consumer sync.WaitGroup
	consumer.Go(func() {
		rng := rand.New(rand.NewPCG(seed, producers))
		pop := func() any { return popped(q, 1+rng.IntN(5)) }
		for {
			if rng.IntN(2) == 0 {
				record(producers, popOp{}, pop)
			}
			if record(producers, waitOp{}, func() any { return plain(wait(ctx, q)) }) != nil {
				return
			}
			record(producers, popOp{}, pop)
		}
	})
	wg.Wait()
	record(0, closeOp{}, closer)
	consumer.Wait()
	return ops
}

func popped(q ring.Queue[int], most int) []int {
	dst := make([]int, most)
	return dst[:pop(q, dst)]
}
