package queuetest

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/conformance"
	"watchlab/impls/deltafifo"
)

// material has the options of a player.
type material struct {
	keys     int           // default 12
	patience time.Duration // without progress the queue counts as hanging; default 20 s
}

// player plays operations into a queue, one at a time, and compares the outcome
// of each with the [model]. Where the queue is full it tests that, makes room and
// tries again, so that all variants accept the same.
type player struct {
	setup
	material
	queue deltafifo.Queue
	model model
	store *store
	truth *store     // the newest version of each key that was not deleted
	late  []numbered // operations for which there was no room inside process

	failed bool // some process has failed
	begun  bool // some call has been accepted
	next   int  // number of the last operation

	steps atomic.Int64
	stuck atomic.Bool
	timer *time.Timer
}

// newPlayer returns a player with a new queue. The caller ends with
// [player.end] or, after an error, [player.stop].
func (s setup) newPlayer(m material) (*player, error) {
	p := &player{setup: s, material: m, model: newModel(s, false), store: newStore(), truth: newStore()}
	if m.keys == 0 {
		p.keys = 12
	}
	if m.patience == 0 {
		p.patience = 20 * time.Second
	}
	opts := s.options(p.store)
	if bounded(s) || s.objects {
		// Calls that would wait for room fail at once.
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		opts.Context = ctx
	}
	q, err := s.variant.New(opts)
	if err != nil {
		return nil, err
	}
	p.queue = q
	last := int64(-1)
	p.timer = time.AfterFunc(p.patience, func() {
		now := p.steps.Load()
		if now == last {
			p.stuck.Store(true)
			p.queue.Close()
			return
		}
		last = now
		p.timer.Reset(p.patience)
	})
	return p, nil
}

// play plays operations into a new queue, drains and closes it. The error says
// which operation went wrong, and how. The state is that of the consumer's store
// in the end.
func (s setup) play(m material, ops []op) (state []string, err error) {
	p, err := s.newPlayer(m)
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(ops); {
		n, err := p.do(ops[i:])
		if err != nil {
			p.stop()
			return nil, fmt.Errorf("operation %d, %v: %w", i, ops[i].kind, err)
		}
		i += n
	}
	err = p.end()
	return p.store.state(), err
}

// minimal reduces operations that [setup.play] fails with, and returns them in
// words, with the error that they still give.
func (s setup) minimal(m material, ops []op) string {
	m.patience = 200 * time.Millisecond
	ops = conformance.Shrink(ops, func(ops []op) bool {
		_, err := s.play(m, ops)
		return err != nil
	})
	_, err := s.play(m, ops)
	return fmt.Sprintf("reduced to %d operations, with the error: %v\n%s", len(ops), err, format(ops))
}

// numbered is an operation with its number, which is the version of its objects:
// a second try does the same.
type numbered struct {
	op
	rv int
}

// do does the first of the operations, and those that happen inside its process,
// and returns how many that were.
func (p *player) do(ops []op) (done int, err error) {
	p.steps.Add(1)
	o := ops[0]
	within := ops[1:min(len(ops), 1+int(o.within))]
	switch {
	case !o.kind.pops():
		within = nil
	case p.model.len() == 0 && !p.model.isClosed():
		p.next++
		return 1, nil // It would wait.
	case !unlocked(p.setup) || deltas(p.setup) && (upstream(p.setup) || o.kind == popFails):
		// Where process fails, a call meanwhile sees the store with or without it.
		within = nil
	}
	steps := make([]numbered, 1+len(within))
	for i := range steps {
		p.next++
		steps[i] = numbered{ops[i], p.next}
	}
	if !o.kind.pops() {
		return 1, p.produce(steps[0])
	}
	return len(steps), p.pop(o, steps[1:])
}

// produce does an operation of a producer and makes room for it.
func (p *player) produce(o numbered) error {
	for tries := 0; ; tries++ {
		refused, err := p.try(o)
		switch {
		case err != nil || !refused:
			return err
		case p.model.len() > 0:
			err = p.pop(op{kind: pop}, nil)
		case tries == 1000:
			err = errors.New("nothing is queued, and there is no room")
		default:
			// Events that the queue will drop still use capacity.
			err = p.look()
			runtime.Gosched()
		}
		if err != nil {
			return fmt.Errorf("making room: %w", err)
		}
	}
}

// try does an operation of a producer and reports whether there was no room.
func (p *player) try(o numbered) (refused bool, err error) {
	got, err := p.call(o)
	if p.stuck.Load() {
		return false, errors.New("the queue hangs")
	}
	p.begun = p.begun || got == nil && o.kind <= relist
	return errors.Is(got, context.Canceled), err
}

// call returns what the queue returned, and how the model objects to it.
func (p *player) call(o numbered) (got, unexpected error) {
	d := cache.Delta{Type: cache.Updated}
	switch o.kind {
	case look:
		return nil, p.look()
	case closeQueue:
		p.queue.Close()
		p.model.close()
		return nil, nil
	case addNameless:
		p.begun = true
		d = cache.Delta{Type: cache.Added, Object: nameless{}}
	case replace, relist:
		d = listOf(strconv.Itoa(o.rv), p.list(o)...)
	case resync, bookmark:
		// Upstream would count these for the initial list.
		if upstream(p.setup) && deltas(p.setup) && !p.begun {
			return nil, nil
		}
		d = cache.Delta{Type: cache.SyncAll, Object: cache.SyncAllInfo{}}
		if o.kind == bookmark {
			d = cache.Delta{Type: cache.Bookmark, Object: cache.BookmarkInfo{ResourceVersion: strconv.Itoa(o.rv)}}
		}
	default:
		d.Object = p.object(o.arg, o.rv)
		switch o.kind {
		case add:
			d.Type = cache.Added
		case del:
			d.Type = cache.Deleted
		case bury:
			d = cache.Delta{Type: cache.Deleted, Object: tombstoneOf(d.Object)}
		}
	}
	got = p.push(p.queue, d)
	if got == nil {
		p.truth.apply(d)
	}
	return got, p.model.call(d, got)
}

