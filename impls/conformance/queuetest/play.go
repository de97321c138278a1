package queuetest

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/queue"
)

// Material is what operations are about.
type Material struct {
	Keys int

	Patience time.Duration
}

// Player plays operations into a queue, one at a time, and holds what comes of
// each to the [Model]. Where the queue is full it checks that it is, makes room
// and tries again, so that all variants accept the same.
type Player struct {
	bed
	material Material
	queue    queue.Queue
	model    *Model

	late []numbered

	next int

	steps atomic.Int64
	stuck atomic.Bool
	timer *time.Timer
}

// numbered is an operation with its number, which is the version of the objects
// that it makes.
type numbered struct {
	Op
	rv int
}

// NewPlayer returns a player with a new queue. The caller ends with [Player.End]
// or, after an error, [Player.Stop].
func NewPlayer(v queue.Variant, a Arrangement, m Material) (*Player, error) {
	opts := a.Options()
	// Who would wait for room is told at once that there is none.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	opts.Context = ctx
	q, err := v.New(opts)
	if err != nil {
		return nil, err
	}
	p := &Player{bed: bed{a, v}, material: m, queue: q, model: NewModel(v, a)}
	p.model.canceled = true
	if m.Keys == 0 {
		p.material.Keys = 12
	}
	if m.Patience == 0 {
		m.Patience = 20 * time.Second
	}
	p.watch(m.Patience)
	return p, nil
}

func (p *Player) watch(patience time.Duration) {
	last := int64(-1)
	p.timer = time.AfterFunc(patience, func() {
		now := p.steps.Load()
		if now == last {
			p.stuck.Store(true)
			p.queue.Close()
			return
		}
		last = now
		p.timer.Reset(patience)
	})
}

// Play plays operations into a new queue of a variant, drains and closes it. The
// error says which operation went wrong, and how.
func Play(v queue.Variant, a Arrangement, m Material, ops []Op) error {
	p, err := NewPlayer(v, a, m)
	if err != nil {
		return err
	}
	for i := 0; i < len(ops); {
		n, err := p.Do(ops[i:])
		if err != nil {
			p.Stop()
			return fmt.Errorf("operation %d, %v: %w", i, ops[i].Kind, err)
		}
		i += n
	}
	return p.End()
}

// Minimal reduces operations that [Play] fails with, and returns them as a
// report has them, with the error that they still give.
func Minimal(v queue.Variant, a Arrangement, m Material, ops []Op) string {
	m.Patience = 200 * time.Millisecond
	ops = Shrink(ops, func(ops []Op) bool { return Play(v, a, m, ops) != nil })
	return fmt.Sprintf("reduced to %d operations, with the error: %v\n%s", len(ops), Play(v, a, m, ops), Format(ops))
}

// Do does the first of the operations, and those that are to be done inside its
// process, and returns how many that were.
func (p *Player) Do(ops []Op) (done int, err error) {
	p.steps.Add(1)
	op := ops[0]
	if !op.Kind.Takes() {
		p.next++
		return 1, p.produce(numbered{op, p.next})
	}
	within := ops[1:min(len(ops), 1+int(op.Within))]
	if !unlocked(p.bed) {
		within = nil
	}
	if p.model.Len() == 0 && !p.model.closed {
		within = nil // It would wait.
	}
	steps := make([]numbered, 0, len(within))
	for _, op := range within {
		p.next++
		steps = append(steps, numbered{op, p.next})
	}
	if p.model.Len() == 0 && !p.model.closed {
		return 1, nil
	}
	return 1 + len(within), p.take(op, steps)
}

// produce does what a producer does, making room for it.
func (p *Player) produce(op numbered) error {
	for {
		refused, err := p.try(op)
		if err != nil || !refused {
			return err
		}
		if err := p.take(Op{Kind: Take}, nil); err != nil {
			return fmt.Errorf("making room: %w", err)
		}
	}
}

// try does what a producer does, and reports whether there was no room for it.
func (p *Player) try(op numbered) (refused bool, err error) {
	got, err := p.call(op)
	if p.stuck.Load() {
		return false, errors.New("the queue hangs")
	}
	return errors.Is(got, context.Canceled), err
}

// call returns what the queue returned, and what the model says of it.
func (p *Player) call(op numbered) (got, unexpected error) {
	switch op.Kind {
	case Add, Update:
		obj := p.object(op.Arg, op.rv)
		put := map[Kind]func(any) error{Add: p.queue.Add, Update: p.queue.Update}[op.Kind]
		err := put(obj)
		return err, p.model.Put(keyOf(obj), op.rv, err)
	case Delete:
		obj := p.object(op.Arg, op.rv)
		err := p.queue.Delete(obj)
		return err, p.model.Delete(keyOf(obj), err)
	case Nameless:
		var keyError cache.KeyError
		if err := p.queue.Add(nameless{}); !errors.As(err, &keyError) {
			return nil, fmt.Errorf("returned %w, want a KeyError", err)
		}
	case Replace:
		list, keys := p.list(op)
		err := p.queue.Replace(list, strconv.Itoa(op.rv))
		// The caller may do with the list what it wants.
		clear(list)
		return err, p.model.Replace(keys, op.rv, err)
	case Resync:
		return nil, p.queue.Resync()
	case Look:
		return nil, p.look()
	case Close:
		p.queue.Close()
		p.model.Close()
	}
	return nil, nil
}

