package clientgo

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/conformance"
)

// concurrentChecks hold for every interleaving.
var concurrentChecks = []queueCheck{
	{Name: "nothing lost, reordered or duplicated among producers", Concurrent: true, Run: on(oneConsumer)},
	{Name: "concurrent consumers", Concurrent: true, Run: on(func(r *queueRig) { r.concurrent(4) })},
	{Name: "several keys in process at once", For: all(manyAtOnce, room(64)), Run: severalInProcess},
	{Name: "consumers pass over a key in process", For: all(objects, manyAtOnce), Run: passOver},
	{Name: "no key starves", For: all(manyAtOnce, room(60)), Run: noKeyStarves},
	{Name: "Len never understates", For: all(deltas, ours), Concurrent: true, Run: lenNeverUnderstates},
	{Name: "random operations", For: func(s queueSetup) bool { return s.path == byPop }, Run: randomQueueOperations},
	{Name: "linearizable", For: linearizableSetup, Concurrent: true, Run: linearizableQueue},
}

// sequence tests the versions of events that were popped, by key or producer: each
// is step after the one before, from first on to last. Where only the newest event
// is delivered, steps may be left out.
func sequence(t conformance.TB, s queueSetup, name string, versions []int, first, step, last int) {
	t.Helper()
	next := first
	for _, v := range versions {
		if v != next && !(s.objects && v > next) {
			t.Fatalf("%s: event %d came where %d was next", name, v, next)
		}
		next = v + step
	}
	if next <= last {
		t.Errorf("%s: lost events from %d on", name, next)
	}
}

func oneConsumer(r *queueRig) { r.concurrent(1) }

// concurrent pushes many keys from several goroutines, each with keys of its own. Consumers receive each event
// once between them, a key is in process at one of them at a time, and where the guarantees are for one
// consumer, so is the queue.
func (r *queueRig) concurrent(consumers int) {
	const producers, keysEach, each = 4, 7, 140
	var mu sync.Mutex
	inProcess := map[string]bool{}
	seen := map[string][]int{} // by key and by producer
	var processing atomic.Int32
	mark := func(p popped, is bool) {
		mu.Lock()
		defer mu.Unlock()
		for _, d := range p.deltas {
			if is && inProcess[keyOf(d.Object)] && (ours(r.queueSetup) || r.objects) {
				r.t.Errorf("%s is in process twice", keyOf(d.Object))
			}
		}
		for _, d := range p.deltas {
			key := keyOf(d.Object)
			if inProcess[key] = is; is {
				seen[key] = append(seen[key], version(d.Object))
				seen[key[:2]] = append(seen[key[:2]], version(d.Object))
			}
		}
	}
	var consuming sync.WaitGroup
	for range consumers {
		consuming.Go(func() {
			r.consume(func(p popped) error {
				if n := processing.Add(1); n > 1 && oneAtATime(r.queueSetup) {
					r.t.Errorf("%d consumers process at once", n)
				}
				defer processing.Add(-1)
				mark(p, true)
				// Long enough for another consumer to come in, were it let in.
				for range 4 * consumers {
					runtime.Gosched()
				}
				mark(p, false)
				return p.check(r.queueSetup)
			})
		})
	}
	r.produce(producers, func(p int) (err error) {
		for n := range each {
			put := r.queue.Update
			if n < keysEach {
				put = r.queue.Add
			}
			err = errors.Join(err, put(pod(fmt.Sprintf("p%d-k%d", p, n%keysEach), n)))
			if consumers > 1 {
				runtime.Gosched() // A backlog of all events would come in one pop per key.
			}
		}
		return err
	})
	consuming.Wait()
	for p := range producers {
		name := fmt.Sprintf("p%d", p)
		if inOrder(r.queueSetup) && (consumers == 1 || ours(r.queueSetup)) {
			sequence(r.t, r.queueSetup, name, seen[name], 0, 1, each-1)
		}
		for k := range keysEach {
			name := fmt.Sprintf("p%d-k%d", p, k)
			if consumers > 1 && upstream(r.queueSetup) {
				slices.Sort(seen[name]) // It may call process of several consumers at once.
			}
			sequence(r.t, r.queueSetup, name, seen[name], k, keysEach, each-keysEach+k)
		}
	}
}

// consumers pop at once in a bubble. Each stays in process with an event of key a
// in version 1 until release is closed.
type consumers struct {
	*queueRig
	release chan struct{}
	mu      sync.Mutex
	words   []string
	ended   int
}

