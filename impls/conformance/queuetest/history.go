package queuetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/anishathalye/porcupine"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/conformance"
	"watchlab/impls/deltafifo"
)

// The operations of a history.
type (
	// callOp is a call of a producer; its output is the error.
	callOp struct {
		kind kind
		obj  any
		list []any
		rv   string
	}
	// popOp lasts from the call of Pop to that of process; its output is a
	// popped or, where process was not called, the error.
	popOp struct{ consumer int }
	// doneOp lasts from the return of process to that of Pop.
	doneOp struct{ consumer int }
	// lengthOp and syncedOp are Len and HasSynced; their outputs are an int and a
	// bool.
	lengthOp struct{}
	syncedOp struct{}
	// cancelOp ends the context of producers that wait for room.
	cancelOp struct{}
)

func machine(s setup) conformance.Machine[model] {
	return conformance.Machine[model]{Init: func() model { return newModel(s, true) }, Step: step, Describe: describe}
}

// step returns the states that an operation may lead to, or why it cannot
// happen.
func step(before model, in, out any) ([]model, error) {
	m := before.clone()
	failed, _ := out.(error)
	var err error
	switch op := in.(type) {
	case callOp:
		err = call(m, op, failed)
	case popOp:
		if got, ok := out.(popped); ok {
			err = m.popped(op.consumer, got)
		} else {
			err = m.ended()
		}
	case doneOp:
		return before.afterDone(op.consumer), nil
	case lengthOp:
		if m.len() != out {
			err = fmt.Errorf("length is %d, not %d", m.len(), out)
		}
	case syncedOp:
		if synced, certain := m.hasSynced(); certain && synced != out {
			err = fmt.Errorf("HasSynced is %t, not %t", synced, out)
		}
	case cancelOp:
		m.cancel()
	}
	if err != nil {
		return nil, err
	}
	return []model{m}, nil
}

func call(m model, op callOp, err error) error {
	switch op.kind {
	case replace:
		return m.replace(op.list, op.rv, err)
	case resync:
		return m.resync(err)
	case bookmark:
		return m.bookmark(op.rv, err)
	case closeQueue:
		m.close()
		return nil
	}
	return m.event(map[kind]cache.DeltaType{add: cache.Added, update: cache.Updated, del: cache.Deleted}[op.kind], op.obj, err)
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
	case popOp:
		if got, ok := out.(popped); ok {
			return fmt.Sprintf("consumer %d pops %v", op.consumer, words(got.deltas))
		}
		return fmt.Sprintf("consumer %d pops → %v", op.consumer, out)
	case doneOp:
		return fmt.Sprintf("consumer %d is done", op.consumer)
	case lengthOp:
		return fmt.Sprintf("Len → %d", out)
	case syncedOp:
		return fmt.Sprintf("HasSynced → %t", out)
	default:
		return "the context ends"
	}
}

// linearizableSetup leaves out upstream's RealFIFO, which calls process of
// several consumers at once where it unlocks, and capacities that a short
// history does not reach.
func linearizableSetup(s setup) bool {
	if s.objects {
		return s.Capacity <= 7
	}
	return ours(s) || perKey(s)
}

// linearizable checks small histories of three producers, Replace, Resync,
// bookmarks, Close and the end of the context, and one or several consumers.
func linearizable(t *testing.T, s setup) {
	rounds := 3
	if s.objects {
		rounds = 6
	} else if ours(s) {
		s.BatchSize = 3
	}
	for round := range rounds {
		consumers := 1 + round%3
		if s.objects && upstream(s) {
			consumers = 1 // It calls process under its lock.
		}
		seed := rand.Uint64()
		conformance.Linearizable(t, machine(s), seed, s.history(t, seed, consumers))
	}
}

