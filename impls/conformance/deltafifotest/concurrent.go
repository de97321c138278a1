package deltafifotest

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

// concurrentChecks: whatever the interleaving.
var concurrentChecks = []check{
	{name: "nothing lost, reordered or duplicated among producers", concurrent: true, run: concurrentProducers},
	{name: "several consumers", concurrent: true, run: severalConsumers},
	{name: "several keys in process at once", applies: manyAtOnce, places: 64, run: severalInProcess},
	{name: "nobody starves", places: 60, run: nobodyStarves},
	{name: "close amid pushes", concurrent: true, run: closeAmidPushes},
	{name: "context ends amid pushes", applies: bounded, concurrent: true, run: contextAmidPushes},
	{name: "length never understates", applies: ours, concurrent: true, run: lengthNeverUnderstates},
	{name: "replace amid pushes", applies: func(b bed) bool { return b.Known || inOrder(b) }, concurrent: true, run: replaceAmidPushes},
	{name: "random operations", run: randomOperations},
	{name: "linearizable", concurrent: true, run: linearizable},
}

// concurrentProducers plays many keys from several goroutines, each the author
// of its own keys, into one consumer. A producer counts its events: each of the
// three faults shows as a step that isn't the next.
func concurrentProducers(t *testing.T, b bed) {
	const producers, keysEach, each = 4, 7, 140
	r := b.new(t)
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
	for r.take() == nil {
	}
	// With in-order delivery a producer's events stay in order whatever their
	// key.
	sequence, first, step := func(name string, n int) (string, int) { return name, n % keysEach }, 0, keysEach
	if inOrder(b) {
		sequence, step = func(name string, _ int) (string, int) { return name[:2], 0 }, 1
	}
	next := map[string]int{}
	for _, d := range r.deltas(0) {
		n := version(d.Object)
		s, start := sequence(keyOf(d.Object), n)
		want, begun := next[s]
		if !begun {
			want = first + start
		}
		if n != want && !(b.latest() && n > want) {
			t.Fatalf("%s: event %d came where %d was next", s, n, want)
		}
		next[s] = n + step
	}
	for s, n := range next {
		if n < each {
			t.Errorf("%s: lost what came from event %d on", s, n)
		}
	}
	if want := producers * keysEach / step * min(step, keysEach); !inOrder(b) && len(next) != want {
		t.Errorf("%d keys came out, want %d", len(next), want)
	}
}

