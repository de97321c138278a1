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
// consistent, and keeps the delay of each since the version's time in made.
type follower struct {
	replica
	took  time.Duration
	calls int
	late  time.Duration // the longest delay
	made  *atomic.Int64 // nanoseconds of the newest change
	inner func()        // called in each call; nil: nothing
}

func (f *follower) call() {
	f.mu.Lock()
	f.late = max(f.late, time.Since(time.Unix(0, f.made.Load())))
	f.calls++
	f.mu.Unlock()
	if f.inner != nil {
		f.inner()
	}
	time.Sleep(f.took)
}

func (f *follower) OnAdd(obj any, initial bool) { f.replica.OnAdd(obj, initial); f.call() }
func (f *follower) OnUpdate(old, obj any)       { f.replica.OnUpdate(old, obj); f.call() }
func (f *follower) OnDelete(obj any)            { f.replica.OnDelete(obj); f.call() }

func newFollower(took time.Duration, made *atomic.Int64) *follower {
	return &follower{replica: replica{held: map[string]string{}}, took: took, made: made}
}

// called returns the number of calls.
func (f *follower) called() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
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

func now() *atomic.Int64 {
	n := new(atomic.Int64)
	n.Store(time.Now().UnixNano())
	return n
}

// pass lets time pass, until nothing is under way.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// waiting is the backlog of each handler.
func waiting(inf cache.SharedInformer) (n []int) {
	for _, b := range inf.(informer.BacklogReporter).Backlogs() {
		n = append(n, b.Waiting)
	}
	return n
}

// beside runs an informer with a handler that sleeps for a second in each call, and one that does not,
// and plays changes. It is called in a bubble.
func beside(t *testing.T, opts informer.Options, play func(src source, inf cache.SharedIndexInformer, slow, fast *follower)) {
	src, made := newSource(t), now()
	src.Add(pod("a"))
	src.Add(pod("b"))
	inf := newInformer(t, src, opts)
	slow, fast := newFollower(time.Second, made), newFollower(0, made)
	slowHandle := addHandler(t, inf, slow)
	addHandler(t, inf, fast)
	run(t, inf)
	synctest.Wait() // The source is watched.
	play(src, inf, slow, fast)
	pass(time.Hour)
	slow.follows(t, inf)
	fast.follows(t, inf)
	if !slowHandle.HasSynced() || !slices.Equal(waiting(inf), []int{0, 0}) {
		t.Errorf("in the end the slow handler has synced: %v, and %v notifications wait", slowHandle.HasSynced(), waiting(inf))
	}
}

func eachDelivery(t *testing.T, h informer.Handlers, f func(t *testing.T, opts informer.Options)) {
	for _, d := range []deltafifo.Delivery{deltafifo.InOrder, deltafifo.PerKey} {
		t.Run(string(d), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f(t, informer.Options{Queue: deltafifo.Options{Delivery: d}, Handlers: h})
			})
		})
	}
}

// TestCoalesce: beside a handler that sleeps a second in each call, the other receives each change at
// once, and what waits for the slow one is bounded by the objects.
func TestCoalesce(t *testing.T) {
	const changes, passing = 3000, 300 // each 300th change is an object that comes and goes
	eachDelivery(t, informer.Handlers{Coalesce: true}, func(t *testing.T, opts informer.Options) {
		opts.ResyncPeriod = 10 * time.Second
		beside(t, opts, func(src source, inf cache.SharedIndexInformer, slow, fast *follower) {
			late := newFollower(time.Second, slow.made)
			handle := addHandler(t, inf, late)
			src.Delete(pod("b"))
			for i := range changes {
				time.Sleep(time.Millisecond)
				slow.made.Store(time.Now().UnixNano())
				src.Modify(pod("a"))
				if i%passing == 0 {
					src.Add(pod(fmt.Sprint("passing-", i)))
					synctest.Wait()
					src.Delete(pod(fmt.Sprint("passing-", i)))
				}
				synctest.Wait()
				if n, most := waiting(inf), 4+2*(i/passing+1); n[0] > most || n[1] > 0 || n[2] > most {
					t.Fatalf("after %d changes %d notifications wait, want at most %d", i, n, most)
				}
			}
			if all := changes + 2*changes/passing; fast.late > 0 || fast.called() < all {
				t.Errorf("the other handler received %d of %d notifications, with a delay of %v", fast.calls, all, fast.late)
			}
			if n := slow.called(); n > 10 {
				t.Errorf("the slow handler was called %d times in 3 s", n)
			}
			pass(time.Minute)
			if late.follows(t, inf); !handle.HasSynced() {
				t.Error("the late handler has not synced")
			}
			if err := inf.RemoveEventHandler(handle); err != nil {
				t.Error(err)
			}
		})
	})
}

