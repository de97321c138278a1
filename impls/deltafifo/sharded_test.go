package deltafifo

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
)

func TestShardedOptions(t *testing.T) {
	for shards, want := range map[int]int{1: 1, 3: 3, 64: 64, maxShards: maxShards, 0: defaultShards(runtime.GOMAXPROCS(0))} {
		if q := newQueue[*sharded](t, shardedVariant(), Options{Shards: shards}); len(q.shards) != want {
			t.Errorf("Shards %d makes %d, want %d", shards, len(q.shards), want)
		}
	}
	if _, err := shardedVariant().New(Options{Shards: maxShards + 1}); !errors.Is(err, impls.ErrOptions) {
		t.Errorf("too many shards: %v", err)
	}
	for procs, want := range map[int]int{1: 4, 2: 8, 3: 16, 8: 32, 1 << 20: maxShards} {
		if n := defaultShards(procs); n != want {
			t.Errorf("%d processors get %d shards, want %d", procs, n, want)
		}
	}
}

// inShard returns n objects with keys of one shard.
func inShard(q *sharded, number, n int) []*metav1.ObjectMeta {
	var objs []*metav1.ObjectMeta
	for i := 0; len(objs) < n; i++ {
		obj := named("k%d", i)
		if _, hash, _ := q.keys.Hashed(obj); q.number(hash) == number {
			objs = append(objs, obj)
		}
	}
	return objs
}

// TestShardedFair: a ready shard is popped after at most one pop of each other
// shard, at any length.
func TestShardedFair(t *testing.T) {
	q := newQueue[*sharded](t, shardedVariant(), Options{Shards: 4})
	for number, waiting := range []int{40, 1, 2, 40} {
		for _, obj := range inShard(q, number, waiting) {
			mustDo(t, q.Add(obj))
		}
	}
	turns := make([]int, 4)
	for range 8 {
		_, err := q.Pop(func(obj any, _ bool) error {
			_, hash, _ := q.keys.Hashed(obj.(cache.Deltas)[0].Object)
			turns[q.number(hash)]++
			return nil
		})
		mustDo(t, err)
	}
	if fmt.Sprint(turns) != "[3 1 2 2]" {
		t.Errorf("in 8 hand-overs the shards had %v turns", turns)
	}
}

// TestShardedWakes: each sleeping consumer is woken for its own shard, the others by Close.
func TestShardedWakes(t *testing.T) {
	for _, capacity := range []int{0, 2} {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue[*sharded](t, shardedVariant(), Options{Shards: 4, Capacity: capacity})
			var inside, closed atomic.Int32
			release := make(chan struct{})
			take := func() {
				for {
					_, err := q.Pop(func(any, bool) error {
						inside.Add(1)
						defer inside.Add(-1)
						<-release
						return nil
					})
					if errors.Is(err, cache.ErrFIFOClosed) {
						closed.Add(1)
						return
					}
				}
			}
			for range 5 {
				go take()
			}
			synctest.Wait()
			for number := range 4 {
				mustDo(t, q.Add(inShard(q, number, 1)[0]))
				synctest.Wait()
				if n := inside.Load(); int(n) != number+1 {
					t.Errorf("%d consumers are in process, though %d shards have something", n, number+1)
				}
			}
			// No other consumer may take events of a shard in process.
			mustDo(t, q.Add(inShard(q, 0, 2)[1]))
			synctest.Wait()
			if n := inside.Load(); n != 4 {
				t.Errorf("%d consumers are in process of 4 shards", n)
			}
			// Something waits, hence nobody is told that the queue is drained, nor
			// who comes only now.
			q.Close()
			go take()
			synctest.Wait()
			if n := closed.Load(); n != 0 {
				t.Errorf("%d consumers were told that the queue is drained, where one key waits", n)
			}
			close(release)
			synctest.Wait()
			if n := closed.Load(); n != 6 {
				t.Errorf("%d of 6 consumers were told that the queue is closed", n)
			}
		})
	}
}

// TestShardedClosedWhileHeld: without queued events, Close wakes sleeping
// consumers at once, while another consumer still processes.
func TestShardedClosedWhileHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue[*sharded](t, shardedVariant(), Options{})
		mustDo(t, q.Add(named("a")))
		release := make(chan struct{})
		go func() { _, _ = q.Pop(func(any, bool) error { <-release; return nil }) }()
		synctest.Wait()
		told := make(chan error, 1)
		go func() {
			_, err := q.Pop(func(any, bool) error { return nil })
			told <- err
		}()
		synctest.Wait()
		q.Close()
		synctest.Wait()
		select {
		case err := <-told:
			if !errors.Is(err, cache.ErrFIFOClosed) {
				t.Errorf("Pop returned %v", err)
			}
		default:
			t.Error("a consumer sleeps, though nothing will come")
		}
		close(release)
	})
}

// TestShardedInitial: isInInitialList depends on the key, and HasSynced waits for the last shard.
func TestShardedInitial(t *testing.T) {
	q := newQueue[*sharded](t, shardedVariant(), Options{Shards: 2})
	// A later event is popped before the last one of the list.
	first, second := inShard(q, 0, 3), inShard(q, 1, 2)
	mustDo(t, q.Replace([]any{first[0], first[1], first[2], second[0]}, "1"), q.Add(second[1]))
	initial := map[string]bool{first[0].Name: true, first[1].Name: true, first[2].Name: true, second[0].Name: true, second[1].Name: false}
	left := 4
	for range len(initial) {
		if q.HasSynced() != (left == 0) {
			t.Errorf("HasSynced is %t with %d of the initial list left", q.HasSynced(), left)
		}
		_, err := q.Pop(func(obj any, flag bool) error {
			name := obj.(cache.Deltas)[0].Object.(metav1.Object).GetName()
			if flag != initial[name] {
				t.Errorf("%s was handed over with isInInitialList=%t", name, flag)
			}
			if flag {
				left--
				if q.HasSynced() {
					t.Error("HasSynced is true while process has the last of the list")
				}
			}
			return nil
		})
		mustDo(t, err)
	}
	if !q.HasSynced() {
		t.Error("HasSynced is false though the initial list was processed")
	}
}