// object returns the object that an operation is about.
func (p *player) object(arg uint32, rv int) any {
	key := int(arg) % p.keys
	return &metav1.ObjectMeta{
		Namespace:       []string{"", "a", "b"}[key%3],
		Name:            "k" + strconv.Itoa(key/3),
		ResourceVersion: strconv.Itoa(rv),
	}
}

// list returns what a Replace lists: about half of the keys, or all.
func (p *player) list(o numbered) []any {
	var list []any
	if o.kind == relist {
		for _, key := range p.truth.ListKeys() {
			list = append(list, p.truth.objs[key])
		}
		return list
	}
	for key := range uint32(p.keys) {
		draw := (o.arg + 1) * (key + 1) * 0x9e3779b1
		if bits.OnesCount32(draw>>16)%2 != 0 {
			continue
		}
		if p.setup.objects && draw%5 == 0 {
			list = append(list, p.object(key, o.rv-1)) // The second is the newer one.
		}
		list = append(list, p.object(key, o.rv))
	}
	return list
}

func (p *player) look() error {
	if got, want := p.queue.Len(), p.model.len(); got != want {
		return fmt.Errorf("length is %d, want %d: %v", got, want, p.model)
	}
	want, certain := p.model.hasSynced()
	if got := p.queue.HasSynced(); certain && got != want {
		return fmt.Errorf("HasSynced is %t, want %t: %v", got, want, p.model)
	}
	return nil
}

var errProcess = errors.New("process failed")

// pop pops once.
func (p *player) pop(o op, within []numbered) error {
	path := byBatch
	if _, ok := p.queue.(deltafifo.BatchQueue); !ok || o.kind == pop {
		path = byPop
	}
	fails := o.kind == popFails
	called := false
	var wrong error
	err := recovered(func() error {
		return p.popFrom(p.queue, path, func(got popped) error {
			called = true
			if wrong = p.process(got, within, fails); fails && o.arg%2 == 1 {
				panic(errProcess)
			} else if fails {
				return errProcess
			}
			return nil
		})
	})
	switch {
	case p.stuck.Load():
		return fmt.Errorf("the queue hangs, with this queued: %v", p.model)
	case wrong != nil:
		return wrong
	case !called && errors.Is(err, cache.ErrFIFOClosed):
		return p.model.ended()
	case !called:
		return fmt.Errorf("pop returned %w and did not call process", err)
	case fails != errors.Is(err, errProcess):
		return fmt.Errorf("pop returned %w, process failed=%t", err, fails)
	}
	p.model.done(0, !fails)
	late := p.late
	p.late = nil
	for _, o := range late {
		if err := p.produce(o); err != nil {
			return fmt.Errorf("%v, for which there was no room inside process: %w", o.kind, err)
		}
	}
	return nil
}

// recovered calls f and returns the error that it panicked with.
func recovered(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = r.(error)
		}
	}()
	return f()
}

// process is the consumer.
func (p *player) process(got popped, within []numbered, fails bool) error {
	if err := p.model.popped(0, got); err != nil {
		return err
	}
	kept := slices.Clone(got.deltas)
	apply := func() {
		for _, d := range got.deltas {
			p.store.apply(d)
		}
	}
	p.failed = p.failed || fails
	// The store is updated before the operations inside process, or after.
	before := !fails && p.next%2 == 0
	if before {
		apply()
	}
	if err := p.doWithin(within); err != nil {
		return fmt.Errorf("inside process: %w", err)
	}
	for i, d := range got.deltas {
		if w := word(d); w != word(kept[i]) {
			return fmt.Errorf("a delta in process was changed from %s to %s", word(kept[i]), w)
		}
	}
	if !before && !fails {
		apply()
	}
	return nil
}

// doWithin does operations inside process, up to the first for which there is no
// room: that one and the rest follow when process has returned.
func (p *player) doWithin(ops []numbered) error {
	ops = slices.DeleteFunc(slices.Clone(ops), func(o numbered) bool { return o.kind.pops() })
	for i, o := range ops {
		refused, err := p.try(o)
		if err != nil {
			return fmt.Errorf("%v: %w", o.kind, err)
		}
		if refused {
			p.late = ops[i:]
			return nil
		}
	}
	return nil
}

// end drains and closes the queue, and compares the store with the truth.
func (p *player) end() error {
	defer p.stop()
	for i := 0; p.model.len() > 0; i++ {
		if err := p.pop(op{kind: []kind{pop, popBatch}[i%2]}, nil); err != nil {
			return fmt.Errorf("at the end: %w", err)
		}
	}
	if err := p.look(); err != nil {
		return fmt.Errorf("at the end: %w", err)
	}
	if deletesSeen(p.setup) && !p.failed && !slices.Equal(p.store.state(), p.truth.state()) {
		return fmt.Errorf("the store ends with %v, want %v", p.store.state(), p.truth.state())
	}
	p.queue.Close()
	p.model.close()
	if err := p.pop(op{kind: pop}, nil); err != nil {
		return fmt.Errorf("after Close: %w", err)
	}
	return nil
}

// stop ends the watchdog and closes the queue. It may be called twice.
func (p *player) stop() {
	p.timer.Stop()
	p.queue.Close()
}
