package queuetest

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/conformance"
	"watchlab/impls/deltafifo"
)

// lifecycleChecks: waiting, closing, failing.
var lifecycleChecks = []check{
	{Name: "pop waits for an event", For: room(1), Run: popWaits},
	{Name: "every wait is woken", For: room(1), Run: everyWaitWoken},
	{Name: "Close unblocks pop", Run: closeUnblocks},
	{Name: "queued events survive Close", For: room(3), Run: closeKeeps},
	{Name: "calls after Close are refused", For: all(ours, room(1)), Run: closeRefuses},
	{Name: "no goroutine leaks", For: room(3), Run: noGoroutineLeft},
	{Name: "objects without a key", For: room(1), Run: keyErrors},
	{Name: "keys of a function", For: all(objects, room(2)), Run: keyFunction},
	{Name: "transformer", For: all(deltas, room(2)), Run: transformer},
	{Name: "transformer errors", For: all(deltas, room(1)), Run: transformerErrors},
	{Name: "process returns an error", For: room(1), Run: processError},
	{Name: "process panics", For: room(1), Run: processPanic},
	{Name: "process may produce", For: all(unlocked, room(3)), Run: processProduces},
	{Name: "producers go on during process", For: all(unlocked, room(1001)), Run: producersGoOn},
	{Name: "idle costs no CPU time", For: all(ours, idleSetup), Run: idleCost},
}

func popWaits(t *testing.T, s setup) {
	synctest.Test(t, func(t *testing.T) {
		r := s.new(t)
		pop := conformance.Async(r.pop)
		synctest.Wait()
		if ok, err := pop.Returned(); ok {
			t.Fatalf("pop of an empty queue returned %v", err)
		}
		if !inOrder(s) { // The delete of an unknown key is ignored.
			r.do(r.queue.Delete(pod("a", 1)))
			synctest.Wait()
			if ok, err := pop.Returned(); ok {
				t.Fatalf("pop returned %v after a delete", err)
			}
		}
		r.do(r.queue.Add(pod("a", 1)))
		synctest.Wait()
		if ok, err := pop.Returned(); !ok || err != nil {
			t.Fatalf("pop did not return after Add (returned=%t, err=%v)", ok, err)
		}
	})
}

// everyWaitWoken puts the consumer to sleep before each kind of event: a
// forgotten wake-up, or one kept for an earlier wait, leaves it asleep.
func everyWaitWoken(t *testing.T, s setup) {
	events := map[string]func(*rig) error{
		"Add":     func(r *rig) error { return r.queue.Add(pod("b", 2)) },
		"Update":  func(r *rig) error { return r.queue.Update(pod("b", 2)) },
		"Replace": func(r *rig) error { return r.queue.Replace([]any{pod("a", 2)}, "2") },
	}
	if deletesSeen(s) {
		events["Delete"] = func(r *rig) error { return r.queue.Delete(pod("a", 2)) }
	}
	if deltas(s) && deletesSeen(s) {
		events["Resync"] = func(r *rig) error { return r.queue.Resync() }
	}
	for name, event := range events {
		synctest.Test(t, func(t *testing.T) {
			r := s.new(t)
			r.do(r.queue.Add(pod("a", 1)))
			r.drain()
			for i := range 3 {
				r.store.apply(cache.Delta{Type: cache.Added, Object: pod("a", 1)})
				pop := conformance.Async(r.pop)
				synctest.Wait()
				if s.objects {
					r.do(r.queue.Delete(pod("b", 0)))
				}
				r.do(event(r))
				synctest.Wait()
				if ok, err := pop.Returned(); !ok || err != nil {
					t.Fatalf("%s, round %d: the consumer was not woken (returned=%t, err=%v)", name, i, ok, err)
				}
				r.drain()
			}
		})
	}
}

func closeUnblocks(t *testing.T, s setup) {
	synctest.Test(t, func(t *testing.T) {
		r := s.new(t)
		pop := conformance.Async(r.pop)
		synctest.Wait()
		r.queue.Close()
		synctest.Wait()
		if ok, err := pop.Returned(); !ok || !errors.Is(err, cache.ErrFIFOClosed) {
			t.Fatalf("pop returned=%t, err=%v, want ErrFIFOClosed", ok, err)
		}
		if err := r.pop(); !errors.Is(err, cache.ErrFIFOClosed) {
			t.Fatalf("pop of a closed queue: %v", err)
		}
		r.queue.Close()
	})
}

