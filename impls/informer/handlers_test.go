package informer_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls/informer"
)

// TestSynced: a handler has synced when it has received the whole initial list, also one that is added later.
func TestSynced(t *testing.T) {
	eachQueueInBubble(t, func(t *testing.T, opts informer.Options) {
		const pods = 20
		src := newSource(t)
		for i := range pods {
			src.Add(pod(fmt.Sprint(i)))
		}
		inf := newInformer(t, src, opts)
		for _, late := range []bool{false, true} {
			h := newHold()
			defer h.open()
			slow, fast := &recorder{before: h.wait}, &recorder{}
			slowHandle, fastHandle := addHandler(t, inf, slow), addHandler(t, inf, fast)
			if !late {
				if slowHandle.HasSynced() || inf.HasSynced() {
					t.Error("synced before it was run")
				}
				run(t, inf)
			}
			for received := range pods {
				synctest.Wait()
				if slowHandle.HasSynced() || cache.IsDone(slowHandle.HasSyncedChecker()) {
					t.Fatalf("late: %t: the handler has synced after %d of %d objects", late, received, pods)
				}
				h.one()
			}
			wait(t, inf.HasSyncedChecker(), slowHandle.HasSyncedChecker(), fastHandle.HasSyncedChecker())
			h.open()
			for _, r := range []*recorder{slow, fast} {
				calls := r.take()
				if len(calls) != pods || slices.ContainsFunc(calls, func(c call) bool { return c.kind != "add" || !c.initial }) {
					t.Errorf("late: %t: the initial list brought %v", late, calls)
				}
			}
		}
	})
}

// TestSyncedAfterStored blocks the indexer: before the store has the list,
// neither informer nor handlers have synced.
func TestSyncedAfterStored(t *testing.T) {
	eachQueue(t, func(t *testing.T, opts informer.Options) {
		h := newHold()
		defer h.open()
		entered := make(chan struct{}, 10)
		opts.Indexers = cache.Indexers{"held": func(any) ([]string, error) {
			entered <- struct{}{}
			h.wait(call{})
			return nil, nil
		}}
		inf := newInformer(t, newFeed().lw(version("a", 1)), opts)
		handle := addHandler(t, inf, &recorder{})
		run(t, inf)
		<-entered
		// It must not sync, hence there is nothing to wait for but the time that it would take.
		for range 1000 {
			runtime.Gosched()
		}
		if inf.HasSynced() || handle.HasSynced() {
			t.Error("synced before the only object was stored")
		}
		h.open()
		wait(t, inf.HasSyncedChecker(), handle.HasSyncedChecker())
		if got := len(inf.GetStore().ListKeys()); got != 1 {
			t.Errorf("synced with %d objects in the store, want 1", got)
		}
	})
}

// TestSlowHandler blocks one handler. The others and the indexer continue, and
// the blocked one later receives all notifications in order.
func TestSlowHandler(t *testing.T) {
	eachQueueInBubble(t, func(t *testing.T, opts informer.Options) {
		const updates = 5000
		src := newSource(t)
		src.Add(pod("a"))
		inf := newInformer(t, src, opts)
		h := newHold()
		defer h.open()
		slow, fast := &recorder{before: h.wait}, &recorder{}
		addHandler(t, inf, slow)
		addHandler(t, inf, fast)
		run(t, inf)
		wait(t, inf.HasSyncedChecker())
		for range updates {
			src.Modify(pod("a"))
		}
		synctest.Wait()
		last := fmt.Sprint(11 + updates)
		if obj, _, _ := inf.GetStore().GetByKey("ns/a"); resourceVersion(obj) != last {
			t.Errorf("the store has version %s, want %s", resourceVersion(obj), last)
		}
		fastCalls := fast.take()
		if len(fastCalls) != updates+1 {
			t.Fatalf("the fast handler was called %d times, want %d", len(fastCalls), updates+1)
		}
		if got := slow.take(); len(got) != 0 {
			t.Fatalf("the slow handler returned from %v", got)
		}
		h.open()
		synctest.Wait()
		if got := slow.take(); !slices.Equal(got, fastCalls) {
			t.Errorf("the slow handler received other notifications than the fast one: %d calls", len(got))
		}
	})
}