// object returns the object that an operation is about.
func (p *Player) object(arg uint32, rv int) any {
	key := int(arg) % p.material.Keys
	return &metav1.ObjectMeta{
		Namespace:       []string{"", "a", "b"}[key%3],
		Name:            "k" + strconv.Itoa(key/3),
		ResourceVersion: strconv.Itoa(rv),
	}
}

// list returns what a Replace lists: any half of the keys, or another share, and
// some of them twice, of which the first must not be handed over.
func (p *Player) list(op numbered) (list []any, keys []string) {
	for key := range uint32(p.material.Keys) {
		draw := (op.Arg + 1) * (key + 1) * 0x9e3779b1
		if bits.OnesCount32(draw>>16)%2 != 0 {
			continue
		}
		obj := p.object(key, op.rv)
		if draw%5 == 0 {
			list = append(list, p.object(key, op.rv-1))
		}
		list = append(list, obj)
		keys = append(keys, keyOf(obj))
	}
	return list, keys
}

func (p *Player) look() error {
	if got, want := p.queue.Len(), p.model.Len(); got != want {
		return fmt.Errorf("length is %d, want %d: %v", got, want, p.model)
	}
	want, certain := p.model.HasSynced()
	if got := p.queue.HasSynced(); certain && got != want {
		return fmt.Errorf("HasSynced is %t, want %t: %v", got, want, p.model)
	}
	return nil
}

var errProcess = errors.New("process failed")

// take takes once.
func (p *Player) take(op Op, within []numbered) error {
	fails := op.Kind == TakeFails
	var wrong error
	called := false
	err := noPanic(func() error {
		_, err := p.queue.Pop(func(obj any, initial bool) error {
			called = true
			wrong = p.process(obj, initial, within)
			switch {
			case fails && op.Arg%2 == 1:
				panic(errProcess)
			case fails:
				return errProcess
			}
			return nil
		})
		return err
	})
	switch {
	case p.stuck.Load():
		return fmt.Errorf("the queue hangs, and should have handed over one of %v", p.model)
	case wrong != nil:
		return wrong
	case !called && errors.Is(err, cache.ErrFIFOClosed):
		return p.model.Ended()
	case !called:
		return fmt.Errorf("a Pop returned %w without a hand-over", err)
	case fails != errors.Is(err, errProcess):
		return fmt.Errorf("a Pop returned %w, process failed=%t", err, fails)
	}
	p.model.Done(0)
	late := p.late
	p.late = nil
	for _, op := range late {
		if err := p.produce(op); err != nil {
			return fmt.Errorf("%v, for which there was no room inside process: %w", op.Kind, err)
		}
	}
	return nil
}

// noPanic calls f and returns the error that it panicked with.
func noPanic(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = r.(error)
		}
	}()
	return f()
}

// process is the consumer. It does some operations, up to the first for which
// there is no room: that waits, with what follows it, until process has
// returned. Nobody takes inside process.
func (p *Player) process(obj any, initial bool, within []numbered) error {
	if err := p.model.Take(0, keyOf(obj), version(obj), initial); err != nil {
		return err
	}
	for i, op := range within {
		if op.Kind.Takes() {
			continue
		}
		refused, err := p.try(op)
		if err != nil {
			return fmt.Errorf("inside process, %v: %w", op.Kind, err)
		}
		if refused {
			for _, op := range within[i:] {
				if !op.Kind.Takes() {
					p.late = append(p.late, op)
				}
			}
			return nil
		}
	}
	return nil
}

// End takes what waits, closes the queue and looks at what has come of it all.
func (p *Player) End() error {
	defer p.Stop()
	for p.model.Len() > 0 {
		if err := p.take(Op{Kind: Take}, nil); err != nil {
			return fmt.Errorf("at the end: %w", err)
		}
	}
	if err := p.look(); err != nil {
		return fmt.Errorf("at the end: %w", err)
	}
	p.queue.Close()
	p.model.Close()
	if err := p.take(Op{Kind: Take}, nil); err != nil {
		return fmt.Errorf("after Close: %w", err)
	}
	return nil
}

// Stop ends the watchdog, and closes the queue. It may be called twice.
func (p *Player) Stop() {
	p.timer.Stop()
	p.queue.Close()
}
