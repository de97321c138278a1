package deltafifotest

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls/conformance/internal/async"
	"watchlab/impls/deltafifo"
)

// lifecycleChecks: waiting, closing, failing.
var lifecycleChecks = []check{
	{name: "take waits for an event", places: 1, run: takeWaits},
	{name: "each wait is woken", places: 1, run: everyWaitWoken},
	{name: "close unblocks", places: 1, run: closeUnblocks},
	{name: "close keeps what is queued", places: 3, run: closeDrains},
	{name: "close refuses what comes later", applies: ours, places: 1, run: closeRefuses},
	{name: "no goroutine is left", places: 3, run: noGoroutineLeft},
	{name: "objects without a key", places: 1, run: keyErrors},
	{name: "transformer", places: 2, run: transformer},
	{name: "transformer errors", places: 1, run: transformerErrors},
	{name: "error of process", places: 1, run: processError},
	{name: "panic of process", places: 1, run: processPanic},
	{name: "process may produce", applies: unlocked, places: 3, run: processProduces},
	{name: "producers go on while process runs", applies: unlocked, places: 1001, run: producersGoOn},
}

func takeWaits(t *testing.T, b bed) {
	synctest.Test(t, func(t *testing.T) {
		r := b.new(t)
		result := async.Go(r.take)
		synctest.Wait()
		if err, ok := result(); ok {
			t.Fatalf("take of an empty queue returned %v", err)
		}
		r.do(r.queue.Add(pod("a", 1)))
		synctest.Wait()
		if err, ok := result(); !ok || err != nil {
			t.Fatalf("take did not return after Add (returned=%t, err=%v)", ok, err)
		}
	})
}

// everyWaitWoken puts the consumer to sleep before every kind of event: a
// wake-up that one of them forgets, or that is kept for an earlier wait, leaves
// it asleep.
func everyWaitWoken(t *testing.T, b bed) {
	events := map[string]func(*rig) error{
		"Add":    func(r *rig) error { return r.queue.Add(pod("b", 2)) },
		"Update": func(r *rig) error { return r.queue.Update(pod("b", 2)) },
		"Delete": func(r *rig) error { return r.queue.Delete(pod("a", 2)) },
		"Replace": func(r *rig) error {
			return r.queue.Replace([]any{pod("a", 2)}, "2")
		},
	}
	if !b.Known && perKey(b) {
		// Without KnownObjects the delete of what is not queued is ignored.
		delete(events, "Delete")
	} else {
		events["Resync"] = func(r *rig) error { return r.queue.Resync() }
	}
	for name, event := range events {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := b.new(t)
				r.do(r.queue.Add(pod("a", 1)))
				r.drain()
				for i := range 3 {

					r.store.apply(cache.Delta{Type: cache.Added, Object: pod("a", 1)})
					result := async.Go(r.take)
					synctest.Wait()
					r.do(event(r))
					synctest.Wait()
					if err, ok := result(); !ok || err != nil {
						t.Fatalf("round %d: the consumer was not woken (returned=%t, err=%v)", i, ok, err)
					}
					r.drain()
				}
			})
		})
	}
}

func closeUnblocks(t *testing.T, b bed) {
	synctest.Test(t, func(t *testing.T) {
		r := b.new(t)
		result := async.Go(r.take)
		synctest.Wait()
		r.queue.Close()
		synctest.Wait()
		if err, ok := result(); !ok || !errors.Is(err, cache.ErrFIFOClosed) {
			t.Fatalf("take returned=%t, err=%v, want ErrFIFOClosed", ok, err)
		}
		if err := r.take(); !errors.Is(err, cache.ErrFIFOClosed) {
			t.Fatalf("take of a closed queue: %v", err)
		}
		r.queue.Close()
	})
}

