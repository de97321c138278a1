package queuetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls/queue"
)

// concurrentChecks: whatever the interleaving.
var concurrentChecks = []check{
	{name: "nothing lost or reordered among producers", concurrent: true, run: concurrentProducers},
	{name: "nothing stale is handed over", concurrent: true, run: nothingStale},
	{name: "several consumers", concurrent: true, run: severalConsumers},
	{name: "several keys in process at once", applies: manyAtOnce, places: 64, run: severalInProcess},
	{name: "the others go on past a key in hand", applies: manyAtOnce, places: 3, run: pastAKeyInHand},
	{name: "close waits for a key in hand that waits", applies: manyAtOnce, run: closeWithKeyInHand},
	{name: "nobody starves", places: 60, run: nobodyStarves},
	{name: "close amid pushes", applies: ours, concurrent: true, run: closeAmidPushes},
	{name: "context ends amid pushes", applies: bounded, concurrent: true, run: contextAmidPushes},
	{name: "replace at one moment", concurrent: true, run: replaceAtOneMoment},
	{name: "has synced after all of the list", applies: unlocked, concurrent: true, run: syncedAfterAll},
	{name: "random operations", run: randomOperations},
	{name: "linearizable", applies: func(b bed) bool { return b.Capacity <= 7 }, concurrent: true, run: linearizable},
}

