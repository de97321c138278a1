// Package queuetest is the conformance suite of the queue family. Every variant
// passes it, upstream's own included: where a baseline fails, the suite is
// wrong. A check is named after the guarantee it holds the variant to; see the
// package comment of watchlab/impls/queue for what they mean.
package queuetest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
	"watchlab/impls/conformance/internal/async"
	"watchlab/impls/queue"
)

// Run holds a variant to the family's contract.
func Run(t *testing.T, v queue.Variant) {
	for _, c := range []struct {
		name string
		// unlocked: only for variants that release their lock for process.
		unlocked bool
		run      func(*testing.T, *rig)
	}{
		{"keys in the order in which they began to wait", false, order},
		{"newest object of a key", false, newest},
		{"delete takes out of the queue", false, deletes},
		{"replace drops what waits", false, replace},
		{"replace with an object twice", false, replaceTwice},
		{"resync does nothing", false, resync},
		{"length", false, length},
		{"nothing lost or reordered among producers", false, concurrent},
		{"take waits for an event", false, takeWaits},
		{"each wait is woken", false, everyWaitWoken},
		{"close unblocks", false, closeUnblocks},
		{"close keeps what waits", false, closeDrains},
		{"objects without a key", false, keyErrors},
		{"has synced", false, hasSynced},
		{"has synced when the initial list is deleted", false, hasSyncedDeleted},
		{"initial list flag", false, initialFlag},
		{"error of process", false, processError},
		{"panic of process", false, processPanic},
		{"process may produce", true, processProduces},
		{"has synced only when process has returned", true, hasSyncedLate},
	} {
		if c.unlocked && !v.Guarantees[0].Unlocked {
			continue
		}
		t.Run(c.name, func(t *testing.T) { c.run(t, newRig(t, v)) })
	}
	if want := "cache.Queue"; v.Guarantees[0].DropIn != want {
		t.Errorf("guarantees say that it drops in as %q, the contract is %s", v.Guarantees[0].DropIn, want)
	}
	if g := v.Guarantees[0]; g.Coalesces != impls.CoalesceLatest {
		t.Errorf("guarantees say that it coalesces %q, the contract is %q", g.Coalesces, impls.CoalesceLatest)
	}
}

// rig is a queue under test with its consumer.
type rig struct {
	t     *testing.T
	v     queue.Variant
	queue queue.Queue
	// taken is what the consumer was handed, as name@version.
	taken []string
	// initial are the flags that came with it.
	initial []bool
	// during runs inside process.
	during func()
}

func newRig(t *testing.T, v queue.Variant) *rig {
	t.Helper()
	q, err := v.New(queue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &rig{t: t, v: v, queue: q}
}

func (r *rig) take() error {
	_, err := r.queue.Pop(func(obj any, initial bool) error {
		if r.during != nil {
			r.during()
		}
		p := obj.(*v1.Pod)
		r.taken = append(r.taken, p.Name+"@"+p.ResourceVersion)
		r.initial = append(r.initial, initial)
		return nil
	})
	return err
}

func (r *rig) drain() []string {
	r.t.Helper()
	from := len(r.taken)
	for r.queue.Len() > 0 {
		if err := r.take(); err != nil {
			r.t.Fatal(err)
		}
	}
	return r.taken[from:]
}

func (r *rig) expect(want ...string) {
	r.t.Helper()
	if got := r.drain(); !slices.Equal(got, want) {
		r.t.Errorf("handed over %v, want %v", got, want)
	}
}

func (r *rig) do(errs ...error) {
	r.t.Helper()
	if err := errors.Join(errs...); err != nil {
		r.t.Fatal(err)
	}
}

// replace lists names at version 9.
func (r *rig) replace(names ...string) {
	r.t.Helper()
	var list []any
	for _, n := range names {
		list = append(list, pod(n, 9))
	}
	r.do(r.queue.Replace(list, "9"))
}

func pod(name string, rv int) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: strconv.Itoa(rv)}}
}

func order(t *testing.T, r *rig) {
	r.do(r.queue.Add(pod("b", 1)), r.queue.Update(pod("a", 2)), r.queue.Add(pod("c", 3)), r.queue.Update(pod("b", 4)))
	r.expect("b@4", "a@2", "c@3")
	// A key that was taken begins anew.
	r.do(r.queue.Add(pod("c", 5)), r.queue.Add(pod("b", 6)))
	r.expect("c@5", "b@6")
}

