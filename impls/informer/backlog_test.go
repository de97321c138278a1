package informer_test

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls/deltafifo"
	"watchlab/impls/informer"
)

// follower is a handler that takes a time for each call. It checks that its notifications are
// consistent, and keeps the longest delay since the newest change.
type follower struct {
	replica
	took  time.Duration
	calls int
	late  time.Duration
	made  *atomic.Int64 // nanoseconds of the newest change
}

func (f *follower) call() {
	f.mu.Lock()
	f.late = max(f.late, time.Since(time.Unix(0, f.made.Load())))
	f.calls++
	f.mu.Unlock()
	time.Sleep(f.took)
}

func (f *follower) OnAdd(obj any, initial bool) { f.replica.OnAdd(obj, initial); f.call() }
func (f *follower) OnUpdate(old, obj any)       { f.replica.OnUpdate(old, obj); f.call() }
func (f *follower) OnDelete(obj any)            { f.replica.OnDelete(obj); f.call() }

// received returns the number of calls and the longest delay.
func (f *follower) received() (calls int, late time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls, f.late
}

// follows checks that the handler has what the store has, and that its notifications were consistent.
func (f *follower) follows(t *testing.T, inf cache.SharedInformer) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if want := contents(inf.GetStore()); !maps.Equal(f.held, want) || len(f.strange) > 0 {
		t.Errorf("a handler has %v, the store %v; it received %v", f.held, want, f.strange)
	}
}

// TestCoalesce: beside handlers that sleep a second in each call, another receives each change at once,
// and what waits for a slow one is bounded by the objects.
func TestCoalesce(t *testing.T) {
	for _, delivery := range []deltafifo.Delivery{deltafifo.InOrder, deltafifo.PerKey} {
		synctest.Test(t, func(t *testing.T) {
			testCoalesce(t, informer.Options{
				Queue: deltafifo.Options{Delivery: delivery}, Handlers: informer.Handlers{Coalesce: true}, ResyncPeriod: 10 * time.Second,
			})
		})
	}
}

func testCoalesce(t *testing.T, opts informer.Options) {
	const changes, passing = 3000, 300 // each 300th change is an object that comes and goes
	src, made := newSource(t), new(atomic.Int64)
	made.Store(time.Now().UnixNano())
	src.Add(pod("a"))
	src.Add(pod("b"))
	inf := newInformer(t, src, opts)
	waiting := func() (n []int) {
		for _, b := range inf.(informer.BacklogReporter).Backlogs() {
			n = append(n, b.Waiting)
		}
		return n
	}
	follow := func(took time.Duration) (*follower, cache.ResourceEventHandlerRegistration) {
		f := &follower{replica: replica{held: map[string]string{}}, took: took, made: made}
		return f, addHandler(t, inf, f)
	}
	slow, slowHandle := follow(time.Second)
	fast, _ := follow(0)
	run(t, inf)
	synctest.Wait() // The source is watched.
	late, lateHandle := follow(time.Second)
	src.Delete(pod("b"))
	for i := range changes {
		time.Sleep(time.Millisecond)
		made.Store(time.Now().UnixNano())
		src.Modify(pod("a"))
		if i%passing == 0 {
			src.Add(pod(fmt.Sprint("passing-", i)))
			synctest.Wait()
			src.Delete(pod(fmt.Sprint("passing-", i)))
		}
		synctest.Wait()
		if n, most := waiting(), 4+2*(i/passing+1); n[0] > most || n[1] > 0 || n[2] > most {
			t.Fatalf("after %d changes %d notifications wait, want at most %d", i, n, most)
		}
	}
	calls, delay := fast.received()
	slowCalls, _ := slow.received()
	if all := changes + 2*changes/passing; delay > 0 || calls < all || slowCalls > 10 {
		t.Errorf("the fast handler received %d of %d notifications, with a delay of %v, the slow one %d", calls, all, delay, slowCalls)
	}
	time.Sleep(time.Hour)
	synctest.Wait()
	for _, f := range []*follower{slow, fast, late} {
		f.follows(t, inf)
	}
	if !slowHandle.HasSynced() || !lateHandle.HasSynced() || !slices.Equal(waiting(), []int{0, 0, 0}) {
		t.Errorf("in the end handlers have synced: %t, %t, and %v notifications wait", slowHandle.HasSynced(), lateHandle.HasSynced(), waiting())
	}
}
