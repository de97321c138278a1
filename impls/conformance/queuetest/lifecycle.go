package queuetest

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/conformance"
	"watchlab/impls/deltafifo"
)

// lifecycleChecks: waiting, closing, failing.
var lifecycleChecks = []check{
	{Name: "pop waits for an event", For: room(1), Run: bubble(popWaits)},
	{Name: "every wait is woken", For: room(1), Run: everyWaitWoken},
	{Name: "Close unblocks pop", Run: bubble(closeUnblocks)},
	{Name: "queued events survive Close", For: room(3), Run: on(closeKeeps)},
	{Name: "calls after Close have no effect", For: all(ours, room(1)), Run: on(closeDrops)},
	{Name: "no goroutine leaks", For: room(3), Run: noGoroutineLeft},
	{Name: "objects without a key", For: room(1), Run: on(keyErrors)},
	{Name: "keys of a function", For: all(objects, room(2)), Run: keyFunction},
	{Name: "transformer", For: all(deltas, room(2)), Run: transformer},
	{Name: "transformer errors", For: all(deltas, room(1)), Run: transformerErrors},
	{Name: "process returns an error", For: room(1), Run: on(processError)},
	{Name: "process panics", For: room(1), Run: on(processPanic)},
	{Name: "process may produce", For: all(unlocked, room(3)), Run: script(`
		add a@1
		inside update a@2, add b@3
		each Added a@1, Updated a@2, Added b@3`)},
	{Name: "producers go on during process", For: all(unlocked, room(1001)), Run: on(producersGoOn)},
	{Name: "idle costs no CPU time", For: all(ours, idleSetup), Run: idleCost},
}

func popWaits(r *rig) {
	pop := conformance.Async(r.pop)
	pop.Sleeps(r.t, "pop of an empty queue")
	if !inOrder(r.setup) { // The delete of an unknown key is ignored.
		r.do(r.queue.Delete(pod("a", 1)))
		pop.Sleeps(r.t, "after a delete")
	}
	r.do(r.queue.Add(pod("a", 1)))
	pop.Returns(r.t, nil, "after Add")
}

// everyWaitWoken puts the consumer to sleep before each kind of event: a
// forgotten wake-up, or one kept for an earlier wait, leaves it asleep.
func everyWaitWoken(t *testing.T, s setup) {
	for _, call := range s.calls() {
		if call.Type == cache.Deleted && !deletesSeen(s) {
			continue // It queues nothing.
		}
		synctest.Test(t, func(t *testing.T) {
			r := s.new(t)
			r.run("add a@1, drain")
			for i := range 3 {
				r.store.apply(cache.Delta{Type: cache.Added, Object: pod("a", 1)})
				pop := conformance.Async(r.pop)
				synctest.Wait()
				if s.objects {
					r.do(r.queue.Delete(pod("new", 0)))
				}
				r.do(r.push(r.queue, call))
				pop.Returns(t, nil, fmt.Sprintf("round %d, after %s", i, word(call)))
				r.drain()
			}
		})
	}
}

func closeUnblocks(r *rig) {
	pop := conformance.Async(r.pop)
	synctest.Wait()
	r.queue.Close()
	pop.Returns(r.t, cache.ErrFIFOClosed, "after Close")
	r.ended()
	r.queue.Close()
}

// closeKeeps pops without Len, which might apply what Pop should.
func closeKeeps(r *rig) {
	r.run("add a@1, add b@2, update c@3")
	r.queue.Close()
	r.consume(r.process)
	if got := r.all(); !r.same(got, []string{"Added a@1", "Added b@2", "Updated c@3"}) {
		r.t.Errorf("a closed queue delivered %v", got)
	}
}