// TestGoexit ends a handler's goroutine from within, as t.FailNow does.
func TestGoexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSource(t)
		inf := newInformer(t, src, informer.Options{})
		gone := addHandler(t, inf, cache.ResourceEventHandlerFuncs{AddFunc: func(any) { runtime.Goexit() }})
		other := &recorder{}
		addHandler(t, inf, other)
		run(t, inf)
		for i := range 100 {
			src.Add(pod(fmt.Sprint(i)))
			synctest.Wait()
		}
		if got := other.take(); len(got) != 100 {
			t.Errorf("the other handler was called %d times", len(got))
		}
		if err := cache.ShutDownEventHandler(inf, gone); err != nil {
			t.Error(err)
		}
	})
}

// replica is a handler that applies its notifications and records inconsistent ones.
type replica struct {
	mu      sync.Mutex
	held    map[string]string
	strange []string
}

func (r *replica) check(ok bool, format string, args ...any) {
	if !ok {
		r.strange = append(r.strange, fmt.Sprintf(format, args...))
	}
}

func (r *replica) OnAdd(obj any, _ bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, there := r.held[key(obj)]
	r.check(!there, "%s is added and is there as of %s", key(obj), was)
	r.held[key(obj)] = resourceVersion(obj)
}

func (r *replica) OnUpdate(old, obj any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.held[key(obj)]
	r.check(was == resourceVersion(old), "%s changes from %s and is there as of %q", key(obj), resourceVersion(old), was)
	r.held[key(obj)] = resourceVersion(obj)
}

func (r *replica) OnDelete(obj any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, there := r.held[key(obj)]
	r.check(there, "%s is deleted and isn't there", key(obj))
	delete(r.held, key(obj))
}

// TestComeAndGo adds and removes handlers during changes. Each receives
// consistent notifications and ends in the same state, also if the notifications are merged.
func TestComeAndGo(t *testing.T) {
	const seed = 1
	eachQueueInBubble(t, func(t *testing.T, opts informer.Options) {
		opts.Handlers.Coalesce = opts.Queue.Capacity == 7
		src := newSource(t)
		inf := newInformer(t, src, opts)
		run(t, inf)

		var actors sync.WaitGroup
		var stayed []*replica
		var mu sync.Mutex
		for n := range 8 {
			rng := rand.New(rand.NewPCG(seed, uint64(n)))
			actors.Go(func() {
				for range 20 {
					r := &replica{held: map[string]string{}}
					handle, err := inf.AddEventHandler(r)
					if err != nil {
						t.Error(err)
						return
					}
					for range rng.IntN(20) {
						runtime.Gosched()
					}
					if rng.IntN(2) == 0 {
						if err := inf.RemoveEventHandler(handle); err != nil {
							t.Error(err)
						}
					} else {
						mu.Lock()
						stayed = append(stayed, r)
						mu.Unlock()
					}
				}
			})
		}
		actors.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 100))
			live := map[int]bool{}
			for range 2000 {
				k := rng.IntN(30)
				p := pod(fmt.Sprint(k))
				switch {
				case !live[k]:
					src.Add(p)
				case rng.IntN(3) == 0:
					src.Delete(p)
				default:
					src.Modify(p)
					continue
				}
				live[k] = !live[k]
			}
		})
		actors.Wait()
		synctest.Wait()
		want := contents(inf.GetStore())
		for _, r := range stayed {
			if len(r.strange) > 0 {
				t.Fatalf("seed %d: a handler received: %s", seed, strings.Join(r.strange, "; "))
			}
			if !reflect.DeepEqual(r.held, want) {
				t.Fatalf("seed %d: a handler holds %v, the store %v", seed, r.held, want)
			}
		}
	})
}
