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

	"watchlab/impls/deltafifo"
)

// concurrentChecks hold for every interleaving.
var concurrentChecks = []check{
	{Name: "nothing lost, reordered or duplicated among producers", Concurrent: true, Run: concurrentProducers},
	{Name: "nothing stale is popped", For: objects, Concurrent: true, Run: nothingStale},
	{Name: "concurrent consumers", Concurrent: true, Run: concurrentConsumers},
	{Name: "several keys in process at once", For: all(manyAtOnce, room(64)), Run: severalInProcess},
	{Name: "consumers pass over a key in process", For: all(objects, manyAtOnce, room(3)), Run: passOver},
	{Name: "Close waits for a queued key in process", For: all(objects, manyAtOnce), Run: closeWithKeyInProcess},
	{Name: "no key starves", For: room(60), Run: noKeyStarves},
	// Upstream accepts calls after Close.
	{Name: "Close during pushes", For: ours, Concurrent: true, Run: closeDuringPushes},
	{Name: "context ends during pushes", For: bounded, Concurrent: true, Run: contextDuringPushes},
	{Name: "Len never understates", For: all(deltas, ours), Concurrent: true, Run: lenNeverUnderstates},
	{Name: "Replace during pushes", For: all(deltas, deletesSeen), Concurrent: true, Run: replaceDuringPushes},
	{Name: "Replace is atomic", For: objects, Concurrent: true, Run: replaceIsAtomic},
	{Name: "HasSynced after the whole list", For: all(objects, unlocked), Concurrent: true, Run: syncedAfterAll},
	{Name: "random operations", For: func(s setup) bool { return s.path == byPop }, Run: randomOperations},
	{Name: "linearizable", For: linearizableSetup, Concurrent: true, Run: linearizable},
}

// concurrentProducers pushes many keys from several goroutines, each with keys
// of its own, into one consumer. A producer counts its events: each fault shows
// as a step that is not the next.
func concurrentProducers(t *testing.T, s setup) {
	const producers, keysEach, each = 4, 7, 140
	r := s.new(t)
	r.watchdog()
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() {
			for n := range each {
				obj := pod(fmt.Sprintf("p%d-k%d", p, n%keysEach), n)
				put := r.queue.Update
				if n < keysEach {
					put = r.queue.Add
				}
				if err := put(obj); err != nil {
					t.Errorf("producer %d: %v", p, err)
					return
				}
			}
		})
	}
	go func() {
		wg.Wait()
		r.queue.Close()
	}()
	r.popAll()
	// With in-order delivery a producer's events stay in order whatever their
	// key.
	sequence, first, step := func(name string, n int) (string, int) { return name, n % keysEach }, 0, keysEach
	if inOrder(s) {
		sequence, step = func(name string, _ int) (string, int) { return name[:2], 0 }, 1
	}
	next := map[string]int{}
	for _, d := range r.deltas(0) {
		n := version(d.Object)
		name, start := sequence(keyOf(d.Object), n)
		want, begun := next[name]
		if !begun {
			want = first + start
		}
		if n != want && !(latest(s) && n > want) {
			t.Fatalf("%s: event %d came where %d was next", name, n, want)
		}
		next[name] = n + step
	}
	for name, n := range next {
		if n < each {
			t.Errorf("%s: lost events from %d on", name, n)
		}
	}
	if want := producers * keysEach / step * min(step, keysEach); !inOrder(s) && len(next) != want {
		t.Errorf("popped %d keys, want %d", len(next), want)
	}
}

