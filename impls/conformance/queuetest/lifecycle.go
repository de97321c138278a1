package queuetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/conformance/internal/async"
	"watchlab/impls/queue"
)

// lifecycleChecks: waiting, Close, the initial list, and a process that fails.
var lifecycleChecks = []check{
	{name: "take waits for an event", run: takeWaits},
	{name: "each wait is woken", run: everyWaitWoken},
	{name: "close unblocks", run: closeUnblocks},
	{name: "close keeps what waits", places: 2, run: closeDrains},
	{name: "close ends what the queue runs", places: 2, run: closeEnds},
	{name: "what comes after close", applies: ours, run: afterClose},
	{name: "objects without a key", run: keyErrors},
	{name: "keys of a function", places: 4, run: keyFunction},
	{name: "has synced", run: hasSynced},
	{name: "has synced when the initial list is deleted", places: 1, run: hasSyncedDeleted},
	{name: "has synced only when process has returned", applies: unlocked, run: hasSyncedLate},
	{name: "a list that takes the place of the initial one", applies: ours, run: secondList},
	{name: "initial list flag", run: initialFlag},
	{name: "error of process", run: processError},
	{name: "panic of process", run: processPanic},
}

func takeWaits(t *testing.T, b bed) {
	synctest.Test(t, func(t *testing.T) {
		r := b.new(t)
		result := async.Go(r.take)
		synctest.Wait()
		if err, ok := result(); ok {
			t.Fatalf("Pop of an empty queue returned %v", err)
		}
		r.do(r.queue.Delete(pod("a", 1)))
		synctest.Wait()
		if err, ok := result(); ok {
			t.Fatalf("Pop returned %v after a delete", err)
		}
		r.do(r.queue.Add(pod("a", 2)))
		synctest.Wait()
		if err, ok := result(); !ok || err != nil {
			t.Fatalf("Pop did not return after Add (returned=%t, err=%v)", ok, err)
		}
	})
}

func everyWaitWoken(t *testing.T, b bed) {
	for name, event := range map[string]func(*rig) error{
		"Add":     func(r *rig) error { return r.queue.Add(pod("a", 1)) },
		"Update":  func(r *rig) error { return r.queue.Update(pod("a", 1)) },
		"Replace": func(r *rig) error { return r.queue.Replace([]any{pod("a", 1)}, "1") },
	} {
		synctest.Test(t, func(t *testing.T) {
			r := b.new(t)
			for i := range 3 {
				result := async.Go(r.take)
				synctest.Wait()

				r.do(r.queue.Delete(pod("a", 0)), event(r))
				synctest.Wait()
				if err, ok := result(); !ok || err != nil {
					t.Fatalf("%s, round %d: the consumer was not woken (returned=%t, err=%v)", name, i, ok, err)
				}
			}
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
			t.Errorf("Pop returned=%t, err=%v, want ErrFIFOClosed", ok, err)
		}
		r.queue.Close()
		if closed, ok := r.queue.(interface{ IsClosed() bool }); ok && !closed.IsClosed() {
			t.Error("IsClosed is false after Close")
		}
	})
}

func closeDrains(t *testing.T, b bed) {
	r := b.new(t)
	r.do(r.queue.Add(pod("a", 1)), r.queue.Add(pod("b", 2)))
	r.queue.Close()
	// Without a look at the length, which might put in order what Pop should.
	r.do(r.take(), r.take())
	slices.Sort(r.taken)
	if want := []string{"a@1", "b@2"}; !slices.Equal(r.taken, want) {
		t.Errorf("handed over %v, want %v", r.taken, want)
	}
	for range 2 {
		if err := r.take(); !errors.Is(err, cache.ErrFIFOClosed) {
			t.Errorf("Pop of a closed and drained queue returned %v", err)
		}
	}
}

// closeEnds: a queue that nobody drains leaves no goroutine behind, at which a
// bubble would fail.
func closeEnds(t *testing.T, b bed) {
	synctest.Test(t, func(t *testing.T) {
		r := b.new(t)
		r.do(r.queue.Add(pod("a", 1)), r.queue.Add(pod("b", 2)))
		r.queue.Close()
	})
}

func afterClose(t *testing.T, b bed) {
	r := b.new(t)
	r.do(r.queue.Add(pod("a", 1)))
	r.queue.Close()
	for name, call := range map[string]func() error{
		"Add":     func() error { return r.queue.Add(pod("b", 2)) },
		"Update":  func() error { return r.queue.Update(pod("a", 2)) },
		"Delete":  func() error { return r.queue.Delete(pod("a", 2)) },
		"Replace": func() error { return r.queue.Replace([]any{pod("a", 2)}, "2") },
	} {
		if err := call(); !errors.Is(err, cache.ErrFIFOClosed) {
			t.Errorf("%s after Close returned %v, want ErrFIFOClosed", name, err)
		}
	}
	r.expect("a@1")
}

// nameless has no metadata, hence no key.
type nameless struct{}

func keyErrors(t *testing.T, b bed) {
	r := b.new(t)
	r.do(r.queue.Add(pod("kept", 1)))
	for name, call := range map[string]func(any) error{
		"Add": r.queue.Add, "Update": r.queue.Update, "Delete": r.queue.Delete,
		"Replace": func(obj any) error { return r.queue.Replace([]any{pod("a", 1), obj}, "1") },
	} {
		var keyError cache.KeyError
		if err := call(nameless{}); !errors.As(err, &keyError) {
			t.Errorf("%s of an object without a key returned %v, want a KeyError", name, err)
		}
	}
	r.expect("kept@1")
}

