package queuetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/queue"
)

// The operations of a history.
type (
	// callOp is a call of a producer; its output is the error.
	callOp struct {
		kind    Kind
		keys    []string
		version int
	}
	// takeOp lasts from the call of Pop to that of process; its output is a
	// handed or, where process was not called, the error.
	takeOp struct{ consumer int }
	// doneOp lasts from the return of process to that of Pop.
	doneOp struct{ consumer int }
	// lengthOp and syncedOp look at the queue; their outputs are an int and a
	// bool.
	lengthOp struct{}
	syncedOp struct{}
	// cancelOp ends the context of those that wait for room.
	cancelOp struct{}
)

type handed struct {
	key     string
	version int
}

// described is a state with what tells it from others.
type described struct {
	model *Model
	text  string
}

// historyModel makes of the sequential model one that porcupine can try orders
// with.
func historyModel(b bed) porcupine.Model {
	return porcupine.Model{
		Init: func() any {
			m := NewModel(b.variant, b.Arrangement)
			m.concurrent = true
			return described{m, m.String()}
		},
		Step: func(s, in, out any) (bool, any) {
			m := s.(described).model.clone()
			if err := step(m, in, out); err != nil {
				return false, s
			}
			return true, described{m, m.String()}
		},
		Equal:             func(a, b any) bool { return a.(described).text == b.(described).text },
		DescribeOperation: describe,
		DescribeState:     func(s any) string { return s.(described).text },
	}
}

// step does an operation, or says why it can't happen.
func step(m *Model, in, out any) error {
	failed, _ := out.(error)
	switch op := in.(type) {
	case callOp:
		return call(m, op, failed)
	case takeOp:
		if h, ok := out.(handed); ok {
			return m.Take(op.consumer, h.key, h.version, false)
		}
		return m.Ended()
	case doneOp:
		m.Done(op.consumer)
	case lengthOp:
		if m.Len() != out {
			return fmt.Errorf("length is %d, not %d", m.Len(), out)
		}
	case syncedOp:
		if synced, certain := m.HasSynced(); certain && synced != out {
			return fmt.Errorf("HasSynced is %t, not %t", synced, out)
		}
	case cancelOp:
		m.canceled = true
	}
	return nil
}

func call(m *Model, op callOp, err error) error {
	switch op.kind {
	case Replace:
		return m.Replace(op.keys, op.version, err)
	case Delete:
		return m.Delete(op.keys[0], err)
	case Close:
		m.Close()
		return nil
	}
	return m.Put(op.keys[0], op.version, err)
}

func describe(in, out any) string {
	switch op := in.(type) {
	case callOp:
		return fmt.Sprintf("%v %v@%d → %v", op.kind, op.keys, op.version, out)
	case takeOp:
		return fmt.Sprintf("%d takes → %v", op.consumer, out)
	case doneOp:
		return fmt.Sprintf("%d is done", op.consumer)
	case lengthOp:
		return fmt.Sprintf("length → %d", out)
	case syncedOp:
		return fmt.Sprintf("has synced → %t", out)
	default:
		return "the context ends"
	}
}

// linearizable checks small histories of three producers, Replace, Close and the
// end of the context, and one or several consumers: each call must seem to happen
// at one moment between its beginning and its end.
func linearizable(t *testing.T, b bed) {
	model := historyModel(b)
	for round := range 6 {
		consumers := 1 + round%3
		if b.upstream() {
			consumers = 1 // It calls process under its lock, and can't be asked meanwhile.
		}
		seed := rand.Uint64()
		ops := b.history(t, seed, consumers)
		res, info := porcupine.CheckOperationsVerbose(model, ops, 20*time.Second)
		if res == porcupine.Ok {
			continue
		}
		slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
		for _, op := range ops {
			t.Logf("client %d, %d to %d: %s", op.ClientId, op.Call, op.Return, describe(op.Input, op.Output))
		}
		b.explain(t, ops, info)
		t.Fatalf("seed %d: the history is %s", seed, res)
	}
}

// explain prints the longest order that was found, and why none of what could
// come next can.
func (b bed) explain(t *testing.T, ops []porcupine.Operation, info porcupine.LinearizationInfo) {
	var longest []porcupine.Operation
	for _, order := range info.PartialLinearizationsOperations()[0] {
		if len(order) > len(longest) {
			longest = order
		}
	}
	m := NewModel(b.variant, b.Arrangement)
	m.concurrent = true
	t.Log("an order that goes far:")
	for _, op := range longest {
		t.Logf("  %s", describe(op.Input, op.Output))
		if err := step(m, op.Input, op.Output); err != nil {
			t.Fatal(err)
		}
		ops = slices.DeleteFunc(ops, func(o porcupine.Operation) bool { return o.ClientId == op.ClientId && o.Call == op.Call })
	}
	t.Logf("which leads to %v", m)
	first := slices.MinFunc(ops, func(a, b porcupine.Operation) int { return int(a.Return - b.Return) })
	for _, op := range ops {
		if op.Call > first.Return {
			continue
		}
		if err := step(m.clone(), op.Input, op.Output); err != nil {
			t.Logf("then not %s: %v", describe(op.Input, op.Output), err)
		}
	}
}