func newest(t *testing.T, r *rig) {
	for i := range 100 {
		r.do(r.queue.Update(pod("a", i)))
	}
	r.expect("a@99")
	r.expect()
}

func deletes(t *testing.T, r *rig) {
	r.do(r.queue.Add(pod("a", 1)), r.queue.Add(pod("b", 2)), r.queue.Delete(pod("a", 3)), r.queue.Delete(pod("nowhere", 4)))
	r.expect("b@2")
	r.do(r.queue.Add(pod("a", 5)))
	r.expect("a@5")
	// Many keys, so that what a deletion leaves behind shows.
	for i := range 1000 {
		r.do(r.queue.Add(pod(fmt.Sprintf("k%d", i), i)))
	}
	var want []string
	for i := range 1000 {
		if i%3 == 0 {
			want = append(want, fmt.Sprintf("k%d@%d", i, i))
		} else {
			r.do(r.queue.Delete(pod(fmt.Sprintf("k%d", i), i)))
		}
	}
	r.expect(want...)
}

func replace(t *testing.T, r *rig) {
	r.do(r.queue.Add(pod("a", 1)), r.queue.Add(pod("b", 2)))
	r.replace("b", "c")
	got := r.drain()
	slices.Sort(got)
	if want := []string{"b@9", "c@9"}; !slices.Equal(got, want) {
		t.Errorf("handed over %v, want %v", got, want)
	}
	r.do(r.queue.Add(pod("a", 10)))
	r.replace()
	r.expect()
}

func replaceTwice(t *testing.T, r *rig) {
	r.do(r.queue.Replace([]any{pod("a", 1), pod("a", 2)}, "2"))
	r.expect("a@2")
	if !r.queue.HasSynced() {
		t.Error("the list has been processed: HasSynced must be true")
	}
}

func resync(t *testing.T, r *rig) {
	r.do(r.queue.Add(pod("a", 1)), r.queue.Resync())
	r.expect("a@1")
	r.do(r.queue.Resync())
	r.expect()
}

func length(t *testing.T, r *rig) {
	r.do(r.queue.Add(pod("a", 1)), r.queue.Add(pod("b", 2)), r.queue.Update(pod("a", 3)))
	if n := r.queue.Len(); n != 2 {
		t.Errorf("length is %d, want 2", n)
	}
	r.do(r.queue.Delete(pod("a", 4)))
	if n := r.queue.Len(); n != 1 {
		t.Errorf("length is %d after a delete, want 1", n)
	}
}

// concurrent plays versions of many keys from several goroutines, each the
// author of its own keys: versions of a key come out ascending, the last one in
// any case.
func concurrent(t *testing.T, r *rig) {
	const producers, keysEach, versions = 4, 25, 300
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() {
			for v := 1; v <= versions; v++ {
				for k := range keysEach {
					if err := r.queue.Update(pod(fmt.Sprintf("p%d-k%d", p, k), v)); err != nil {
						t.Errorf("producer %d: %v", p, err)
						return
					}
				}
			}
		})
	}
	go func() {
		wg.Wait()
		r.queue.Close()
	}()
	last := map[string]int{}
	for {
		_, err := r.queue.Pop(func(obj any, _ bool) error {
			p := obj.(*v1.Pod)
			v, err := strconv.Atoi(p.ResourceVersion)
			if err != nil {
				return err
			}
			if v <= last[p.Name] {
				t.Errorf("%s: version %d came after %d", p.Name, v, last[p.Name])
			}
			last[p.Name] = v
			return nil
		})
		if err != nil {
			break
		}
	}
	if len(last) != producers*keysEach {
		t.Errorf("%d keys came out, want %d", len(last), producers*keysEach)
	}
	for name, v := range last {
		if v != versions {
			t.Errorf("%s: the last version that came out is %d, want %d", name, v, versions)
		}
	}
}

func takeWaits(t *testing.T, r *rig) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, r.v)
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