// TestBackpressure: no more than the bound waits for a slow handler. The indexer and the other handler
// wait for it, and all receive everything. With Coalesce, updates of an object are merged first.
func TestBackpressure(t *testing.T) {
	const bound, updates, objects = 4, 40, 10
	for _, h := range []informer.Handlers{{Backlog: bound}, {Backlog: bound, Coalesce: true}} {
		eachDelivery(t, h, func(t *testing.T, opts informer.Options) {
			beside(t, opts, func(src source, inf cache.SharedIndexInformer, slow, fast *follower) {
				for range updates {
					src.Modify(pod("a"))
				}
				for i := range objects {
					src.Add(pod(fmt.Sprint("passing-", i)))
				}
				for i := range objects {
					src.Delete(pod(fmt.Sprint("passing-", i)))
				}
				synctest.Wait()
				const all = 2 + updates + 2*objects
				for range all {
					if n := waiting(inf); n[0] > bound {
						t.Fatalf("%d notifications wait, want at most %d", n, bound)
					}
					if f, s := fast.called(), slow.called(); !h.Coalesce && f > s+bound+1 {
						t.Fatalf("the fast handler had %d calls and the slow one %d", f, s)
					}
					pass(time.Second)
				}
				f, s := fast.called(), slow.called()
				if h.Coalesce && (s < 2*objects || s >= all) || !h.Coalesce && (f != all || s != all) {
					t.Errorf("%+v: %d and %d calls of at most %d", h, s, f, all)
				}
			})
		})
	}
}

// TestBackpressureOfLists: a list or a resync with more objects than the bound is stored when nothing
// waits.
func TestBackpressureOfLists(t *testing.T) {
	const objects = 20
	eachDelivery(t, informer.Handlers{Backlog: 3}, func(t *testing.T, opts informer.Options) {
		opts.ResyncPeriod = time.Minute
		beside(t, opts, func(src source, inf cache.SharedIndexInformer, slow, fast *follower) {
			for i := range objects {
				src.AddDropWatch(pod(fmt.Sprint("unseen-", i)))
			}
			src.ResetWatch()
			most := 0
			for range 150 {
				pass(time.Second)
				most = max(most, waiting(inf)[0])
			}
			if most > objects+2 || opts.Queue.Delivery == deltafifo.InOrder && most < objects {
				t.Errorf("%d notifications waited, want those of one list", most)
			}
		})
	})
}

// TestBackpressureCallsBack: while the indexer waits for a handler, the handler can call the informer:
// add a handler, which receives all objects, and remove itself, which ends the wait.
func TestBackpressureCallsBack(t *testing.T) {
	const changes = 20
	eachDelivery(t, informer.Handlers{Backlog: 1}, func(t *testing.T, opts informer.Options) {
		src, made := newSource(t), now()
		src.Add(pod("a"))
		inf := newInformer(t, src, opts)
		slow, fast, late := newFollower(time.Second, made), newFollower(0, made), newFollower(0, made)
		handle := addHandler(t, inf, slow)
		addHandler(t, inf, fast)
		slow.inner = func() {
			time.Sleep(time.Second)
			switch slow.called() {
			case 3:
				addHandler(t, inf, late)
			case 5:
				if err := inf.RemoveEventHandler(handle); err != nil {
					t.Error(err)
				}
			}
		}
		run(t, inf)
		synctest.Wait()
		for range changes {
			src.Modify(pod("a"))
		}
		pass(8500 * time.Millisecond)
		if f, s := fast.called(), slow.called(); s != 5 || f > 8 {
			t.Errorf("after 8.5 s: %d and %d calls", s, f)
		}
		late.follows(t, inf)
		pass(time.Second)
		if f, s := fast.called(), slow.called(); s != 5 || f != changes+1 {
			t.Errorf("after the removal: %d and %d calls", s, f)
		}
		late.follows(t, inf)
	})
}

// TestStopUnderBackpressure: a stop ends the wait for a handler, and Run the call of the handler.
func TestStopUnderBackpressure(t *testing.T) {
	eachDelivery(t, informer.Handlers{Backlog: 1}, func(t *testing.T, opts informer.Options) {
		src := newSource(t)
		for i := range 10 {
			src.Add(pod(fmt.Sprint(i)))
		}
		inf := newInformer(t, src, opts)
		start, slow := time.Now(), newFollower(time.Minute, now())
		addHandler(t, inf, slow)
		stop := run(t, inf)
		time.Sleep(90 * time.Second)
		stop()
		if took := time.Since(start); took != 2*time.Minute || slow.called() != 2 {
			t.Errorf("stopped after %v and %d calls, want 2m and 2", took, slow.calls)
		}
	})
}