// nothingStale: a Pop that begins after a call has returned sees its effect.
func nothingStale(t *testing.T, s setup) {
	const producers, keysEach, versions = 4, 3, 60
	r := s.new(t)
	r.watchdog()
	// last[key] is the version of the last call that returned, negative where
	// that was a delete.
	last := map[string]*atomic.Int64{}
	for p := range producers {
		for k := range keysEach {
			last[fmt.Sprintf("p%d-k%d", p, k)] = new(atomic.Int64)
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
					last[name].Store(int64(-v))
				} else {
					r.do(r.queue.Update(pod(name, v)))
					last[name].Store(int64(v))
				}
			}
		})
	}
	go func() {
		wg.Wait()
		r.queue.Close()
	}()
	before := map[string]int64{}
	r.during = func(deltas []cache.Delta) {
		key, v := keyOf(deltas[0].Object), int64(version(deltas[0].Object))
		if told := before[key]; v < told || told < 0 && v <= -told {
			t.Errorf("%s: a Pop that began after the call of version %d delivered %d", key, told, v)
		}
	}
	for turn, err := 0, error(nil); err == nil; turn++ {
		for range turn % 8 {
			runtime.Gosched() // Some keys are queued meanwhile.
		}
		for name, v := range last {
			before[name] = v.Load()
		}
		err = r.pop()
	}
}

// concurrentConsumers: several consumers receive each event once between them,
// a key is in process at one of them at a time, and where the guarantees are for
// one consumer, so is the queue.
func concurrentConsumers(t *testing.T, s setup) {
	const consumers, producers, keysEach, each = 4, 2, 5, 150
	r := s.new(t)
	r.watchdog()
	var mu sync.Mutex
	inProcess := map[string]bool{}
	seen := map[string][]int{}
	var processing atomic.Int32
	process := func(p popped) error {
		if n := processing.Add(1); n > 1 && oneAtATime(s) {
			t.Errorf("%d consumers process at once", n)
		}
		defer processing.Add(-1)
		mu.Lock()
		for _, d := range p.deltas {
			if inProcess[keyOf(d.Object)] && (ours(s) || s.objects) {
				t.Errorf("%s is in process twice", keyOf(d.Object))
			}
		}
		for _, d := range p.deltas {
			seen[keyOf(d.Object)] = append(seen[keyOf(d.Object)], version(d.Object))
			inProcess[keyOf(d.Object)] = true
		}
		mu.Unlock()
		// Long enough for another consumer to come in, were it let in.
		for range 16 {
			runtime.Gosched()
		}
		mu.Lock()
		for _, d := range p.deltas {
			inProcess[keyOf(d.Object)] = false
		}
		mu.Unlock()
		return nil
	}
	var consuming, producing sync.WaitGroup
	for range consumers {
		consuming.Go(func() {
			var err error
			for err == nil {
				err = s.popFrom(r.queue, s.path, process)
			}
			if !errors.Is(err, cache.ErrFIFOClosed) {
				t.Error(err)
			}
		})
	}
	for p := range producers {
		producing.Go(func() {
			for n := range each {
				if err := r.queue.Update(pod(fmt.Sprintf("p%d-k%d", p, n%keysEach), n)); err != nil {
					t.Error(err)
				}
				// A backlog of all events would come in one hand-over per key.
				runtime.Gosched()
			}
		})
	}
	producing.Wait()
	r.queue.Close()
	consuming.Wait()
	for key, versions := range seen {
		if upstream(s) {
			slices.Sort(versions) // It may call process of several consumers at once.
		}
		last := versions[0]%keysEach - keysEach
		for _, v := range versions {
			if v != last+keysEach && !(latest(s) && v > last) {
				t.Fatalf("%s: event %d came after %d", key, v, last)
			}
			last = v
		}
		if last < each-keysEach {
			t.Errorf("%s: lost events after %d", key, last)
		}
	}
	if len(seen) != producers*keysEach {
		t.Errorf("popped %d keys, want %d", len(seen), producers*keysEach)
	}
}

func severalInProcess(t *testing.T, s setup) {
	consumers := int32(4)
	if deltas(s) {
		s.Shards, consumers = 4, 2
	}
	synctest.Test(t, func(t *testing.T) {
		r := s.new(t)
		for i := range 64 {
			r.do(r.queue.Add(pod(fmt.Sprintf("k%d", i), i)))
		}
		var inside, returned atomic.Int32
		release := make(chan struct{})
		for range consumers {
			go func() {
				_ = s.popFrom(r.queue, s.path, func(popped) error {
					inside.Add(1)
					<-release
					return nil
				})
				returned.Add(1)
			}()
		}
		synctest.Wait()
		if n := inside.Load(); n != consumers {
			t.Errorf("%d of %d consumers are in process with 64 keys queued", n, consumers)
		}
		close(release)
		synctest.Wait()
		if n := returned.Load(); n != consumers {
			t.Errorf("%d of %d consumers returned", n, consumers)
		}
		r.queue.Close()
	})
}