// closeKeeps pops without Len, which might apply what Pop should.
func closeKeeps(t *testing.T, s setup) {
	r := s.new(t)
	r.do(r.queue.Add(pod("a", 1)), r.queue.Add(pod("b", 2)), r.queue.Update(pod("c", 3)))
	r.queue.Close()
	r.popAll()
	if got := r.all(); !r.same(got, []string{"Added a@1", "Added b@2", "Updated c@3"}) {
		t.Errorf("a closed queue delivered %v", got)
	}
}

// closeRefuses: what is refused is not delivered.
func closeRefuses(t *testing.T, s setup) {
	r := s.new(t)
	r.do(r.queue.Add(pod("a", 1)))
	r.queue.Close()
	if q, ok := r.queue.(interface{ IsClosed() bool }); ok && !q.IsClosed() {
		t.Error("IsClosed is false after Close")
	}
	for name, call := range r.calls() {
		if err := call(); !errors.Is(err, cache.ErrFIFOClosed) {
			t.Errorf("%s after Close returned %v, want ErrFIFOClosed", name, err)
		}
	}
	r.expect("Added a@1")
	if err := r.pop(); !errors.Is(err, cache.ErrFIFOClosed) {
		t.Errorf("pop of a closed and empty queue: %v", err)
	}
}

// calls are the calls of a producer that queue something.
func (r *rig) calls() map[string]func() error {
	calls := map[string]func() error{
		"Add":     func() error { return r.queue.Add(pod("new", 1)) },
		"Update":  func() error { return r.queue.Update(pod("new", 1)) },
		"Delete":  func() error { return r.queue.Delete(pod("a", 1)) },
		"Replace": func() error { return r.queue.Replace([]any{pod("new", 1)}, "1") },
	}
	if deletesSeen(r.setup) {
		calls["Resync"] = r.queue.Resync
	}
	if bookmark, ok := r.queue.(cache.ReflectorBookmarkStore); ok && atomicLists(r.setup) {
		calls["Bookmark"] = func() error { return bookmark.Bookmark("6") }
	}
	return calls
}

// noGoroutineLeft: a closed queue leaves no goroutine, drained or not, idle or
// with a waiting consumer.
func noGoroutineLeft(t *testing.T, s setup) {
	for name, use := range map[string]func(*rig){
		"idle":    func(*rig) {},
		"drained": func(r *rig) { r.do(r.queue.Add(pod("a", 1))); r.drain() },
		"filled":  func(r *rig) { r.do(r.queue.Add(pod("a", 1)), r.queue.Add(pod("b", 2)), r.queue.Update(pod("c", 3))) },
		"waiting": func(r *rig) { go func() { _ = r.pop() }(); synctest.Wait() },
	} {
		synctest.Test(t, func(t *testing.T) {
			before := runtime.NumGoroutine()
			r := s.new(t)
			use(r)
			r.queue.Close()
			synctest.Wait()
			for try := 0; try < 100_000 && runtime.NumGoroutine() > before; try++ {
				runtime.Gosched()
			}
			if n := runtime.NumGoroutine(); n > before {
				t.Errorf("%s: %d goroutines more than before", name, n-before)
				r.drain()
			}
		})
	}
}