// TestShardedReplaceWhole: when the first object of a list is popped, all others are queued.
func TestShardedReplaceWhole(t *testing.T) {
	const listed = 64
	q := newQueue[*sharded](t, shardedVariant(), Options{Shards: 8})
	var list []any
	for i := range listed {
		list = append(list, named("k%d", i))
	}
	for round := range 300 {
		done := make(chan error, 1)
		go func() { done <- q.Replace(list, "1") }()
		for i := range listed {
			_, err := q.Pop(func(any, bool) error {
				if n := q.Len(); n != listed-i-1 {
					t.Errorf("round %d: %d of %d wait behind number %d", round, n, listed, i)
				}
				return nil
			})
			mustDo(t, err)
		}
		mustDo(t, <-done)
	}
}

// locked is a store that checks the shard locks when it is listed.
type locked struct {
	cache.Store
	listed func()
}

func (l locked) ListKeys() []string {
	l.listed()
	return l.Store.ListKeys()
}

// TestShardedListsLocked: known objects are listed with all shards locked, so
// that no process returns before their deltas are queued.
func TestShardedListsLocked(t *testing.T) {
	var q *sharded
	store := locked{cache.NewStore(cache.MetaNamespaceKeyFunc), func() {
		for i := range q.shards {
			if q.shards[i].mu.TryLock() {
				t.Errorf("shard %d is not locked", i)
				q.shards[i].mu.Unlock()
			}
		}
	}}
	q = newQueue[*sharded](t, shardedVariant(), Options{KnownObjects: store})
	mustDo(t, q.Replace([]any{named("a")}, "1"), q.Resync())
}

// consumers pops from several goroutines until the queue is closed and empty. It
// fails if a key is in process twice at once.
func consumers(t *testing.T, q *sharded, n int, process func([]cache.Delta)) (wait func()) {
	var mu sync.Mutex
	newestInProcess := map[string]bool{}
	mark := func(deltas []cache.Delta, in bool) {
		mu.Lock()
		defer mu.Unlock()
		keys := map[string]bool{}
		for _, d := range deltas {
			key, _ := cache.DeletionHandlingMetaNamespaceKeyFunc(d.Object)
			if !keys[key] && in == newestInProcess[key] {
				t.Errorf("%s is in two consumers' hands", key)
			}
			keys[key], newestInProcess[key] = true, in
		}
	}
	one := func(deltas []cache.Delta, _ bool) error {
		mark(deltas, true)
		process(deltas)
		mark(deltas, false)
		return nil
	}
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for {
				if err := q.PopBatch(one, func(obj any, initial bool) error { return one(obj.(cache.Deltas), initial) }); err != nil {
					if !errors.Is(err, cache.ErrFIFOClosed) {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	return wg.Wait
}

// TestShardedStorm: many producers and consumers, lists and a Close at random
// times. The consumers end with the last sent objects.
func TestShardedStorm(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	const producers, keysEach, each = 6, 5, 400
	for round, o := range []Options{{}, {Capacity: 5}, {HandOver: impls.Lent, Shards: 3}, {Compaction: Latest, Capacity: 64}, {Shards: 1}} {
		store := cache.NewStore(cache.DeletionHandlingMetaNamespaceKeyFunc)
		o.KnownObjects = store
		q := newQueue[*sharded](t, shardedVariant(), o)
		wait := consumers(t, q, 4, func(deltas []cache.Delta) {
			for _, d := range deltas {
				if d.Type == cache.Deleted {
					mustDo(t, store.Delete(d.Object))
				} else {
					mustDo(t, store.Add(d.Object))
				}
			}
		})
		var wg sync.WaitGroup
		for p := range producers {
			rng := rand.New(rand.NewPCG(seed, uint64(round*100+p)))
			wg.Go(func() {
				for i := range each {
					obj := named("p%d-k%d", p, rng.IntN(keysEach))
					obj.ResourceVersion = fmt.Sprint(i)
					mustDo(t, []func(any) error{q.Add, q.Update, q.Delete}[rng.IntN(3)](obj))
					switch {
					case p == 0 && i%40 == 0:
						mustDo(t, q.Replace([]any{obj}, "1"))
					case p == 1 && i%40 == 0:
						mustDo(t, q.Resync())
					}
				}
			})
		}
		wg.Wait()
		last := []any{named("p0-k0"), named("last")}
		mustDo(t, q.Replace(last, "2"))
		q.Close()
		wait()
		got := store.List()
		if len(got) != 2 || !contains(got, last[0]) || !contains(got, last[1]) {
			t.Errorf("seed %d, %+v: the consumers end with %v, want what was listed last", seed, o, store.ListKeys())
		}
		if n := q.slots.Used.Load(); n != 0 {
			t.Errorf("seed %d, %+v: %d slots are in use by nothing", seed, o, n)
		}
	}
}

func contains(list []any, obj any) bool {
	for _, have := range list {
		if have == obj {
			return true
		}
	}
	return false
}