func closeDrains(t *testing.T, b bed) {
	r := b.new(t)
	r.do(r.queue.Add(pod("a", 1)), r.queue.Add(pod("b", 2)), r.queue.Update(pod("c", 3)))
	r.queue.Close()
	var err error
	for err == nil {
		err = r.take()
	}
	if !errors.Is(err, cache.ErrFIFOClosed) {
		t.Fatal(err)
	}
	if got := words(r.deltas(0)); !r.same(got, []string{"Added a@1", "Added b@2", "Updated c@3"}) {
		t.Errorf("a closed queue handed over %v", got)
	}
}

// closeRefuses: what is refused is not handed over.
func closeRefuses(t *testing.T, b bed) {
	r := b.new(t)
	r.do(r.queue.Add(pod("a", 1)))
	r.queue.Close()
	if q, ok := r.queue.(interface{ IsClosed() bool }); ok && !q.IsClosed() {
		t.Error("IsClosed is false after Close")
	}
	calls := map[string]func() error{
		"Add":     func() error { return r.queue.Add(pod("b", 2)) },
		"Update":  func() error { return r.queue.Update(pod("a", 3)) },
		"Delete":  func() error { return r.queue.Delete(pod("a", 4)) },
		"Replace": func() error { return r.queue.Replace([]any{pod("c", 5)}, "5") },
	}
	if b.Known || inOrder(b) {
		calls["Resync"] = r.queue.Resync
	}
	if bookmark, ok := r.queue.(cache.ReflectorBookmarkStore); ok && whole(b) {
		calls["Bookmark"] = func() error { return bookmark.Bookmark("6") }
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, cache.ErrFIFOClosed) {
			t.Errorf("%s after Close returned %v, want ErrFIFOClosed", name, err)
		}
	}
	r.expect("Added a@1")
	if err := r.take(); !errors.Is(err, cache.ErrFIFOClosed) {
		t.Errorf("take of a closed and drained queue: %v", err)
	}
}

// noGoroutineLeft: a queue that is closed leaves none behind, drained or not,
// idle or with a consumer that waits.
func noGoroutineLeft(t *testing.T, b bed) {
	for name, use := range map[string]func(*rig){
		"idle":    func(*rig) {},
		"drained": func(r *rig) { r.do(r.queue.Add(pod("a", 1))); r.drain() },
		"full":    func(r *rig) { r.do(r.queue.Add(pod("a", 1)), r.queue.Add(pod("b", 2)), r.queue.Update(pod("c", 3))) },
		"waiting": func(r *rig) { go func() { _ = r.take() }(); synctest.Wait() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				before := runtime.NumGoroutine()
				r := b.new(t)
				use(r)
				r.queue.Close()
				synctest.Wait()

				for try := 0; try < 100_000 && runtime.NumGoroutine() > before; try++ {
					runtime.Gosched()
				}
				if n := runtime.NumGoroutine(); n > before {
					t.Errorf("%d goroutines more than before", n-before)
					r.drain()
				}
			})
		})
	}
}

func keyErrors(t *testing.T, b bed) {
	r := b.new(t)
	calls := map[string]func(any) error{"Add": r.queue.Add, "Update": r.queue.Update, "Delete": r.queue.Delete}
	if !whole(b) {
		// An atomic Replace is one delta and needs no keys.
		calls["Replace"] = func(obj any) error { return r.queue.Replace([]any{obj}, "1") }
	}
	for name, call := range calls {
		var keyError cache.KeyError
		if err := call(nameless{}); !errors.As(err, &keyError) {
			t.Errorf("%s of an object without a key returned %v, want a KeyError", name, err)
		}
	}
	if n := r.queue.Len(); n != 0 {
		t.Errorf("%d wait after calls that failed", n)
	}
}