// severalConsumers: those that take at once don't get the same twice, nor lose
// anything between them; a key is in one's hands at a time, and where the
// guarantees speak of one consumer, so is the queue.
func severalConsumers(t *testing.T, b bed) {
	const consumers, producers, keysEach, each = 4, 2, 5, 150
	r := b.new(t)
	r.watchdog()
	var mu sync.Mutex
	inProcess := map[string]bool{}
	seen := map[string][]int{}
	var processing atomic.Int32
	note := func(deltas []cache.Delta, enter bool) {
		mu.Lock()
		defer mu.Unlock()
		for _, d := range deltas {
			key := keyOf(d.Object)
			if enter {
				seen[key] = append(seen[key], version(d.Object))
			}
			inProcess[key] = enter
		}
	}
	process := func(h handover) error {
		if n := processing.Add(1); n > 1 && oneAtATime(b) {
			t.Errorf("%d consumers process at once", n)
		}
		defer processing.Add(-1)
		mu.Lock()
		for _, d := range h.deltas {
			if inProcess[keyOf(d.Object)] && ours(b) {
				t.Errorf("%s is in two consumers' hands", keyOf(d.Object))
			}
		}
		mu.Unlock()
		note(h.deltas, true)
		runtime.Gosched()
		note(h.deltas, false)
		return nil
	}
	var takers, givers sync.WaitGroup
	for range consumers {
		takers.Go(func() {
			for {
				if err := takeFrom(r.queue, b.path, process); err != nil {
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
			for n := range each {
				if err := r.queue.Update(pod(fmt.Sprintf("p%d-k%d", p, n%keysEach), n)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	givers.Wait()
	r.queue.Close()
	takers.Wait()
	for key, versions := range seen {
		if b.upstream() {
			slices.Sort(versions) // It may hand over to several at once.
		}
		last := versions[0]%keysEach - keysEach
		for _, v := range versions {
			if v != last+keysEach && !(b.latest() && v > last) {
				t.Fatalf("%s: event %d came after %d", key, v, last)
			}
			last = v
		}
		if last < each-keysEach {
			t.Errorf("%s: lost what came after event %d", key, last)
		}
	}
	if len(seen) != producers*keysEach {
		t.Errorf("%d keys came out, want %d", len(seen), producers*keysEach)
	}
}

// severalInProcess: several consumers are handed keys at once.
func severalInProcess(t *testing.T, b bed) {
	b.Shards = 4
	synctest.Test(t, func(t *testing.T) {
		const consumers = 2
		r := b.new(t)
		for i := range 64 {
			r.do(r.queue.Add(pod(fmt.Sprintf("k%d", i), i)))
		}
		var inside, returned atomic.Int32
		release := make(chan struct{})
		for range consumers {
			go func() {
				_ = takeFrom(r.queue, b.path, func(handover) error {
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
		r.queue.Close()
	})
}

// nobodyStarves: keys that wait get their turn although another key always has
// something new.
func nobodyStarves(t *testing.T, b bed) {
	const others, hot = 20, "hot"
	r := b.new(t)
	for i := range others {
		r.do(r.queue.Add(pod(fmt.Sprintf("k%d", i), i)), r.queue.Update(pod(hot, i)))
	}
	// A turn of everybody, and some of the hot one between.
	for range 5 * others {
		r.do(r.queue.Update(pod(hot, 0)), r.take())
	}
	seen := map[string]bool{}
	for _, d := range r.deltas(0) {
		seen[keyOf(d.Object)] = true
	}
	if len(seen) != others+1 {
		t.Errorf("%d of %d keys came within %d hand-overs", len(seen), others+1, 5*others)
	}
}

// pushers starts producers of keys that are all different, which end by an
// error, and returns what was accepted once they have.
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
		all := slices.Concat(keys...)
		slices.Sort(all)
		return all
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
	var got []string
	for _, d := range r.deltas(0) {
		got = append(got, keyOf(d.Object))
	}
	slices.Sort(got)
	if want := accepted(); !slices.Equal(got, want) {
		r.t.Errorf("%d events were handed over, %d were accepted: %s", len(got), len(want), difference(got, want))
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
	if b.upstream() {
		return // It accepts for ever.
	}
	for range 2 {
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
		r := b.new(t, func(o *deltafifo.Options) { o.Context = ctx })
		r.watchdog()
		cancelAt := 1 + rand.Int64N(100)
		full := make(chan struct{})
		r.during = func([]cache.Delta) {
			if ctx.Err() != nil {
				<-full
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
		r.takeAll(func() []string { return <-keys })
		cancel()
	}
}

// lengthNeverUnderstates: what was accepted and not handed over is in the
// length, save for what is on its way into process.
func lengthNeverUnderstates(t *testing.T, b bed) {
	const producers, each = 2, 60
	b.BatchSize = 3
	onItsWay := int64(1)
	if batched(b) {
		onItsWay = int64(b.BatchSize)
	}
	r := b.new(t)
	r.watchdog()
	var accepted, handed atomic.Int64
	r.during = func(deltas []cache.Delta) {
		handed.Add(int64(len(deltas)))
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
		for {
			before := accepted.Load()
			length := int64(r.queue.Len())
			if waits := before - handed.Load(); length < 0 || waits > length+onItsWay {
				t.Errorf("length is %d, though %d wait", length, waits)
				return
			}
			select {
			case <-stop:
				return
			default:
				runtime.Gosched()
			}
		}
	}()
	go func() {
		wg.Wait()
		r.queue.Close()
	}()
	for r.take() == nil {
	}
	close(stop)
	<-stopped
	if n := handed.Load(); n != producers*each {
		t.Errorf("%d events were handed over, want %d", n, producers*each)
	}
}

// replaceAmidPushes: whatever was under way, the consumer ends with the last
// list.
func replaceAmidPushes(t *testing.T, b bed) {
	const producers, keys, each = 3, 12, 60
	seed := rand.Uint64()
	r := b.new(t)
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
				if err := put(object(rng)); err != nil {
					t.Error(err)
				}
				if p > 0 {
					continue
				}
				switch rng.IntN(8) {
				case 0:
					if err := r.queue.Replace([]any{object(rng), pod("listed", 1)}, "1"); err != nil {
						t.Error(err)
					}
				case 1:
					if err := r.queue.Resync(); err != nil {
						t.Error(err)
					}
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
	for r.take() == nil {
	}
	if got, want := r.store.state(), []string{"k1@100000", "last@100001"}; !slices.Equal(got, want) {
		t.Errorf("seed %d: the consumer ends with %v, want %v; it was handed %v", seed, got, want, r.all())
	}
}

// randomOperations plays a few of them beside the model.
func randomOperations(t *testing.T, b bed) {
	if b.path == byBatch {
		return // Either path plays both.
	}
	for _, size := range []int{0, 3} {
		b.BatchSize = size
		q, err := b.variant.New(b.Options(newStore()))
		if err != nil {
			continue
		}
		q.Close()
		seed := rand.Uint64()
		ops := Random(rand.New(rand.NewPCG(seed, 0)), 400, 12)
		if _, err := Play(b.variant, b.Arrangement, Material{}, ops); err != nil {
			t.Errorf("seed %d: %v\n%s", seed, err, Minimal(b.variant, b.Arrangement, Material{}, ops))
		}
	}
}