// history runs random operations and records them. The queue is closed at some
// time and drained in the end, so that a lost event shows.
func (s setup) history(t *testing.T, seed uint64, consumers int) []porcupine.Operation {
	const producers = 3
	each := 5
	if s.objects {
		each = 7
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := s.new(t, func(o *deltafifo.Options) { o.Context = ctx })
	r.watchdog()
	clients := conformance.Clients(seed, producers+consumers)
	closes := func() error { r.queue.Close(); return nil }
	var producing, consuming sync.WaitGroup
	for p, c := range clients[:producers] {
		producing.Go(func() {
			for n := range each {
				r.randomCall(c, p*100+n)
				c.Yield()
			}
			if p == 0 && c.IntN(3) == 0 {
				c.Call(callOp{kind: closeQueue}, closes)
			}
			if p == 1 && bounded(s) && c.IntN(3) == 0 {
				c.Call(cancelOp{}, func() error { cancel(); return nil })
			}
		})
	}
	for i, c := range clients[producers:] {
		consuming.Go(func() { r.consume(c, i) })
	}
	producing.Wait()
	clients[0].Call(callOp{kind: closeQueue}, closes)
	consuming.Wait()
	ops := conformance.Operations(clients)
	if s.objects {
		ops = withoutEarlySynced(ops)
	}
	return ops
}

// withoutEarlySynced drops what HasSynced returned while no call had returned
// yet and one was under way: it may be true before the call's effect can be seen.
// Where a Replace overlaps the first call that returns, either may have been the
// first, whatever the order in which they are queued: then false says nothing.
func withoutEarlySynced(ops []porcupine.Operation) []porcupine.Operation {
	begun, over := int64(math.MaxInt64), int64(math.MaxInt64)
	for _, op := range ops {
		if in, ok := op.Input.(callOp); ok && in.kind != closeQueue {
			begun, over = min(begun, op.Call), min(over, op.Return)
		}
	}
	contested := slices.ContainsFunc(ops, func(op porcupine.Operation) bool {
		in, ok := op.Input.(callOp)
		return ok && in.kind == replace && op.Call <= over && op.Return > over
	})
	return slices.DeleteFunc(ops, func(op porcupine.Operation) bool {
		_, ok := op.Input.(syncedOp)
		return ok && (op.Return >= begun && op.Call <= over || contested && op.Output == false)
	})
}

// randomCall does one operation of a producer.
func (r *rig) randomCall(c *conformance.Client, rv int) {
	obj, v := pod(string(rune('a'+c.IntN(3))), rv), strconv.Itoa(rv)
	switch roll := c.IntN(10); {
	case roll == 0:
		list := []any{obj, pod("d", rv)}[c.IntN(2):]
		c.Call(callOp{kind: replace, list: list, rv: v}, func() error { return r.queue.Replace(slices.Clone(list), v) })
	case roll == 1 && r.objects:
		began := c.Now()
		synced := r.queue.HasSynced()
		c.Record(began, syncedOp{}, synced)
		if !manyAtOnce(r.setup) { // Shards are not counted at one moment.
			began = c.Now()
			n := r.queue.Len()
			c.Record(began, lengthOp{}, n)
		}
	case roll == 1:
		c.Call(callOp{kind: resync}, r.queue.Resync)
	case roll == 2 && !r.objects:
		if q, ok := r.queue.(cache.ReflectorBookmarkStore); ok {
			c.Call(callOp{kind: bookmark, rv: v}, func() error { return q.Bookmark(v) })
		}
	case roll < 6:
		c.Call(callOp{kind: del, obj: obj}, func() error { return r.queue.Delete(obj) })
	case roll == 6:
		c.Call(callOp{kind: add, obj: obj}, func() error { return r.queue.Add(obj) })
	default:
		c.Call(callOp{kind: update, obj: obj}, func() error { return r.queue.Update(obj) })
	}
}

// consume pops until the queue is closed and empty.
func (r *rig) consume(c *conformance.Client, consumer int) {
	for {
		began := c.Now()
		var returns int64
		err := r.popFrom(r.queue, r.path, func(p popped) error {
			p.deltas = slices.Clone(p.deltas)
			c.Record(began, popOp{consumer}, p)
			c.Yield()
			for _, d := range p.deltas {
				r.store.apply(d)
			}
			c.Yield()
			returns = c.Now()
			return nil
		})
		if err != nil {
			c.Record(began, popOp{consumer}, err)
			if !errors.Is(err, cache.ErrFIFOClosed) {
				r.t.Error(err)
			}
			return
		}
		c.Record(returns, doneOp{consumer}, nil)
	}
}