// closeDrops: what came after Close is not delivered.
func closeDrops(r *rig) {
	r.do(r.queue.Add(pod("a", 1)))
	r.queue.Close()
	if q, ok := r.queue.(interface{ IsClosed() bool }); ok && !q.IsClosed() {
		r.t.Error("IsClosed is false after Close")
	}
	for _, call := range r.calls() {
		if err := r.push(r.queue, call); err != nil {
			r.t.Errorf("%s after Close returned %v, want nil", word(call), err)
		}
	}
	if n := r.queue.Len(); n != 1 {
		r.t.Errorf("Len is %d after calls after Close, want 1", n)
	}
	r.expect("Added a@1")
	r.ended()
}

// noGoroutineLeft: a closed queue leaves no goroutine, drained or not, idle or
// with a waiting consumer. A bubble panics at its end if one is left.
func noGoroutineLeft(t *testing.T, s setup) {
	for name, use := range map[string]func(*rig){
		"idle":    func(*rig) {},
		"drained": func(r *rig) { r.run("add a@1, drain") },
		"filled":  func(r *rig) { r.run("add a@1, add b@2, update c@3") },
		"waiting": func(r *rig) { go func() { _ = r.pop() }(); synctest.Wait() },
	} {
		synctest.Test(t, func(t *testing.T) {
			t.Log(name)
			r := s.new(t)
			use(r)
			r.queue.Close()
		})
	}
}

func keyErrors(r *rig) {
	calls := []cache.Delta{
		{Type: cache.Added, Object: nameless{}}, {Type: cache.Updated, Object: nameless{}}, {Type: cache.Deleted, Object: nameless{}},
	}
	unchanged := "len 0"
	switch {
	case r.objects: // Nothing of the list takes effect.
		r.run("add kept@1")
		unchanged = "want Added kept@1"
		calls = append(calls, listOf("1", pod("a", 1), nameless{}))
	case splitLists(r.setup): // One that is atomic is one delta and needs no keys.
		calls = append(calls, listOf("1", nameless{}))
	}
	for _, call := range calls {
		var keyError cache.KeyError
		if err := r.push(r.queue, call); !errors.As(err, &keyError) {
			r.t.Errorf("%s of an object without a key returned %v, want a KeyError", word(call), err)
		}
	}
	r.run(unchanged)
}

func keyFunction(t *testing.T, s setup) {
	r := s.new(t, func(o *deltafifo.Options) {
		o.KeyFunction = func(obj any) (string, error) { return obj.(*v1.Pod).Labels["key"], nil }
	})
	labelled := func(name, key string) *v1.Pod {
		p := pod(name, 1)
		p.Labels = map[string]string{"key": key}
		return p
	}
	r.do(r.queue.Add(labelled("a", "x")), r.queue.Add(labelled("b", "y")), r.queue.Add(labelled("c", "x")))
	r.expect("Added c@1", "Added b@1")
}

func transformer(t *testing.T, s setup) {
	calls := map[any]int{}
	r := s.new(t, func(o *deltafifo.Options) {
		o.Transformer = func(obj any) (any, error) {
			if _, tombstone := obj.(cache.DeletedFinalStateUnknown); tombstone {
				t.Errorf("the transformer received a tombstone")
			}
			calls[obj]++
			return pod(keyOf(obj), version(obj)+100), nil
		}
	})
	if q, ok := r.queue.(cache.TransformingStore); !ok || q.Transformer() == nil {
		t.Error("the queue does not expose its transformer to the Reflector")
	}
	r.run(`
		replace c@3
		state c@103
		add a@1, update b@2
		want Added a@101, Updated b@102
		update a@5, delete a@4
		want Updated a@105, Deleted a@104
		update b@6, bury b@6
		want Updated b@106, Deleted b@6†`)
	for obj, n := range calls {
		if n != 1 {
			t.Errorf("the transformer was applied %d times to %v", n, obj)
		}
	}
	if s.known {
		before := len(calls)
		r.run("resync\nwant Sync c@103")
		if len(calls) != before {
			t.Error("the transformer was applied to the object of a Sync")
		}
	}
}