// keyFunction: keys are what the function says, and otherwise those of
// namespace and name, however odd these are.
func keyFunction(t *testing.T, b bed) {
	r := b.new(t, func(o *queue.Options) {
		o.KeyFunction = func(obj any) (string, error) { return obj.(*v1.Pod).Labels["key"], nil }
	})
	labelled := func(name, key string) *v1.Pod {
		p := pod(name, 1)
		p.Labels = map[string]string{"key": key}
		return p
	}
	r.do(r.queue.Add(labelled("a", "x")), r.queue.Add(labelled("b", "y")), r.queue.Add(labelled("c", "x")))
	r.expect("c@1", "b@1")

	r = b.new(t)
	spaced := func(namespace, name string, rv int) *v1.Pod {
		p := pod(name, rv)
		p.Namespace = namespace
		return p
	}
	// The second has the key of the first, as upstream makes it.
	r.do(r.queue.Add(spaced("n", "a", 1)), r.queue.Add(spaced("", "n/a", 2)), r.queue.Add(spaced("a", "n", 3)), r.queue.Add(spaced("", "", 4)))
	r.expect("n/a@2", "a/n@3", "@4")
}

func (r *rig) synced(want bool, when string) {
	r.t.Helper()
	done := false
	checker := r.queue.HasSyncedChecker()
	select {
	case <-checker.Done():
		done = true
	default:
	}
	if got := r.queue.HasSynced(); got != want || done != want {
		r.t.Errorf("HasSynced is %t and its checker done=%t %s, want %t", got, done, when, want)
	}
	if checker.Name() == "" {
		r.t.Error("HasSyncedChecker has no name")
	}
}

func hasSynced(t *testing.T, b bed) {
	for name, event := range map[string]func(*rig) error{
		"Add":    func(r *rig) error { return r.queue.Add(pod("a", 1)) },
		"Update": func(r *rig) error { return r.queue.Update(pod("a", 1)) },
		"Delete": func(r *rig) error { return r.queue.Delete(pod("a", 1)) },
	} {
		r := b.new(t)
		r.synced(false, "before any event")
		r.do(event(r))
		r.synced(true, "after "+name+" came first")
		r.replace("a")
		r.synced(true, "after a list that came later")
	}
	// Long enough for every shard to have some.
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprintf("k%d", i))
	}
	r := b.new(t)
	r.replace(names...)
	for i := range names {
		r.synced(false, fmt.Sprintf("after %d of %d", i, len(names)))
		r.do(r.take())
	}
	r.synced(true, "after the list")

	r = b.new(t)
	r.replace()
	r.synced(true, "after an empty list")
}

func hasSyncedDeleted(t *testing.T, b bed) {
	r := b.new(t)
	r.replace("a", "b")
	r.do(r.queue.Delete(pod("a", 10)), r.queue.Delete(pod("b", 11)), r.queue.Add(pod("c", 12)))
	r.expect("c@12")
	r.synced(true, "after the list was deleted and something else taken")
}

func hasSyncedLate(t *testing.T, b bed) {
	r := b.new(t)
	r.during = func() { r.synced(false, "while process has the initial list") }
	r.replace("a")
	r.drain()
	r.synced(true, "after the list")

	// A list that replaces the initial one while process has a part of that.
	r = b.new(t)
	r.replace("a")
	r.during = func() {
		r.during = nil
		r.replace("b")
	}
	r.do(r.take())
	r.synced(false, "before the list that took the initial one's place was taken")
	r.drain()
	r.synced(true, "after it")
}

func secondList(t *testing.T, b bed) {
	r := b.new(t)
	r.replace("a", "b", "c")
	r.do(r.take())
	r.replace("a", "d")
	r.do(r.take())
	r.synced(false, "after two of three keys, of which one was of a list that another replaced")
	r.do(r.take())
	r.synced(true, "after the second list")

	r = b.new(t)
	r.replace("a")
	r.replace()
	r.synced(true, "after an empty list took the place of the initial one")
}

func initialFlag(t *testing.T, b bed) {
	r := b.new(t)
	r.replace("a", "b")
	r.do(r.take(), r.take())
	r.do(r.queue.Add(pod("c", 10)))
	r.drain()
	r.replace("a")
	r.drain()
	if want := []bool{true, true, false, false}; !slices.Equal(r.initial, want) {
		t.Errorf("isInInitialList was %v, want %v", r.initial, want)
	}
}

func processError(t *testing.T, b bed) {
	r := b.new(t)
	boom := errors.New("boom")
	r.do(r.queue.Add(pod("a", 1)))
	obj, err := r.queue.Pop(func(any, bool) error { return boom })
	if !errors.Is(err, boom) {
		t.Errorf("Pop returned %v, want the error of process", err)
	}
	if p, ok := obj.(*v1.Pod); !ok || p.Name != "a" {
		t.Errorf("Pop returned %v, want what process was handed", obj)
	}
	r.do(r.queue.Add(pod("b", 2)))
	r.expect("b@2")
}

func processPanic(t *testing.T, b bed) {
	r := b.new(t)
	r.replace("a")
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic of process was swallowed")
			}
		}()
		_, _ = r.queue.Pop(func(any, bool) error { panic("boom") })
	}()
	r.synced(true, "after process was done with the list, though by a panic")
	r.do(r.queue.Add(pod("a", 2)))
	r.expect("a@2")
}