// recorder records the operations of one client.
type recorder struct {
	client int
	start  time.Time
	ops    []porcupine.Operation
}

func (r *recorder) now() int64 { return int64(time.Since(r.start)) }

// record notes an operation that began at a time and has just ended.
func (r *recorder) record(began int64, in, out any) {
	r.ops = append(r.ops, porcupine.Operation{ClientId: r.client, Input: in, Call: began, Output: out, Return: r.now()})
}

// do does an operation of a producer.
func (r *recorder) do(op callOp, f func() error) {
	began := r.now()
	if err := f(); err != nil {
		r.record(began, op, err)
	} else {
		r.record(began, op, nil)
	}
}

// history runs random operations and records them. The queue is closed at some
// time, and drained in the end, so that what is lost shows.
func (b bed) history(t *testing.T, seed uint64, consumers int) []porcupine.Operation {
	const producers, each = 3, 7
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := b.new(t, func(o *queue.Options) { o.Context = ctx })
	r.watchdog()
	start := time.Now()
	recorders := make([]*recorder, producers+consumers)
	for i := range recorders {
		recorders[i] = &recorder{client: i, start: start}
	}
	var givers, takers sync.WaitGroup
	for p := range producers {
		givers.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(p)))
			for n := range each {
				r.random(recorders[p], rng, p*100+n)
				yield(rng)
			}
			if p == 0 && rng.IntN(3) == 0 {
				recorders[p].do(callOp{kind: Close}, func() error { r.queue.Close(); return nil })
			}
			if p == 1 && b.Capacity > 0 && rng.IntN(3) == 0 {
				began := recorders[p].now()
				cancel()
				recorders[p].record(began, cancelOp{}, nil)
			}
		})
	}
	for c := range consumers {
		takers.Go(func() {
			r.consume(recorders[producers+c], rand.New(rand.NewPCG(seed, uint64(producers+c))), c)
		})
	}
	givers.Wait()
	recorders[0].do(callOp{kind: Close}, func() error { r.queue.Close(); return nil })
	takers.Wait()
	var ops []porcupine.Operation
	for _, r := range recorders {
		ops = append(ops, r.ops...)
	}
	return withoutDawn(ops)
}

// withoutDawn leaves out what HasSynced said while no call had returned yet, and
// one was under way: it may say that there is no initial list to wait for before
// what the call brings can be seen. Where a Replace overlaps the first call that
// returns, either of them may have been the first, whatever the order in which
// they are queued: then that HasSynced was false tells nothing.
func withoutDawn(ops []porcupine.Operation) []porcupine.Operation {
	begun, over := int64(math.MaxInt64), int64(math.MaxInt64)
	for _, op := range ops {
		if in, ok := op.Input.(callOp); ok && in.kind != Close {
			begun, over = min(begun, op.Call), min(over, op.Return)
		}
	}
	contested := slices.ContainsFunc(ops, func(op porcupine.Operation) bool {
		in, ok := op.Input.(callOp)
		return ok && in.kind == Replace && op.Call <= over && op.Return > over
	})
	return slices.DeleteFunc(ops, func(op porcupine.Operation) bool {
		_, ok := op.Input.(syncedOp)
		return ok && (op.Return >= begun && op.Call <= over || contested && op.Output == false)
	})
}

// random does one operation of a producer.
func (r *rig) random(rec *recorder, rng *rand.Rand, rv int) {
	name := string(rune('a' + rng.IntN(3)))
	op := callOp{kind: Update, keys: []string{name}, version: rv}
	obj := pod(name, rv)
	switch rng.IntN(10) {
	case 0:
		list := []any{obj}
		if rng.IntN(2) == 0 {
			op.keys, list = append(op.keys, "d"), append(list, pod("d", rv))
		}
		op.kind = Replace
		rec.do(op, func() error { return r.queue.Replace(list, "1") })
	case 1:
		began := rec.now()
		synced := r.queue.HasSynced()
		rec.record(began, syncedOp{}, synced)
		if r.manyAtOnce() {
			return // Its shards are not counted at one moment.
		}
		began = rec.now()
		n := r.queue.Len()
		rec.record(began, lengthOp{}, n)
	case 2, 3, 4:
		op.kind = Delete
		rec.do(op, func() error { return r.queue.Delete(obj) })
	case 5:
		op.kind = Add
		rec.do(op, func() error { return r.queue.Add(obj) })
	default:
		rec.do(op, func() error { return r.queue.Update(obj) })
	}
}

// consume takes until the queue is closed and drained.
func (r *rig) consume(rec *recorder, rng *rand.Rand, c int) {
	for {
		began := rec.now()
		var returns int64
		_, err := r.queue.Pop(func(obj any, _ bool) error {
			rec.record(began, takeOp{c}, handed{keyOf(obj), version(obj)})
			yield(rng)
			returns = rec.now()
			return nil
		})
		if errors.Is(err, cache.ErrFIFOClosed) {
			rec.record(began, takeOp{c}, err)
			return
		}
		if err != nil {
			r.t.Error(err)
			return
		}
		rec.record(returns, doneOp{c}, nil)
	}
}

// yield lets others in between.
func yield(rng *rand.Rand) {
	for range rng.IntN(3) {
		runtime.Gosched()
	}
}