func transformerErrors(t *testing.T, s setup) {
	boom := errors.New("boom")
	r := s.new(t, func(o *deltafifo.Options) {
		o.Transformer = func(any) (any, error) { return nil, boom }
	})
	for _, call := range s.calls() {
		switch call.Type {
		case cache.Added, cache.Updated, cache.ReplacedAll:
			// DeltaFIFO wraps with %v in Replace, hence the text.
			if err := s.push(r.queue, call); err == nil || !errors.Is(err, boom) && call.Type != cache.ReplacedAll {
				t.Errorf("%s returned %v, want the transformer's error", word(call), err)
			}
		}
	}
	r.run("len 0")
}

func processError(r *rig) {
	r.do(r.queue.Add(pod("a", 1)))
	fail := func(any, bool) error { return errProcess }
	var err error
	if r.path == byBatch {
		err = r.queue.(deltafifo.BatchQueue).PopBatch(func([]cache.Delta, bool) error { return errProcess }, fail)
	} else {
		var got any
		got, err = r.queue.Pop(fail)
		d, isDeltas := got.(cache.Deltas)
		p, isPod := got.(*v1.Pod)
		if !(lent(r.setup) && got == nil || owned(r.setup) && isDeltas && len(d) == 1 || r.objects && isPod && p.Name == "a") {
			r.t.Errorf("Pop returned %v, want what process received, or nil where that is lent", got)
		}
	}
	if !errors.Is(err, errProcess) {
		r.t.Errorf("pop returned %v, want the error of process", err)
	}
	r.run("add b@2\nwant Added b@2")
}

func processPanic(r *rig) {
	r.do(r.queue.Replace([]any{pod("a", 1)}, "1"))
	r.once(func([]cache.Delta) { panic(errProcess) })
	if err := recovered(r.pop); !errors.Is(err, errProcess) {
		r.t.Errorf("the panic of process was swallowed: %v", err)
	}
	r.synced(true, "after process was done with the initial list, though by a panic")
	r.run("add a@2\nwant Added a@2")
}

func producersGoOn(r *rig) {
	r.do(r.queue.Add(pod("a", 1)))
	if ours(r.setup) && !throttled(r.setup) && !bounded(r.setup) {
		r.long()
	}
	want := r.queue.Len() + 1000
	r.once(func([]cache.Delta) {
		r.do(conformance.Async(func() (err error) {
			for i := range 1000 {
				err = errors.Join(err, r.queue.Update(pod(fmt.Sprint("new", i), i)))
			}
			return err
		}).Wait())
	})
	if n := len(r.drain()); n != want {
		r.t.Errorf("popped %d events, want %d", n, want)
	}
}

// idleSetup leaves out options that make no difference to a sleeping queue.
func idleSetup(s setup) bool {
	return s.Capacity <= 1 && (s.objects || s.path == byPop && !s.known && !lent(s) && !latest(s))
}

// idleCost: the consumer of an empty queue and the producers of a full one sleep. A goroutine that spins
// keeps the bubble from settling.
func idleCost(t *testing.T, s setup) {
	conformance.Watchdog(t, func() { panic("a goroutine of an idle queue spins") })
	synctest.Test(t, func(t *testing.T) { sleepIdle(t, s) })
}

func sleepIdle(t *testing.T, s setup) {
	empty, full := s.new(t), s.new(t)
	pop := conformance.Async(empty.pop)
	var calls []conformance.Call
	if bounded(s) {
		full.fillBlocking()
		for range 2 {
			calls = append(calls, conformance.Async(func() error { return full.queue.Add(pod("late", 1)) }))
		}
	}
	synctest.Wait()
	empty.queue.Close()
	full.queue.Close()
	if err := pop.Wait(); !errors.Is(err, cache.ErrFIFOClosed) {
		t.Errorf("a pop that Close ends returned %v", err)
	}
	for _, c := range calls {
		if err := c.Wait(); err != nil {
			t.Errorf("a call that Close ends returned %v", err)
		}
	}
}