// passOver: a queued key that is in process waits for that consumer; other
// consumers are woken for the other keys and, afterwards, for the key.
func passOver(t *testing.T, s setup) {
	s.Shards = 1
	synctest.Test(t, func(t *testing.T) {
		r := s.new(t)
		hold := make(chan struct{})
		var mu sync.Mutex
		var got []string
		for range 3 {
			go func() {
				var err error
				for err == nil {
					err = s.popFrom(r.queue, byPop, func(p popped) error {
						w := word(p.deltas[0])
						mu.Lock()
						got = append(got, w)
						mu.Unlock()
						if w == "a@1" {
							<-hold
						}
						return nil
					})
				}
			}()
		}
		expect := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(slices.Sorted(slices.Values(got)), want) {
				t.Errorf("%s, popped %v, want %v", when, got, want)
			}
		}
		r.do(r.queue.Add(pod("a", 1)))
		synctest.Wait()
		r.do(r.queue.Update(pod("a", 2)), r.queue.Add(pod("b", 3)), r.queue.Add(pod("c", 4)))
		expect("while a is in process", "a@1", "b@3", "c@4")
		if n := r.queue.Len(); n != 1 {
			t.Errorf("Len is %d while a key waits for its consumer, want 1", n)
		}
		r.do(r.queue.Update(pod("a", 5)), r.queue.Delete(pod("b", 6)), r.queue.Add(pod("d", 7)))
		expect("while a is in process", "a@1", "b@3", "c@4", "d@7")
		close(hold)
		expect("afterwards", "a@1", "a@5", "b@3", "c@4", "d@7")
	})
}

// closeWithKeyInProcess: a closed queue is not drained while a queued key is in
// process.
func closeWithKeyInProcess(t *testing.T, s setup) {
	synctest.Test(t, func(t *testing.T) {
		r := s.new(t)
		hold := make(chan struct{})
		var delivered, ended atomic.Int32
		r.do(r.queue.Add(pod("a", 1)))
		go func() {
			_, _ = r.queue.Pop(func(any, bool) error { <-hold; return nil })
		}()
		synctest.Wait()
		r.do(r.queue.Update(pod("a", 2)))
		r.queue.Close()
		for range 2 {
			go func() {
				var err error
				for err == nil {
					_, err = r.queue.Pop(func(any, bool) error { delivered.Add(1); return nil })
				}
				ended.Add(1)
			}()
		}
		synctest.Wait()
		if delivered.Load() != 0 || ended.Load() != 0 {
			t.Errorf("the key in process was delivered %d times, %d consumers saw the end", delivered.Load(), ended.Load())
		}
		close(hold)
		synctest.Wait()
		if delivered.Load() != 1 || ended.Load() != 2 {
			t.Errorf("then it was delivered %d times and %d consumers saw the end, want 1 and 2", delivered.Load(), ended.Load())
		}
	})
}

// noKeyStarves: queued keys are popped although another key, in any shard, is
// updated before each pop.
func noKeyStarves(t *testing.T, s setup) {
	const others = 20
	for i := range 8 {
		hot := fmt.Sprintf("hot%d", i)
		r := s.new(t)
		for i := range others {
			r.do(r.queue.Add(pod(fmt.Sprintf("k%d", i), i)), r.queue.Update(pod(hot, i)))
		}
		for range 5 * others {
			r.do(r.queue.Update(pod(hot, 0)), r.pop())
		}
		seen := map[string]bool{}
		for _, d := range r.deltas(0) {
			seen[keyOf(d.Object)] = true
		}
		if len(seen) != others+1 {
			t.Errorf("%d of %d keys were popped within %d pops beside %s", len(seen), others+1, 5*others, hot)
		}
	}
}

