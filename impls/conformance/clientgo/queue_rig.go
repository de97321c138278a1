package clientgo

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls/conformance"
	"watchlab/impls/deltafifo"
)

// push calls the method of a queue that queues a delta: [cache.ReplacedAll] is a
// Replace, [cache.SyncAll] a Resync.
func (s queueSetup) push(q deltafifo.Queue, d cache.Delta) error {
	switch o := d.Object.(type) {
	case cache.ReplacedAllInfo:
		list := slices.Clone(o.Objects)
		err := q.Replace(list, o.ResourceVersion)
		if !atomicLists(s) || s.objects {
			clear(list) // The list is the caller's, except where it is handed over as one delta.
		}
		return err
	case cache.SyncAllInfo:
		return q.Resync()
	case cache.BookmarkInfo:
		if b, ok := q.(cache.ReflectorBookmarkStore); ok {
			return b.Bookmark(o.ResourceVersion)
		} else if atomicLists(s) {
			return errors.New("the queue does not take bookmarks")
		}
		return nil
	}
	switch d.Type {
	case cache.Added:
		return q.Add(d.Object)
	case cache.Updated:
		return q.Update(d.Object)
	default:
		return q.Delete(d.Object)
	}
}

// popped is what one call of process receives.
type popped struct {
	deltas  []cache.Delta // of family queue one, without a type
	initial bool
	batch   bool
}

// check tests the rules of a call of process.
func (p popped) check(s queueSetup) error {
	n := len(p.deltas)
	switch {
	case n == 0:
		return errors.New("nothing was popped")
	case p.batch && n == 1:
		return errors.New("processBatch received one delta, which goes to process")
	case n == 1:
		return nil
	case p.batch && n > s.batchSize():
		return fmt.Errorf("a batch of %d, more than %d", n, s.batchSize())
	case !p.batch && inOrder(s):
		return fmt.Errorf("process received %d deltas, want one: %v", n, words(p.deltas))
	}
	keys := make(map[string]struct{}, n)
	for _, d := range p.deltas {
		keys[keyOf(d.Object)] = struct{}{}
	}
	switch _, nameless := keys[""]; {
	case p.batch && nameless:
		return fmt.Errorf("a delta without a key shares a batch: %v", words(p.deltas))
	case p.batch && len(keys) < n:
		return fmt.Errorf("a key is twice in the batch %v", words(p.deltas))
	case !p.batch && len(keys) > 1:
		return fmt.Errorf("deltas of two keys in one pop: %v", words(p.deltas))
	}
	return nil
}

// popFrom pops once and returns what Pop or PopBatch returned.
func (s queueSetup) popFrom(q deltafifo.Queue, p path, process func(popped) error) error {
	single := func(obj any, initial bool) error {
		if s.objects {
			return process(popped{deltas: []cache.Delta{{Object: obj}}, initial: initial})
		}
		deltas, ok := obj.(cache.Deltas)
		if !ok {
			return fmt.Errorf("process received a %T, not cache.Deltas", obj)
		}
		return process(popped{deltas: deltas, initial: initial})
	}
	if p == byPop {
		var processed any
		got, err := q.Pop(func(obj any, initial bool) error {
			processed = obj
			return single(obj, initial)
		})
		if lent(s) {
			processed = nil
		}
		if !same(got, processed) {
			return fmt.Errorf("it returned %v from Pop, want %v: what process received, or nil where that is lent", got, processed)
		}
		return err
	}
	return q.(deltafifo.BatchQueue).PopBatch(func(deltas []cache.Delta, initial bool) error {
		return process(popped{deltas: deltas, initial: initial, batch: true})
	}, single)
}

// same reports whether Pop returned what process received.
func same(got, processed any) bool {
	deltas, ok := processed.(cache.Deltas)
	if !ok {
		return got == processed
	}
	have, ok := got.(cache.Deltas)
	return ok && slices.EqualFunc(have, deltas, func(a, b cache.Delta) bool { return words([]cache.Delta{a})[0] == words([]cache.Delta{b})[0] })
}

// queueRig is a queue under test with the store that its consumer fills.
type queueRig struct {
	queueSetup
	t      conformance.TB
	queue  deltafifo.Queue
	store  *consumerStore
	popped []popped
	// drained is the number of calls of process up to the last drain.
	drained int
	// during is called inside process, before the deltas are applied.
	during func(deltas []cache.Delta)
}