func transformer(t *testing.T, b bed) {
	calls := map[any]int{}
	r := b.new(t, func(o *deltafifo.Options) {
		o.Transformer = func(obj any) (any, error) {
			if _, tombstone := obj.(cache.DeletedFinalStateUnknown); tombstone {
				t.Errorf("the transformer was given a tombstone")
			}
			calls[obj]++
			p := obj
			return pod(keyOf(p), version(p)+100), nil
		}
	})
	if s, ok := r.queue.(cache.TransformingStore); !ok || s.Transformer() == nil {
		t.Error("the queue does not tell the Reflector its transformer")
	}
	a, b1, c := pod("a", 1), pod("b", 2), pod("c", 3)
	if whole(b) {
		r.do(r.queue.Replace([]any{c}, "3"))
		r.drain()
		if got := r.store.state(); fmt.Sprint(got) != "[c@103]" {
			t.Errorf("after Replace the consumer has %v", got)
		}
	} else {
		r.do(r.queue.Replace([]any{c}, "3"))
		r.expect("Replaced c@103")
	}
	r.do(r.queue.Add(a), r.queue.Update(b1))
	r.expect("Added a@101", "Updated b@102")
	gone := pod("a", 4)
	r.do(r.queue.Update(pod("a", 5)), r.queue.Delete(gone))
	r.expect("Updated a@105", "Deleted a@104")
	r.do(r.queue.Update(pod("b", 6)), r.queue.Delete(cache.DeletedFinalStateUnknown{Key: "b", Obj: pod("b", 6)}))
	r.expect("Updated b@106", "Deleted b@6†")
	for obj, n := range calls {
		if n != 1 {
			t.Errorf("the transformer was applied %d times to %v", n, obj)
		}
	}
	if b.Known {
		before := len(calls)
		r.do(r.queue.Resync())
		r.expect("Sync c@103")
		if len(calls) != before {
			t.Error("the transformer was applied to the object of a Sync")
		}
	}
}

func transformerErrors(t *testing.T, b bed) {
	boom := errors.New("boom")
	r := b.new(t, func(o *deltafifo.Options) {
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
		t.Errorf("%d wait after calls that failed", n)
	}
}

func processError(t *testing.T, b bed) {
	r := b.new(t)
	boom := errors.New("boom")
	r.do(r.queue.Add(pod("a", 1)))
	fail := func(any, bool) error { return boom }
	var err error
	if b.path == byPop {
		var got any
		got, err = r.queue.Pop(fail)
		if d, ok := got.(cache.Deltas); b.lent() && got != nil || !b.lent() && (!ok || len(d) != 1) {
			t.Errorf("Pop returned %v, want what process was handed, or nil where that is lent", got)
		}
	} else {
		err = r.queue.(deltafifo.BatchQueue).PopBatch(func([]cache.Delta, bool) error { return boom }, fail)
	}
	if !errors.Is(err, boom) {
		t.Errorf("take returned %v, want the error of process", err)
	}
	r.do(r.queue.Add(pod("b", 2)))
	r.expect("Added b@2")
}

func processPanic(t *testing.T, b bed) {
	r := b.new(t)
	r.do(r.queue.Replace([]any{pod("a", 1)}, "1"))
	r.during = func([]cache.Delta) { panic("boom") }
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic of process was swallowed")
			}
		}()
		_ = r.take()
	}()
	r.during = nil
	if !r.queue.HasSynced() {
		t.Error("process is done with the initial list, though by a panic: HasSynced must be true")
	}
	r.do(r.queue.Add(pod("b", 2)))
	r.expect("Added b@2")
}

func processProduces(t *testing.T, b bed) {
	r := b.new(t)
	r.do(r.queue.Add(pod("a", 1)))
	once := true
	r.during = func([]cache.Delta) {
		if once {
			once = false
			r.do(r.queue.Update(pod("a", 2)), r.queue.Add(pod("b", 3)))
		}
	}
	r.expectEach("Added a@1", "Updated a@2", "Added b@3")
}

func producersGoOn(t *testing.T, b bed) {
	r := b.new(t)
	r.do(r.queue.Add(pod("a", 1)))
	once := true
	r.during = func([]cache.Delta) {
		if !once {
			return
		}
		once = false
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := range 1000 {
				_ = r.queue.Update(pod(fmt.Sprintf("k%d", i), i))
			}
		}()
		<-done
	}
	if n := len(r.drain()); n != 1001 {
		t.Errorf("%d deltas came out, want 1001", n)
	}
}