// pushers starts producers of distinct keys, which end with an error. The
// function that it returns waits for them and returns the accepted keys.
func (r *rig) pushers(n int, accepted func(total int64)) (wait func(ended error) (keys []string)) {
	var wg sync.WaitGroup
	var total atomic.Int64
	keys := make([][]string, n)
	errs := make([]error, n)
	for p := range n {
		wg.Go(func() {
			for i := 0; ; i++ {
				key := fmt.Sprintf("p%d-%d", p, i)
				if errs[p] = r.queue.Add(pod(key, i)); errs[p] != nil {
					return
				}
				keys[p] = append(keys[p], key)
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
		return slices.Sorted(slices.Values(slices.Concat(keys...)))
	}
}

// popAccepted pops until the queue is closed and empty, and compares with the
// accepted keys.
func (r *rig) popAccepted(accepted func() []string) {
	r.t.Helper()
	r.popAll()
	var got []string
	for _, d := range r.deltas(0) {
		got = append(got, keyOf(d.Object))
	}
	slices.Sort(got)
	want := accepted()
	if slices.Equal(got, want) {
		return
	}
	in := func(list []string, s string) bool { _, ok := slices.BinarySearch(list, s); return ok }
	for _, key := range want {
		if !in(got, key) {
			r.t.Errorf("%s was accepted and lost", key)
		}
	}
	for _, key := range got {
		if !in(want, key) {
			r.t.Errorf("%s was refused and popped", key)
		}
	}
	r.t.Errorf("popped %d keys, %d were accepted", len(got), len(want))
}

func closeDuringPushes(t *testing.T, s setup) {
	for range 6 {
		r := s.new(t)
		r.watchdog()
		closeAt := 1 + rand.Int64N(100)
		wait := r.pushers(4, func(total int64) {
			if total == closeAt {
				r.queue.Close()
			}
		})
		r.popAccepted(func() []string { return wait(cache.ErrFIFOClosed) })
	}
}

// contextDuringPushes ends the context; producers that wait for room return.
func contextDuringPushes(t *testing.T, s setup) {
	for range max(1, 4-s.Capacity) {
		ctx, cancel := context.WithCancel(t.Context())
		r := s.new(t, func(o *deltafifo.Options) { o.Context = ctx })
		r.watchdog()
		cancelAt := 1 + rand.Int64N(100)
		full := make(chan struct{})
		r.during = func([]cache.Delta) {
			if ctx.Err() != nil {
				<-full // Otherwise there might be room for ever.
			}
		}
		wait := r.pushers(4, func(total int64) {
			if total == cancelAt {
				cancel()
			}
		})
		keys := make(chan []string, 1)
		go func() {
			defer close(full)
			<-ctx.Done()
			keys <- wait(context.Canceled)
			r.queue.Close()
		}()
		r.popAccepted(func() []string { return <-keys })
		cancel()
	}
}

// lenNeverUnderstates: Len counts all accepted events that are not popped, except
// those that a pop is about to process.
func lenNeverUnderstates(t *testing.T, s setup) {
	const producers, each = 2, 60
	s.BatchSize = 3
	popping := int64(1)
	if batched(s) {
		popping = int64(s.BatchSize)
	}
	r := s.new(t)
	r.watchdog()
	var accepted, delivered atomic.Int64
	r.during = func(deltas []cache.Delta) {
		delivered.Add(int64(len(deltas)))
		runtime.Gosched()
	}
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() {
			for i := range each {
				if err := r.queue.Add(pod(fmt.Sprintf("p%d-%d", p, i), i)); err != nil {
					t.Error(err)
				}
				accepted.Add(1)
			}
		})
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for !isClosed(stop) {
			before := accepted.Load()
			length := int64(r.queue.Len())
			if queued := before - delivered.Load(); length < 0 || queued > length+popping {
				t.Errorf("Len is %d with %d queued", length, queued)
				return
			}
			runtime.Gosched()
		}
	}()
	go func() {
		wg.Wait()
		r.queue.Close()
	}()
	r.popAll()
	close(stop)
	<-stopped
	if n := delivered.Load(); n != producers*each {
		t.Errorf("popped %d events, want %d", n, producers*each)
	}
}

// replaceDuringPushes: the store ends with the last list.
func replaceDuringPushes(t *testing.T, s setup) {
	const producers, keys, each = 3, 12, 60
	seed := rand.Uint64()
	r := s.new(t)
	r.watchdog()
	var version atomic.Int64
	object := func(rng *rand.Rand) any {
		return pod(fmt.Sprintf("k%d", rng.IntN(keys)), int(version.Add(1)))
	}
	var wg sync.WaitGroup
	for p := range producers {
		rng := rand.New(rand.NewPCG(seed, uint64(p)))
		wg.Go(func() {
			for range each {
				put := []func(any) error{r.queue.Add, r.queue.Update, r.queue.Delete}[rng.IntN(3)]
				err := put(object(rng))
				if p == 0 {
					switch rng.IntN(8) {
					case 0:
						err = errors.Join(err, r.queue.Replace([]any{object(rng), pod("listed", 1)}, "1"))
					case 1:
						err = errors.Join(err, r.queue.Resync())
					}
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	go func() {
		wg.Wait()
		if err := r.queue.Replace([]any{pod("k1", 100000), pod("last", 100001)}, "100001"); err != nil {
			t.Error(err)
		}
		r.queue.Close()
	}()
	r.popAll()
	if got, want := r.store.state(), []string{"k1@100000", "last@100001"}; !slices.Equal(got, want) {
		t.Errorf("seed %d: the store ends with %v, want %v; popped %v", seed, got, want, r.all())
	}
}

// replaceIsAtomic: after the first object of a list, a consumer receives no
// object that the list replaced. There is one consumer, because the order of pops
// among several is unknown.
func replaceIsAtomic(t *testing.T, s setup) {
	const lists, keys = 60, 40
	r := s.new(t)
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
	r.during = func(deltas []cache.Delta) {
		v := version(deltas[0].Object)
		if v < newest {
			t.Errorf("%s came after an object of list %d", word(deltas[0]), newest)
		}
		if v > newest {
			newest, n = v, 0
		}
		n++
	}
	r.popAll()
	if newest != lists || n != keys {
		t.Errorf("%d objects of list %d came last, want %d of list %d", n, newest, keys, lists)
	}
}

// syncedAfterAll: with several consumers, HasSynced is false until the last
// process of the initial list has returned.
func syncedAfterAll(t *testing.T, s setup) {
	const keys, consumers = 50, 3
	r := s.new(t)
	r.watchdog()
	var names []string
	for k := range keys {
		names = append(names, fmt.Sprintf("k%d", k))
	}
	r.replace(names...)
	var processed, synced atomic.Int32
	var wg sync.WaitGroup
	for range consumers {
		wg.Go(func() {
			var err error
			for err == nil && processed.Load() < keys {
				_, err = r.queue.Pop(func(any, bool) error {
					if r.queue.HasSynced() {
						synced.Add(1)
					}
					runtime.Gosched()
					if processed.Add(1) == keys {
						r.queue.Close()
					}
					return nil
				})
			}
		})
	}
	wg.Wait()
	if n := synced.Load(); n > 0 {
		t.Errorf("HasSynced was true inside %d of %d processes of the initial list", n, keys)
	}
	r.synced(true, "after the whole list")
}

// randomOperations compares a few random operations with the model, through
// both Pop and PopBatch.
func randomOperations(t *testing.T, s setup) {
	sizes, n := []int{0, 3}, 400
	if s.objects {
		sizes, n = sizes[:1], 2000
	}
	for _, size := range sizes {
		s.BatchSize = size
		q, err := s.variant.New(s.options(newStore()))
		if err != nil {
			continue
		}
		q.Close()
		seed := rand.Uint64()
		ops := s.random(rand.New(rand.NewPCG(seed, 0)), n, 12)
		if _, err := s.play(material{}, ops); err != nil {
			t.Errorf("seed %d: %v\n%s", seed, err, s.minimal(material{}, ops))
		}
	}
}