func keyErrors(t *testing.T, s setup) {
	r := s.new(t)
	calls := map[string]func(any) error{"Add": r.queue.Add, "Update": r.queue.Update, "Delete": r.queue.Delete}
	var before []any
	if s.objects {
		r.do(r.queue.Add(pod("kept", 1)))
		before = append(before, pod("a", 1))
	}
	if !atomicLists(s) { // One that is atomic is one delta and needs no keys.
		calls["Replace"] = func(obj any) error { return r.queue.Replace(append(before, obj), "1") }
	}
	for name, call := range calls {
		var keyError cache.KeyError
		if err := call(nameless{}); !errors.As(err, &keyError) {
			t.Errorf("%s of an object without a key returned %v, want a KeyError", name, err)
		}
	}
	if s.objects {
		r.expect("Added kept@1")
	} else if n := r.queue.Len(); n != 0 {
		t.Errorf("Len is %d after calls that failed", n)
	}
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
	r.do(r.queue.Replace([]any{pod("c", 3)}, "3"))
	if atomicLists(s) {
		r.drain()
		if got := r.store.state(); fmt.Sprint(got) != "[c@103]" {
			t.Errorf("after Replace the store has %v", got)
		}
	} else {
		r.expect("Replaced c@103")
	}
	r.do(r.queue.Add(pod("a", 1)), r.queue.Update(pod("b", 2)))
	r.expect("Added a@101", "Updated b@102")
	r.do(r.queue.Update(pod("a", 5)), r.queue.Delete(pod("a", 4)))
	r.expect("Updated a@105", "Deleted a@104")
	r.do(r.queue.Update(pod("b", 6)), r.queue.Delete(cache.DeletedFinalStateUnknown{Key: "b", Obj: pod("b", 6)}))
	r.expect("Updated b@106", "Deleted b@6†")
	for obj, n := range calls {
		if n != 1 {
			t.Errorf("the transformer was applied %d times to %v", n, obj)
		}
	}
	if s.known {
		before := len(calls)
		r.do(r.queue.Resync())
		r.expect("Sync c@103")
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
	for name, call := range map[string]func(any) error{
		"Add": r.queue.Add, "Update": r.queue.Update,
		"Replace": func(obj any) error { return r.queue.Replace([]any{obj}, "1") },
	} {
		// DeltaFIFO wraps with %v in Replace, hence the text.
		if err := call(pod("a", 1)); err == nil || !errors.Is(err, boom) && name != "Replace" {
			t.Errorf("%s returned %v, want the transformer's error", name, err)
		}
	}
	if n := r.queue.Len(); n != 0 {
		t.Errorf("Len is %d after calls that failed", n)
	}
}

func processError(t *testing.T, s setup) {
	r := s.new(t)
	boom := errors.New("boom")
	r.do(r.queue.Add(pod("a", 1)))
	fail := func(any, bool) error { return boom }
	var err error
	if s.path == byBatch {
		err = r.queue.(deltafifo.BatchQueue).PopBatch(func([]cache.Delta, bool) error { return boom }, fail)
	} else {
		var got any
		got, err = r.queue.Pop(fail)
		d, isDeltas := got.(cache.Deltas)
		p, isPod := got.(*v1.Pod)
		if !(lent(s) && got == nil || owned(s) && isDeltas && len(d) == 1 || s.objects && isPod && p.Name == "a") {
			t.Errorf("Pop returned %v, want what process received, or nil where that is lent", got)
		}
	}
	if !errors.Is(err, boom) {
		t.Errorf("pop returned %v, want the error of process", err)
	}
	r.do(r.queue.Add(pod("b", 2)))
	r.expect("Added b@2")
}

func processPanic(t *testing.T, s setup) {
	r := s.new(t)
	r.do(r.queue.Replace([]any{pod("a", 1)}, "1"))
	r.once(func([]cache.Delta) { panic("boom") })
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic of process was swallowed")
			}
		}()
		_ = r.pop()
	}()
	r.synced(true, "after process was done with the initial list, though by a panic")
	r.do(r.queue.Add(pod("a", 2)))
	r.expect("Added a@2")
}

func processProduces(t *testing.T, s setup) {
	r := s.new(t)
	r.do(r.queue.Add(pod("a", 1)))
	r.once(func([]cache.Delta) { r.do(r.queue.Update(pod("a", 2)), r.queue.Add(pod("b", 3))) })
	r.expectEach("Added a@1", "Updated a@2", "Added b@3")
}

func producersGoOn(t *testing.T, s setup) {
	r := s.new(t)
	r.do(r.queue.Add(pod("a", 1)))
	r.once(func([]cache.Delta) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := range 1000 {
				_ = r.queue.Update(pod(fmt.Sprintf("k%d", i), i))
			}
		}()
		<-done
	})
	if n := len(r.drain()); n != 1001 {
		t.Errorf("popped %d events, want 1001", n)
	}
}

// idleSetup leaves out options that make no difference to a sleeping queue.
func idleSetup(s setup) bool {
	if s.objects {
		return s.Capacity <= 1
	}
	return s.path == byPop && !s.known && !lent(s) && !latest(s) && s.Capacity <= 7
}

// idleCost measures a queue whose consumer sleeps and, where it is bounded, one
// whose producers sleep.
func idleCost(t *testing.T, s setup) {
	empty, full := s.new(t), s.new(t)
	calls := []conformance.Call{conformance.Async(empty.pop)}
	if bounded(s) {
		for i := range s.Capacity {
			full.do(full.queue.Add(pod(fmt.Sprintf("k%d", i), i)))
		}
		for range 2 {
			calls = append(calls, conformance.Async(func() error { return full.queue.Add(pod("late", 1)) }))
		}
	}
	conformance.Idle(t)
	empty.queue.Close()
	full.queue.Close()
	for _, c := range calls {
		if err := c.Wait(); !errors.Is(err, cache.ErrFIFOClosed) {
			t.Errorf("a call that Close ends returned %v", err)
		}
	}
}
