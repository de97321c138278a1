package clientgo

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/anishathalye/porcupine"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/conformance"
)

// The operations of a history, besides the [cache.Delta] of a producer's call, whose
// output is the error.
type (
	// popOp lasts from the call of Pop to that of process; its output is a
	// popped or, where process was not called, the error.
	popOp struct{ consumer int }
	// doneOp lasts from the return of process to that of Pop.
	doneOp   struct{ consumer int }
	lengthOp struct{} // Len
	closeOp  struct{}
)

func queueMachine(s queueSetup) conformance.Machine[*queueModel] {
	return conformance.Machine[*queueModel]{Init: func() *queueModel { return newQueueModel(s, true) }, Step: queueStep, Describe: describe}
}

// queueStep returns the states that an operation may lead to, or why it cannot happen.
func queueStep(before *queueModel, in, out any) ([]*queueModel, error) {
	m := before.clone()
	failed, _ := out.(error)
	var err error
	switch op := in.(type) {
	case cache.Delta:
		err = m.call(op, failed)
	case popOp:
		if got, ok := out.(popped); ok {
			err = m.popped(op.consumer, got)
		} else {
			err = m.ended()
		}
	case doneOp:
		return before.afterDone(op.consumer), nil
	case lengthOp:
		if m.live != out {
			err = fmt.Errorf("length is %d, not %d", m.live, out)
		}
	case closeOp:
		m.closed = true
	}
	if err != nil {
		return nil, err
	}
	return []*queueModel{m}, nil
}

func describe(in, out any) string {
	call := fmt.Sprintf("%T%v", in, in)
	if d, ok := in.(cache.Delta); ok {
		call = word(d)
	}
	if p, ok := out.(popped); ok {
		out = words(p.deltas)
	}
	return fmt.Sprintf("%s → %v", call, out)
}

// linearizableSetup leaves out upstream's RealFIFO, which calls process of several consumers at
// once where it unlocks.
func linearizableSetup(s queueSetup) bool { return s.objects || ours(s) || perKey(s) }

// linearizableQueue checks small histories of three producers, Replace, Resync,
// bookmarks, Close and the end of the context, and one or several consumers.
func linearizableQueue(t *testing.T, s queueSetup) {
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
		conformance.Linearizable(t, queueMachine(s), seed, s.history(t, seed, consumers))
	}
}

// history runs random operations and records them. The queue is closed at some
// time and drained in the end, so that a lost event shows.
func (s queueSetup) history(t *testing.T, seed uint64, consumers int) []porcupine.Operation {
	const producers = 3
	each := 5
	if s.objects {
		each = 7
	}
	r := s.new(t)
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
				c.Call(closeOp{}, closes)
			}
		})
	}
	for i, c := range clients[producers:] {
		consuming.Go(func() { r.record(c, i) })
	}
	producing.Wait()
	clients[0].Call(closeOp{}, closes)
	consuming.Wait()
	return conformance.Operations(clients)
}

// randomCall does one operation of a producer.
func (r *queueRig) randomCall(c *conformance.Client, rv int) {
	obj, version := pod(string(rune('a'+c.IntN(3))), rv), strconv.Itoa(rv)
	d := cache.Delta{Type: cache.Updated, Object: obj}
	switch roll := c.IntN(10); {
	case roll == 0:
		d = listOf(version, []any{obj, pod("d", rv)}[c.IntN(2):]...)
	case roll == 1 && r.objects:
		if !manyAtOnce(r.queueSetup) { // Shards are not counted at one moment.
			began := c.Now()
			n := r.queue.Len()
			c.Record(began, lengthOp{}, n)
		}
		return
	case roll == 1:
		d = cache.Delta{Type: cache.SyncAll, Object: cache.SyncAllInfo{}}
	case roll == 2 && atomicLists(r.queueSetup):
		d = cache.Delta{Type: cache.Bookmark, Object: cache.BookmarkInfo{ResourceVersion: version}}
	case roll < 6:
		d.Type = cache.Deleted
	case roll == 6:
		d.Type = cache.Added
	}
	c.Call(d, func() error { return r.push(r.queue, d) })
}

// record consumes and records the pops.
func (r *queueRig) record(c *conformance.Client, consumer int) {
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
