package deltafifo

import (
	"errors"
	"fmt"
	"runtime"
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