func everyWaitWoken(t *testing.T, r *rig) {
	for name, event := range map[string]func(*rig) error{
		"Add":     func(r *rig) error { return r.queue.Add(pod("a", 1)) },
		"Update":  func(r *rig) error { return r.queue.Update(pod("a", 1)) },
		"Replace": func(r *rig) error { return r.queue.Replace([]any{pod("a", 1)}, "1") },
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, r.v)
			for i := range 3 {
				result := async.Go(r.take)
				synctest.Wait()
				// An event that leaves nothing to take must not use up the
				// wake-up of the one that does.
				r.do(r.queue.Delete(pod("a", 0)), event(r))
				synctest.Wait()
				if err, ok := result(); !ok || err != nil {
					t.Fatalf("%s, round %d: the consumer was not woken (returned=%t, err=%v)", name, i, ok, err)
				}
			}
		})
	}
}

func closeUnblocks(t *testing.T, r *rig) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, r.v)
		result := async.Go(r.take)
		synctest.Wait()
		r.queue.Close()
		synctest.Wait()
		if err, ok := result(); !ok || !errors.Is(err, cache.ErrFIFOClosed) {
			t.Fatalf("Pop returned=%t, err=%v, want ErrFIFOClosed", ok, err)
		}
		r.queue.Close() // Twice is once.
	})
}

func closeDrains(t *testing.T, r *rig) {
	r.do(r.queue.Add(pod("a", 1)), r.queue.Add(pod("b", 2)))
	r.queue.Close()
	r.expect("a@1", "b@2")
	if err := r.take(); !errors.Is(err, cache.ErrFIFOClosed) {
		t.Errorf("Pop of a closed and drained queue returned %v", err)
	}
}

// nameless has no metadata, hence no key.
type nameless struct{}

func keyErrors(t *testing.T, r *rig) {
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

func hasSynced(t *testing.T, r *rig) {
	for name, event := range map[string]func(*rig) error{
		"Add":    func(r *rig) error { return r.queue.Add(pod("a", 1)) },
		"Update": func(r *rig) error { return r.queue.Update(pod("a", 1)) },
		"Delete": func(r *rig) error { return r.queue.Delete(pod("a", 1)) },
	} {
		r := newRig(t, r.v)
		r.synced(false, "before any event")
		r.do(event(r))
		r.synced(true, "after "+name+" came first")
		r.replace("a")
		r.synced(true, "after a list that came later")
	}
	r.replace("a", "b")
	r.do(r.queue.Add(pod("c", 10)))
	r.synced(false, "before the list was taken")
	r.do(r.take())
	r.synced(false, "after half of the list")
	r.do(r.take())
	r.synced(true, "after the list")

	r = newRig(t, r.v)
	r.replace()
	r.synced(true, "after an empty list")
}

func hasSyncedDeleted(t *testing.T, r *rig) {
	r.replace("a", "b")
	r.do(r.queue.Delete(pod("a", 10)), r.queue.Delete(pod("b", 11)), r.queue.Add(pod("c", 12)))
	r.expect("c@12")
	r.synced(true, "after the list was deleted and something else taken")
}

func initialFlag(t *testing.T, r *rig) {
	r.replace("a", "b")
	r.do(r.queue.Add(pod("c", 10)))
	r.drain()
	r.replace("a")
	r.drain()
	if want := []bool{true, true, false, false}; !slices.Equal(r.initial, want) {
		t.Errorf("isInInitialList was %v, want %v", r.initial, want)
	}
}

func processError(t *testing.T, r *rig) {
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

func processPanic(t *testing.T, r *rig) {
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
	r.do(r.queue.Add(pod("b", 2)))
	r.expect("b@2")
}

func processProduces(t *testing.T, r *rig) {
	r.do(r.queue.Add(pod("a", 1)))
	once := true
	r.during = func() {
		if once {
			once = false
			r.do(r.queue.Update(pod("a", 2)), r.queue.Add(pod("b", 3)))
		}
	}
	r.expect("a@1", "a@2", "b@3")
}

func hasSyncedLate(t *testing.T, r *rig) {
	r.during = func() { r.synced(false, "while process has the initial list") }
	r.replace("a")
	r.drain()
	r.synced(true, "after the list")

	// A list that replaces the initial one while process has a part of that.
	r = newRig(t, r.v)
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