func (r *queueRig) consumers(n int) *consumers {
	c := &consumers{queueRig: r, release: make(chan struct{})}
	for range n {
		go func() {
			r.consume(func(p popped) error {
				c.mu.Lock()
				c.words = append(c.words, words(p.deltas)...)
				c.mu.Unlock()
				if o, ok := p.deltas[0].Object.(*v1.Pod); ok && o.Name[0] == 'a' && version(o) == 1 {
					<-c.release
				}
				return nil
			})
			c.mu.Lock()
			defer c.mu.Unlock()
			c.ended++
		}()
	}
	return c
}

// expect tests what was popped so far, in any order, and how many consumers have returned.
func (c *consumers) expect(when string, ended int, want ...string) {
	c.t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if got := slices.Sorted(slices.Values(c.words)); !slices.Equal(got, want) || c.ended != ended {
		c.t.Errorf("%s, popped %v and %d consumers returned, want %v and %d", when, got, c.ended, want, ended)
	}
}

// severalInProcess: each of several consumers is in process with a key.
func severalInProcess(t *testing.T, s queueSetup) {
	n := 4
	if deltas(s) {
		s.Shards, s.BatchSize, n = 4, 1, 2
	}
	bubble(func(r *queueRig) {
		for i := range 64 {
			r.do(r.queue.Add(pod(fmt.Sprintf("a%d", i), 1)))
		}
		c := r.consumers(n)
		synctest.Wait()
		if len(c.words) != n {
			t.Errorf("%d of %d consumers are in process with 64 keys queued", len(c.words), n)
		}
		close(c.release)
		r.queue.Close()
		synctest.Wait()
		if len(c.words) != 64 || c.ended != n {
			t.Errorf("then %d events were popped and %d consumers returned, want 64 and %d", len(c.words), c.ended, n)
		}
	})(t, s)
}

// passOver: a queued key that is in process waits for that consumer; other
// consumers are woken for the other keys and, afterwards, for the key.
func passOver(t *testing.T, s queueSetup) {
	s.Shards = 1
	bubble(func(r *queueRig) {
		c := r.consumers(3)
		r.update("a@1")
		synctest.Wait()
		r.update("a@2", "b@3", "c@4")
		c.expect("while a is in process", 0, "a@1", "b@3", "c@4")
		r.update("a@5", "d@7")
		c.expect("while a is in process", 0, "a@1", "b@3", "c@4", "d@7")
		close(c.release)
		c.expect("afterwards", 0, "a@1", "a@5", "b@3", "c@4", "d@7")
		r.queue.Close()
	})(t, s)
}

// noKeyStarves: queued keys are popped although another key, in any shard, is
// updated before each pop.
func noKeyStarves(t *testing.T, s queueSetup) {
	const others = 20
	for i := range 8 {
		hot := fmt.Sprintf("hot%d", i)
		r := s.new(t)
		for i := range others {
			r.do(r.queue.Add(key(i)), r.queue.Update(pod(hot, i)))
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

// lenNeverUnderstates: Len counts all accepted events that are not popped, except
// those that a pop is about to process.
func lenNeverUnderstates(t *testing.T, s queueSetup) {
	const producers, each = 2, 60
	s.BatchSize = 3
	popping := int64(1)
	if batched(s) {
		popping = int64(s.BatchSize)
	}
	r := s.new(t)
	var accepted, delivered atomic.Int64
	r.during = func(deltas []cache.Delta) {
		delivered.Add(int64(len(deltas)))
		runtime.Gosched()
	}
	stop := make(chan struct{})
	var looking sync.WaitGroup
	looking.Go(func() {
		for !isClosed(stop) {
			before := accepted.Load()
			length := int64(r.queue.Len())
			if queued := before - delivered.Load(); length < 0 || queued > length+popping {
				t.Errorf("Len is %d with %d queued", length, queued)
				return
			}
			runtime.Gosched()
		}
	})
	r.produce(producers, func(p int) (err error) {
		for i := range each {
			err = errors.Join(err, r.queue.Add(pod(fmt.Sprintf("p%d-%d", p, i), i)))
			accepted.Add(1)
		}
		return err
	})
	r.consume(r.process)
	close(stop)
	looking.Wait()
	if n := delivered.Load(); n != producers*each {
		t.Errorf("popped %d events, want %d", n, producers*each)
	}
}
