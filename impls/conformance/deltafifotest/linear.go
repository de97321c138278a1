package deltafifotest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/deltafifo"
)

// The operations of a history.
type (
	// callOp is a call of a producer; its output is the error.
	callOp struct {
		kind Kind
		obj  any
		list []any
		rv   string
	}
	// takeOp lasts from the call of take to that of process; its output is a
	// handover or, where process was not called, the error.
	takeOp struct{ consumer int }
	// doneOp lasts from the return of process to that of take.
	doneOp struct{ consumer int }
	// cancelOp ends the context of those that wait for room.
	cancelOp struct{}
)

// described is a state with what tells it from others.
type described struct {
	model *Model
	text  string
}

// historyModel makes of the sequential model one that porcupine can try orders
// with.
func historyModel(b bed) porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any {
			m := NewModel(b.variant, b.Arrangement)
			m.concurrent = true
			return []any{described{m, m.String()}}
		},
		Step: func(s, in, out any) []any {
			var next []any
			states, _ := step(s.(described).model, in, out)
			for _, m := range states {
				next = append(next, described{m, m.String()})
			}
			return next
		},
		Equal:             func(a, b any) bool { return a.(described).text == b.(described).text },
		DescribeOperation: describe,
		DescribeState:     func(s any) string { return s.(described).text },
	}
	return m.ToModel()
}

// step returns the states that an operation may lead to, or why it can't happen.
func step(before *Model, in, out any) ([]*Model, error) {
	m := before.clone()
	failed, _ := out.(error)
	var err error
	switch op := in.(type) {
	case callOp:
		err = call(m, op, failed)
	case takeOp:
		if h, ok := out.(handover); ok {
			m.foldLine(len(m.line))
			err = m.handOver(op.consumer, h)
		} else {
			err = m.ended()
		}
	case doneOp:
		return done(before, op.consumer), nil
	case cancelOp:
		m.canceled = true
	}
	if err != nil {
		return nil, err
	}
	return []*Model{m}, nil
}

// done returns the states after a process: what reads the consumer's store may
// have done so before it changed.
func done(before *Model, consumer int) []*Model {
	var next []*Model
	for n := range len(before.line) + 1 {
		if n == 0 || before.line[n-1].kind == Resync || before.line[n-1].kind == Replace {
			m := before.clone()
			m.foldLine(n)
			m.done(consumer, true)
			next = append(next, m)
		}
	}
	return next
}

func call(m *Model, op callOp, err error) error {
	switch op.kind {
	case Replace:
		return m.Replace(op.list, op.rv, err)
	case Resync:
		return m.Resync(err)
	case Bookmark:
		return m.Bookmark(op.rv, err)
	case Close:
		m.Close()
		return nil
	}
	return m.Event(map[Kind]cache.DeltaType{Add: cache.Added, Update: cache.Updated, Delete: cache.Deleted}[op.kind], op.obj, err)
}

func describe(in, out any) string {
	switch op := in.(type) {
	case callOp:
		what := op.kind.String()
		switch {
		case op.obj != nil:
			what += " " + keyOf(op.obj) + "@" + strconv.Itoa(version(op.obj))
		case op.list != nil:
			what = word(cache.Delta{Type: "Replace", Object: cache.ReplacedAllInfo{Objects: op.list, ResourceVersion: op.rv}})
		}
		return fmt.Sprintf("%s → %v", what, out)
	case takeOp:
		if h, ok := out.(handover); ok {
			return fmt.Sprintf("%d takes %v", op.consumer, words(h.deltas))
		}
		return fmt.Sprintf("%d takes → %v", op.consumer, out)
	case doneOp:
		return fmt.Sprintf("%d is done", op.consumer)
	default:
		return "the context ends"
	}
}

// linearizable checks small histories of three producers, Replace, Resync,
// bookmarks, Close and the end of the context, and one or several consumers: each
// call must seem to happen at one moment between its beginning and its end.
func linearizable(t *testing.T, b bed) {
	if b.upstream() && !perKey(b) {
		return // It hands over to several at once where it is told to unlock.
	}
	if ours(b) {
		b.BatchSize = 3
	}
	model := historyModel(b)
	for round := range 3 {
		seed := rand.Uint64()
		ops := b.history(t, seed, 1+round)
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
	model := NewModel(b.variant, b.Arrangement)
	model.concurrent = true
	states := []*Model{model}
	next := func(op porcupine.Operation) (after []*Model, errs []error) {
		for _, m := range states {
			more, err := step(m, op.Input, op.Output)
			after, errs = append(after, more...), append(errs, err)
		}
		return after, errs
	}
	t.Log("an order that goes far:")
	for _, op := range longest {
		t.Logf("  %s", describe(op.Input, op.Output))
		states, _ = next(op)
		ops = slices.DeleteFunc(ops, func(o porcupine.Operation) bool { return o.ClientId == op.ClientId && o.Call == op.Call })
	}
	for _, m := range states {
		t.Logf("which leads to %v", m)
	}
	first := slices.MinFunc(ops, func(a, b porcupine.Operation) int { return int(a.Return - b.Return) })
	for _, op := range ops {
		if op.Call <= first.Return {
			if after, errs := next(op); len(after) == 0 {
				t.Logf("then not %s: %v", describe(op.Input, op.Output), errors.Join(errs...))
			}
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
	const producers, each = 3, 5
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := b.new(t, func(o *deltafifo.Options) { o.Context = ctx })
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
			if p == 1 && bounded(b) && rng.IntN(3) == 0 {
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
	return ops
}

// random does one operation of a producer.
func (r *rig) random(rec *recorder, rng *rand.Rand, rv int) {
	name := string(rune('a' + rng.IntN(3)))
	obj := pod(name, rv)
	switch rng.IntN(10) {
	case 0:
		list := []any{obj, pod("d", rv)}[rng.IntN(2):]
		version := strconv.Itoa(rv)
		rec.do(callOp{kind: Replace, list: list, rv: version}, func() error { return r.queue.Replace(list, version) })
	case 1:
		rec.do(callOp{kind: Resync}, r.queue.Resync)
	case 2:
		q, ok := r.queue.(cache.ReflectorBookmarkStore)
		if !ok {
			return
		}
		version := strconv.Itoa(rv)
		rec.do(callOp{kind: Bookmark, rv: version}, func() error { return q.Bookmark(version) })
	case 3, 4, 5:
		rec.do(callOp{kind: Delete, obj: obj}, func() error { return r.queue.Delete(obj) })
	case 6:
		rec.do(callOp{kind: Add, obj: obj}, func() error { return r.queue.Add(obj) })
	default:
		rec.do(callOp{kind: Update, obj: obj}, func() error { return r.queue.Update(obj) })
	}
}

// consume takes until the queue is closed and drained.
func (r *rig) consume(rec *recorder, rng *rand.Rand, c int) {
	for {
		began := rec.now()
		var returns int64
		err := takeFrom(r.queue, r.path, func(h handover) error {
			h.deltas = slices.Clone(h.deltas)
			rec.record(began, takeOp{c}, h)
			yield(rng)
			for _, d := range h.deltas {
				r.store.apply(d)
			}
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