// new returns a rig whose queue is closed when the test ends.
func (s queueSetup) new(t conformance.TB, set ...func(*deltafifo.Options)) *queueRig {
	t.Helper()
	r := &queueRig{queueSetup: s, t: t, store: newConsumerStore()}
	opts := s.options(r.store)
	for _, f := range set {
		f(&opts)
	}
	q, err := s.variant.New(opts)
	if err != nil {
		t.Fatalf("New(%+v): %v", opts, err)
	}
	t.Cleanup(q.Close)
	r.queue = q
	return r
}

// on returns a check's function that tests a new rig.
func on(check func(*queueRig)) func(*testing.T, queueSetup) {
	return func(t *testing.T, s queueSetup) { check(s.new(t)) }
}

// bubble is [on] in a bubble.
func bubble(check func(*queueRig)) func(*testing.T, queueSetup) {
	return func(t *testing.T, s queueSetup) {
		conformance.Bubble(t, func(t *testing.T) { check(s.new(t)) })
	}
}

// calls are the calls of a producer that queue something.
func (s queueSetup) calls() []cache.Delta {
	calls := []cache.Delta{
		{Type: cache.Added, Object: pod("new", 1)},
		{Type: cache.Updated, Object: pod("new", 1)},
		{Type: cache.Deleted, Object: pod("a", 1)},
		listOf("1", pod("new", 1)),
	}
	if deletesSeen(s) {
		calls = append(calls, cache.Delta{Type: cache.SyncAll, Object: cache.SyncAllInfo{}})
	}
	if atomicLists(s) {
		calls = append(calls, cache.Delta{Type: cache.Bookmark, Object: cache.BookmarkInfo{ResourceVersion: "6"}})
	}
	return calls
}

// watchdog closes the queue where the test hangs.
func (r *queueRig) watchdog() {
	r.t.Helper()
	conformance.Watchdog(r.t, r.queue.Close)
}

// produce starts n producers, and closes the queue when all have returned.
func (r *queueRig) produce(n int, producer func(p int) error) {
	r.t.Helper()
	r.watchdog()
	var wg sync.WaitGroup
	for p := range n {
		wg.Go(func() {
			if err := producer(p); err != nil {
				r.t.Errorf("producer %d: %v", p, err)
			}
		})
	}
	go func() {
		wg.Wait()
		r.queue.Close()
	}()
}

// once makes f run inside the next call of process only.
func (r *queueRig) once(f func(deltas []cache.Delta)) {
	r.during = func(deltas []cache.Delta) {
		r.during = nil
		f(deltas)
	}
}

// process is the consumer: it applies what it receives to the store.
func (r *queueRig) process(p popped) error {
	if err := p.check(r.queueSetup); err != nil {
		r.t.Error(err)
	}
	if r.during != nil {
		r.during(p.deltas)
	}
	for _, d := range p.deltas {
		r.store.apply(d)
	}
	if lent(r.queueSetup) {
		p.deltas = slices.Clone(p.deltas)
	}
	r.popped = append(r.popped, p)
	return nil
}

func (r *queueRig) pop() error { return r.popFrom(r.queue, r.path, r.process) }

// ended tests that a closed queue is empty.
func (r *queueRig) ended() {
	r.t.Helper()
	if err := r.pop(); !errors.Is(err, cache.ErrFIFOClosed) {
		r.t.Errorf("pop of a closed and empty queue: %v", err)
	}
}

// consume pops until the queue is closed and empty.
func (r *queueRig) consume(process func(popped) error) {
	var err error
	for err == nil {
		err = r.popFrom(r.queue, r.path, process)
	}
	if !errors.Is(err, cache.ErrFIFOClosed) {
		r.t.Error(err)
	}
}

// drain pops until the queue is empty and returns the deltas since the last drain.
func (r *queueRig) drain() []cache.Delta {
	r.t.Helper()
	for r.queue.Len() > 0 {
		if err := r.pop(); err != nil {
			r.t.Fatalf("pop: %v", err)
		}
	}
	from := r.drained
	r.drained = len(r.popped)
	return r.deltas(from)
}

// deltas returns those of the calls of process from one on.
func (r *queueRig) deltas(from int) []cache.Delta {
	var out []cache.Delta
	for _, p := range r.popped[from:] {
		out = append(out, p.deltas...)
	}
	return out
}

// update queues versions of objects, each given as name@version.
func (r *queueRig) update(objects ...string) {
	r.t.Helper()
	for _, o := range objects {
		name, rv, _ := strings.Cut(o, "@")
		r.do(r.queue.Update(pod(name, number(rv))))
	}
}

func (r *queueRig) do(errs ...error) {
	r.t.Helper()
	if err := errors.Join(errs...); err != nil {
		r.t.Fatal(err)
	}
}

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