// concurrentProducers plays versions of many keys from several goroutines, each
// the author of its own keys: versions of a key come out ascending, the last one
// in any case.
func concurrentProducers(t *testing.T, b bed) {
	const producers, keysEach, versions = 4, 9, 40
	r := b.new(t)
	r.watchdog()
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
			if v := version(obj); v <= last[keyOf(obj)] {
				t.Errorf("%s: version %d came after %d", keyOf(obj), v, last[keyOf(obj)])
			}
			last[keyOf(obj)] = version(obj)
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

// nothingStale: a Pop that begins after a call has returned must not overlook
// what that brought, nor hand over what that took out.
func nothingStale(t *testing.T, b bed) {
	const producers, keysEach, versions = 4, 3, 60
	r := b.new(t)
	r.watchdog()
	// said[key] is what the last call that returned said: a version, or the
	// negative of one if the key was deleted.
	said := map[string]*atomic.Int64{}
	for p := range producers {
		for k := range keysEach {
			said[fmt.Sprintf("p%d-k%d", p, k)] = new(atomic.Int64)
		}
	}
	var wg sync.WaitGroup
	for p := range producers {
		rng := rand.New(rand.NewPCG(uint64(p), 1))
		wg.Go(func() {
			for v := 1; v <= versions; v++ {
				name := fmt.Sprintf("p%d-k%d", p, rng.IntN(keysEach))
				if rng.IntN(3) == 0 {
					r.do(r.queue.Delete(pod(name, v)))
					said[name].Store(int64(-v))
				} else {
					r.do(r.queue.Update(pod(name, v)))
					said[name].Store(int64(v))
				}
			}
		})
	}
	go func() {
		wg.Wait()
		r.queue.Close()
	}()
	before := map[string]int64{}
	for turn := 0; ; turn++ {
		for range turn % 8 {
			runtime.Gosched() // So that something comes to wait.
		}
		for name, v := range said {
			before[name] = v.Load()
		}
		_, err := r.queue.Pop(func(obj any, _ bool) error {
			v, told := int64(version(obj)), before[keyOf(obj)]
			if v < told || told < 0 && v <= -told {
				t.Errorf("%s: version %d was handed over by a Pop that began after %d had been said", keyOf(obj), v, told)
			}
			return nil
		})
		if err != nil {
			break
		}
	}
}

// severalConsumers: those that take at once don't get the same twice, nor lose
// anything between them; a key is in one's hands at a time, and where the
// guarantees speak of one consumer, so is the queue.
func severalConsumers(t *testing.T, b bed) {
	const consumers, producers, keysEach, versions = 4, 2, 5, 60
	r := b.new(t)
	r.watchdog()
	var mu sync.Mutex
	inProcess := map[string]bool{}
	last := map[string]int{}
	var processing atomic.Int32
	process := func(obj any, _ bool) error {
		key, v := keyOf(obj), version(obj)
		if n := processing.Add(1); n > 1 && !b.manyAtOnce() {
			t.Errorf("%d consumers process at once", n)
		}
		mu.Lock()
		if inProcess[key] {
			t.Errorf("%s is in two consumers' hands", key)
		}
		if v <= last[key] {
			t.Errorf("%s: version %d came after %d", key, v, last[key])
		}
		inProcess[key], last[key] = true, v
		mu.Unlock()
		runtime.Gosched()
		mu.Lock()
		inProcess[key] = false
		mu.Unlock()
		processing.Add(-1)
		return nil
	}
	var takers, givers sync.WaitGroup
	for range consumers {
		takers.Go(func() {
			for {
				if _, err := r.queue.Pop(process); err != nil {
					if !errors.Is(err, cache.ErrFIFOClosed) {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	for p := range producers {
		givers.Go(func() {
			for v := 1; v <= versions; v++ {
				for k := range keysEach {
					if err := r.queue.Update(pod(fmt.Sprintf("p%d-k%d", p, k), v)); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	givers.Wait()
	r.queue.Close()
	takers.Wait()
	for key, v := range last {
		if v != versions {
			t.Errorf("%s: the last version that came out is %d, want %d", key, v, versions)
		}
	}
	if len(last) != producers*keysEach {
		t.Errorf("%d keys came out, want %d", len(last), producers*keysEach)
	}
}

// severalInProcess: several consumers are handed keys at once.
func severalInProcess(t *testing.T, b bed) {
	synctest.Test(t, func(t *testing.T) {
		const consumers = 4
		r := b.new(t)
		for i := range 64 {
			r.do(r.queue.Add(pod(fmt.Sprintf("k%d", i), i)))
		}
		var inside, returned atomic.Int32
		release := make(chan struct{})
		for range consumers {
			go func() {
				_, _ = r.queue.Pop(func(any, bool) error {
					inside.Add(1)
					<-release
					return nil
				})
				returned.Add(1)
			}()
		}
		synctest.Wait()
		if n := inside.Load(); n != consumers {
			t.Errorf("%d of %d consumers are in process, though 64 keys waited", n, consumers)
		}
		close(release)
		synctest.Wait()
		if n := returned.Load(); n != consumers {
			t.Errorf("%d of %d consumers returned", n, consumers)
		}
	})
}

// pastAKeyInHand: a key that a consumer has in hand waits for that one, and
// others are woken for the rest and, when that one is done, for the key.
func pastAKeyInHand(t *testing.T, b bed) {
	b.Shards = 1
	synctest.Test(t, func(t *testing.T) {
		r := b.new(t)
		hold := make(chan struct{})
		var mu sync.Mutex
		var got []string
		consumer := func() {
			for {
				_, err := r.queue.Pop(func(obj any, _ bool) error {
					mu.Lock()
					got = append(got, word(obj))
					mu.Unlock()
					if word(obj) == "a@1" {
						<-hold
					}
					return nil
				})
				if err != nil {
					return
				}
			}
		}
		for range 3 {
			go consumer()
		}
		expect := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(slices.Sorted(slices.Values(got)), want) {
				t.Errorf("%s, %v has been handed over, want %v", when, got, want)
			}
		}
		r.do(r.queue.Add(pod("a", 1)))
		synctest.Wait()
		r.do(r.queue.Update(pod("a", 2)), r.queue.Add(pod("b", 3)), r.queue.Add(pod("c", 4)))
		expect("while a is in hand", "a@1", "b@3", "c@4")
		if n := r.queue.Len(); n != 1 {
			t.Errorf("length is %d while a key waits for its consumer, want 1", n)
		}
		r.do(r.queue.Update(pod("a", 5)), r.queue.Delete(pod("b", 6)), r.queue.Add(pod("d", 7)))
		expect("while a is in hand", "a@1", "b@3", "c@4", "d@7")
		close(hold)
		expect("when it is let go", "a@1", "a@5", "b@3", "c@4", "d@7")
	})
}

// closeWithKeyInHand: a consumer does not report the end while a key waits that
// another has in hand.
func closeWithKeyInHand(t *testing.T, b bed) {
	synctest.Test(t, func(t *testing.T) {
		r := b.new(t)
		hold := make(chan struct{})
		var handed, ended atomic.Int32
		r.do(r.queue.Add(pod("a", 1)))
		go func() {
			_, _ = r.queue.Pop(func(any, bool) error { <-hold; return nil })
		}()
		synctest.Wait()
		r.do(r.queue.Update(pod("a", 2)))
		r.queue.Close()
		for range 2 {
			go func() {
				for {
					if _, err := r.queue.Pop(func(any, bool) error { handed.Add(1); return nil }); err != nil {
						ended.Add(1)
						return
					}
				}
			}()
		}
		synctest.Wait()
		if handed.Load() != 0 || ended.Load() != 0 {
			t.Errorf("%d were handed the key in hand, %d told of the end", handed.Load(), ended.Load())
		}
		close(hold)
		synctest.Wait()
		if handed.Load() != 1 || ended.Load() != 2 {
			t.Errorf("then %d were handed the key and %d told of the end, want 1 and 2", handed.Load(), ended.Load())
		}
	})
}

// nobodyStarves: keys that wait get their turn although another key, in
// whichever shard, always has something new.
func nobodyStarves(t *testing.T, b bed) {
	const others = 20
	for i := range 8 {
		hot := fmt.Sprintf("hot%d", i)
		r := b.new(t)
		for i := range others {
			r.do(r.queue.Add(pod(fmt.Sprintf("k%d", i), i)), r.queue.Update(pod(hot, i)))
		}
		// A turn of everybody, and some of the hot one between.
		for range 5 * others {
			r.do(r.queue.Update(pod(hot, 0)), r.take())
		}
		for i := range others {
			if w := fmt.Sprintf("k%d@%d", i, i); !slices.Contains(r.taken, w) {
				t.Errorf("%s did not come within %d hand-overs beside %s", w, 5*others, hot)
			}
		}
	}
}

// pushers starts producers of keys that are all different, which end by an
// error, and returns what was accepted once they have.
func (r *rig) pushers(n int, accepted func(total int64)) (wait func(ended error) (words []string)) {
	var wg sync.WaitGroup
	var total atomic.Int64
	words := make([][]string, n)
	errs := make([]error, n)
	for p := range n {
		wg.Go(func() {
			for i := 0; ; i++ {
				obj := pod(fmt.Sprintf("p%d-%d", p, i), i)
				if errs[p] = r.queue.Add(obj); errs[p] != nil {
					return
				}
				words[p] = append(words[p], word(obj))
				accepted(total.Add(1))
			}
		})
	}
	return func(ended error) []string {
		wg.Wait()
		for p, err := range errs {
			if !errors.Is(err, ended) {
				r.t.Errorf("producer %d ended with %v, want %v", p, err, ended)
			}
		}
		return slices.Sorted(slices.Values(slices.Concat(words...)))
	}
}

// takeAll takes until the queue is closed and drained, and compares with what
// was accepted.
func (r *rig) takeAll(accepted func() []string) {
	r.t.Helper()
	var err error
	for err == nil {
		err = r.take()
	}
	if !errors.Is(err, cache.ErrFIFOClosed) {
		r.t.Error(err)
	}
	got := slices.Sorted(slices.Values(r.taken))
	if want := accepted(); !slices.Equal(got, want) {
		r.t.Errorf("%d objects were handed over, %d were accepted: %s", len(got), len(want), difference(got, want))
	}
}

// difference says what is in one only of two sorted lists.
func difference(got, want []string) string {
	in := func(list []string, s string) bool { _, ok := slices.BinarySearch(list, s); return ok }
	for _, s := range want {
		if !in(got, s) {
			return s + " was lost"
		}
	}
	for _, s := range got {
		if !in(want, s) {
			return s + " was refused, and handed over"
		}
	}
	return "some came twice"
}

// closeAmidPushes: at whatever moment Close comes, what was accepted is handed
// over, and what was refused is not.
func closeAmidPushes(t *testing.T, b bed) {
	for range 6 {
		r := b.new(t)
		r.watchdog()
		closeAt := 1 + rand.Int64N(100)
		wait := r.pushers(4, func(total int64) {
			if total == closeAt {
				r.queue.Close()
			}
		})
		r.takeAll(func() []string { return wait(cache.ErrFIFOClosed) })
	}
}

// contextAmidPushes: the same where the producers' context ends, which those see
// that find no room.
func contextAmidPushes(t *testing.T, b bed) {
	for range max(1, 4-b.Capacity) {
		ctx, cancel := context.WithCancel(t.Context())
		r := b.new(t, func(o *queue.Options) { o.Context = ctx })
		r.watchdog()
		cancelAt := 1 + rand.Int64N(100)
		full := make(chan struct{})
		r.during = func() {
			if ctx.Err() != nil {
				<-full
			}
		}
		wait := r.pushers(4, func(total int64) {
			if total == cancelAt {
				cancel()
			}
		})
		words := make(chan []string, 1)
		go func() {
			defer close(full)
			<-ctx.Done()
			words <- wait(context.Canceled)
			r.queue.Close()
		}()
		r.takeAll(func() []string { return <-words })
		cancel()
	}
}

// replaceAtOneMoment: who has seen an object of a list sees none of those that
// it replaced. With several consumers the moment of a hand-over isn't known, so
// that one takes.
func replaceAtOneMoment(t *testing.T, b bed) {
	const lists, keys = 60, 40
	r := b.new(t)
	r.watchdog()
	go func() {
		for v := 1; v <= lists; v++ {
			var list []any
			for k := range keys {
				list = append(list, pod(fmt.Sprintf("k%d", k), v))
			}
			if err := r.queue.Replace(list, "1"); err != nil {
				t.Error(err)
			}
			runtime.Gosched()
		}
		r.queue.Close()
	}()
	newest, n := 0, 0
	for {
		_, err := r.queue.Pop(func(obj any, _ bool) error {
			v := version(obj)
			if v < newest {
				t.Errorf("%s came after an object of list %d", word(obj), newest)
			}
			if v > newest {
				newest, n = v, 0
			}
			n++
			return nil
		})
		if err != nil {
			break
		}
	}
	if newest != lists || n != keys {
		t.Errorf("%d objects of list %d came last, want %d of list %d", n, newest, keys, lists)
	}
}

// syncedAfterAll: however many consumers there are, nobody is told that the
// initial list has been processed before the last process of it has returned,
// and everybody afterwards.
func syncedAfterAll(t *testing.T, b bed) {
	const keys, consumers = 50, 3
	r := b.new(t)
	r.watchdog()
	var list []any
	for k := range keys {
		list = append(list, pod(fmt.Sprintf("k%d", k), 1))
	}
	r.do(r.queue.Replace(list, "1"))
	var processed, synced atomic.Int32
	var wg sync.WaitGroup
	for range consumers {
		wg.Go(func() {
			for processed.Load() < keys {
				_, err := r.queue.Pop(func(any, bool) error {
					if r.queue.HasSynced() {
						synced.Add(1)
					}
					runtime.Gosched()
					if processed.Add(1) == keys {
						r.queue.Close()
					}
					return nil
				})
				if err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	if n := synced.Load(); n > 0 {
		t.Errorf("HasSynced was true inside %d of %d processes of the initial list", n, keys)
	}
	r.synced(true, "after all of the list")
}

// randomOperations plays a few of them beside the model.
func randomOperations(t *testing.T, b bed) {
	seed := rand.Uint64()
	ops := Random(rand.New(rand.NewPCG(seed, 0)), 2000, 12)
	if err := Play(b.variant, b.Arrangement, Material{}, ops); err != nil {
		t.Errorf("seed %d: %v\n%s", seed, err, Minimal(b.variant, b.Arrangement, Material{}, ops))
	}
}
