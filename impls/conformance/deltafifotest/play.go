package deltafifotest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/deltafifo"
)

// Material is what operations are about.
type Material struct {
	Keys int

	Objects []metav1.Object

	Patience time.Duration
}

// Player plays operations into a queue, one at a time, and holds what comes of
// each to the [Model]. Where the queue is full it checks that it is, makes room
// and tries again, so that all variants accept the same.
type Player struct {
	bed
	material Material
	queue    deltafifo.Queue
	model    *Model

	store *store
	truth map[string]any

	late []numbered

	failed bool

	next int

	steps atomic.Int64
	stuck atomic.Bool
	timer *time.Timer
}

// NewPlayer returns a player with a new queue. The
// caller ends with [Player.End] or, after an error, [Player.Stop].
func NewPlayer(v deltafifo.Variant, a Arrangement, m Material) (*Player, error) {
	g, _ := v.Mode(string(a.Delivery))
	p := &Player{
		bed: bed{Arrangement: a, variant: v, guarantees: g}, material: m,
		model: NewModel(v, a), store: newStore(), truth: map[string]any{},
	}
	if m.Keys == 0 {
		p.material.Keys = 12
	}
	opts := a.Options(p.store)
	if a.Capacity > 0 {
		// Who would wait for room is told at once that there is none.
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		opts.Context = ctx
	}
	q, err := v.New(opts)
	if err != nil {
		return nil, err
	}
	p.queue = q
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
// error says which operation went wrong, and how. The state is what the consumer
// holds in the end.
func Play(v deltafifo.Variant, a Arrangement, m Material, ops []Op) (state []string, err error) {
	p, err := NewPlayer(v, a, m)
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(ops); {
		n, err := p.Do(ops[i:])
		if err != nil {
			p.Stop()
			return nil, fmt.Errorf("operation %d, %v: %w", i, ops[i].Kind, err)
		}
		i += n
	}
	err = p.End()
	return p.store.state(), err
}

// Minimal reduces operations that [Play] fails with, and returns them as a
// report has them, with the error that they still give.
func Minimal(v deltafifo.Variant, a Arrangement, m Material, ops []Op) string {
	m.Patience = 200 * time.Millisecond
	ops = Shrink(ops, func(ops []Op) bool {
		_, err := Play(v, a, m, ops)
		return err != nil
	})
	_, err := Play(v, a, m, ops)
	return fmt.Sprintf("reduced to %d operations, with the error: %v\n%s", len(ops), err, Format(ops))
}

// Do does the first of the operations, and those that are to be done inside its
// process, and returns how many that were.
func (p *Player) Do(ops []Op) (done int, err error) {
	p.steps.Add(1)
	op := ops[0]
	within := ops[1:min(len(ops), 1+int(op.Within))]
	switch {
	case !op.Kind.Takes():
		within = nil
	case p.model.Len() == 0 && !p.model.closed:
		p.next++
		return 1, nil // It would wait.
	case !unlocked(p.bed) || p.upstream() || op.Kind == TakeFails:
		// Where process fails, what came meanwhile meets either what it has or
		// what it had.
		within = nil
	}
	steps := make([]numbered, 1+len(within))
	for i := range steps {
		p.next++
		steps[i] = numbered{ops[i], p.next}
	}
	if !op.Kind.Takes() {
		return 1, p.produce(steps[0])
	}
	return len(steps), p.take(op, steps[1:])
}

// numbered is an operation with its number, which is the version of the objects
// that it makes: whoever has to do it twice does the same.
type numbered struct {
	Op
	rv int
}

// produce does what a producer does, making room for it.
func (p *Player) produce(op numbered) error {
	for tries := 0; ; tries++ {
		refused, err := p.try(op)
		switch {
		case err != nil || !refused:
			return err
		case p.model.Len() > 0:
			err = p.take(Op{Kind: Take}, nil)
		case tries == 1000:
			err = errors.New("nothing waits, and there is no room")
		default:
			// What waits is not to be handed over, and only has to be folded.
			err = p.look()
			runtime.Gosched()
		}
		if err != nil {
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
	case Nameless:
		err := p.queue.Add(nameless{})
		return err, p.model.Event(cache.Added, nameless{}, err)
	case Replace, Relist:
		list := p.list(op)
		rv := strconv.Itoa(op.rv)
		err := p.queue.Replace(slices.Clone(list), rv)
		if err == nil {
			clear(p.truth)
			for _, obj := range list {
				p.truth[keyOf(obj)] = obj
			}
		}
		return err, p.model.Replace(list, rv, err)
	case Resync:
		if p.upstream() && !p.model.begun {
			return nil, nil // It would count for the initial list.
		}
		err := p.queue.Resync()
		return err, p.model.Resync(err)
	case Bookmark:
		q, ok := p.queue.(cache.ReflectorBookmarkStore)
		if !ok || p.upstream() && !p.model.begun {
			return nil, nil
		}
		rv := strconv.Itoa(op.rv)
		err := q.Bookmark(rv)
		return err, p.model.Bookmark(rv, err)
	case Look:
		return nil, p.look()
	case Close:
		p.queue.Close()
		p.model.Close()
		return nil, nil
	default:
		return p.event(op)
	}
}

func (p *Player) event(op numbered) (got, unexpected error) {
	obj := p.object(op.Arg, op.rv)
	typ, call := cache.Updated, p.queue.Update
	switch op.Kind {
	case Add:
		typ, call = cache.Added, p.queue.Add
	case Delete:
		typ, call = cache.Deleted, p.queue.Delete
	case Tombstone:
		typ, call = cache.Deleted, p.queue.Delete
		obj = cache.DeletedFinalStateUnknown{Key: keyOf(obj), Obj: obj}
	}
	err := call(obj)
	switch {
	case err != nil:
	case typ == cache.Deleted:
		delete(p.truth, keyOf(obj))
	default:
		p.truth[keyOf(obj)] = obj
	}
	return err, p.model.Event(typ, obj, err)
}

// object returns the object that an operation is about.
func (p *Player) object(arg uint32, rv int) any {
	if p.material.Objects != nil {
		return p.material.Objects[arg]
	}
	key := int(arg) % p.material.Keys
	return &metav1.ObjectMeta{
		Namespace:       []string{"", "a", "b"}[key%3],
		Name:            "k" + strconv.Itoa(key/3),
		ResourceVersion: strconv.Itoa(rv),
	}
}

// list returns what a Replace lists.
func (p *Player) list(op numbered) []any {
	var list []any
	switch {
	case op.Kind == Replace && p.material.Objects != nil:
		for _, obj := range p.material.Objects[:op.Arg] {
			list = append(list, obj)
		}
		return list
	case op.Kind == Relist:
		for _, key := range slices.Sorted(maps.Keys(p.truth)) {
			list = append(list, p.truth[key])
		}
		return list
	}
	for key := range uint32(p.material.Keys) {
		// Any half of the keys, or another share.
		if bits.OnesCount32((op.Arg+1)*(key+1)*0x9e3779b1>>16)%2 == 0 {
			list = append(list, p.object(key, op.rv))
		}
	}
	return list
}

func (p *Player) look() error {
	if got, want := p.queue.Len(), p.model.Len(); got != want {
		return fmt.Errorf("length is %d, want %d: %v", got, want, p.model)
	}
	if got, want := p.queue.HasSynced(), p.model.HasSynced(); got != want {
		return fmt.Errorf("HasSynced is %t, want %t", got, want)
	}
	return nil
}

var errProcess = errors.New("process failed")

// take takes once.
func (p *Player) take(op Op, within []numbered) error {
	path := byBatch
	if _, ok := p.queue.(deltafifo.BatchQueue); !ok || op.Kind == Take {
		path = byPop
	}
	fails := op.Kind == TakeFails
	called := false
	var wrong error
	err := noPanic(func() error {
		return takeFrom(p.queue, path, func(h handover) error {
			called = true
			if wrong = p.process(h, within, fails); fails && op.Arg%2 == 1 {
				panic(errProcess)
			} else if fails {
				return errProcess
			}
			return nil
		})
	})
	switch {
	case p.stuck.Load():
		return fmt.Errorf("the queue hangs, and should have handed over %v", p.model)
	case wrong != nil:
		return wrong
	case !called && errors.Is(err, cache.ErrFIFOClosed):
		return p.model.ended()
	case !called:
		return fmt.Errorf("take returned %w without a hand-over", err)
	case fails != errors.Is(err, errProcess):
		return fmt.Errorf("take returned %w, process failed=%t", err, fails)
	}
	p.model.done(0, !fails)
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

// process is the consumer.
func (p *Player) process(h handover, within []numbered, fails bool) error {
	if err := p.model.handOver(0, h); err != nil {
		return err
	}
	kept := slices.Clone(h.deltas)
	apply := func() {
		for _, d := range h.deltas {
			p.store.apply(d)
		}
	}
	p.failed = p.failed || fails
	// A store may be ahead of what happens meanwhile, or behind it.
	ahead := !fails && p.next%2 == 0
	if ahead {
		apply()
	}
	if err := p.within(within); err != nil {
		return fmt.Errorf("inside process: %w", err)
	}
	for i, d := range h.deltas {
		if w := word(d); w != word(kept[i]) {
			return fmt.Errorf("what process has was changed from %s to %s", word(kept[i]), w)
		}
	}
	if !ahead && !fails {
		apply()
	}
	return nil
}

// within does operations inside process, up to the first for which there is no
// room: that waits, with what follows it, until process has returned. Nobody
// takes inside process.
func (p *Player) within(ops []numbered) error {
	ops = slices.DeleteFunc(slices.Clone(ops), func(op numbered) bool { return op.Kind.Takes() })
	for i, op := range ops {
		refused, err := p.try(op)
		if err != nil {
			return fmt.Errorf("%v: %w", op.Kind, err)
		}
		if refused {
			p.late = ops[i:]
			return nil
		}
	}
	return nil
}

// End takes what waits, closes the queue and looks at what has come of it all.
func (p *Player) End() error {
	defer p.Stop()
	for i := 0; p.model.Len() > 0; i++ {
		if err := p.take(Op{Kind: []Kind{Take, TakeBatch}[i%2]}, nil); err != nil {
			return fmt.Errorf("at the end: %w", err)
		}
	}
	if err := p.look(); err != nil {
		return fmt.Errorf("at the end: %w", err)
	}
	if p.knowsAll() && !p.failed && !slices.Equal(p.store.state(), state(p.truth)) {
		return fmt.Errorf("the consumer ends with %v, want %v", p.store.state(), state(p.truth))
	}
	p.queue.Close()
	p.model.Close()
	if err := p.take(Op{Kind: Take}, nil); err != nil {
		return fmt.Errorf("after Close: %w", err)
	}
	return nil
}

// knowsAll: the consumer learns of every deletion. Without KnownObjects, a queue
// with per-key delivery does not tell of what it doesn't hold.
func (p *Player) knowsAll() bool { return p.Known || inOrder(p.bed) }

// Stop ends the watchdog, and closes the queue. It may be called twice.
func (p *Player) Stop() {
	p.timer.Stop()
	p.queue.Close()
}
