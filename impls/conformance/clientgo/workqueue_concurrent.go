package clientgo

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"pgregory.net/rapid"

	"watchlab/impls/conformance"
)

// workConcurrentChecks hold for every interleaving.
var workConcurrentChecks = []workCheck{
	{Name: "nothing lost among adders and workers", Concurrent: true, Run: nothingLost},
	{Name: "every Add wakes a worker", Concurrent: true, Run: addsWake},
	{Name: "drain during Dones", For: wholeWork, Concurrent: true, Run: drainDuringDones},
	{Name: "linearizable", For: wholeWork, Concurrent: true, Run: linearizableWork},
}

// work runs n workers until the queue is shut down. do is called between Get and Done.
func (r *workRig) work(n int, do func(item string)) *sync.WaitGroup {
	r.watchdog()
	var workers sync.WaitGroup
	for range n {
		workers.Go(func() {
			for item := r.take(); item != shutdown; item = r.take() {
				do(item)
				r.queue.Done(item)
			}
		})
	}
	return &workers
}

// nothingLost: adders add the same items, and each once an item of its own. After the last Add of an
// item a worker gets it. The race detector sees that what happened before an Add or a Done happened
// before the next Get of the item: the fields of tally are not atomic.
func nothingLost(t *testing.T, s workSetup) {
	const adders, workers, shared, each = 4, 4, 5, 300
	type tally struct{ turns, fresh int }
	var (
		r           = s.new(t)
		tallies     [shared + adders*each]tally
		busy        [shared + adders*each]atomic.Bool
		added, seen [shared]atomic.Int64
		handed      atomic.Int64
		adding      sync.WaitGroup
	)
	working := r.work(workers, func(item string) {
		i, err := strconv.Atoi(item)
		if err != nil || busy[i].Swap(true) {
			t.Errorf("%s is in process twice (%v)", item, err)
		}
		tallies[i].turns++
		for range i % 3 {
			runtime.Gosched()
		}
		if i < shared {
			seen[i].Store(added[i].Load())
		} else if handed.Add(1); tallies[i] != (tally{1, 1}) {
			t.Errorf("an item that was added once was handed out %d times", tallies[i].turns)
		}
		busy[i].Store(false)
	})
	for a := range adders {
		adding.Go(func() {
			for n := range each {
				i, own := rand.IntN(shared), shared+a*each+n
				added[i].Add(1)
				r.queue.Add(strconv.Itoa(i))
				tallies[own].fresh = 1
				r.queue.Add(strconv.Itoa(own))
				for range rand.IntN(3) {
					runtime.Gosched()
				}
			}
		})
	}
	adding.Wait()
	allSeen := func() bool {
		for i := range shared {
			if seen[i].Load() != added[i].Load() {
				return false
			}
		}
		return handed.Load() == adders*each
	}
	// controller-runtime's ShutDown drops what is queued, and its Len does not count what it buffers.
	for since := time.Now(); !wholeWork(s) && !allSeen() && time.Since(since) < conformance.Patience; {
		runtime.Gosched()
	}
	r.shutDown()
	working.Wait()
	if n := handed.Load(); n != adders*each {
		t.Errorf("%d items of %d were handed out", n, adders*each)
	}
	for i := range shared {
		if got, want := seen[i].Load(), added[i].Load(); got != want {
			t.Errorf("item %d: the last Get saw %d of %d Adds", i, got, want)
		}
	}
}

// addsWake: adders wait for each of their items, so that workers sleep all the time. In each third turn
// the worker adds the item once more, so that Done has to wake.
func addsWake(t *testing.T, s workSetup) {
	const adders, workers, turns = 2, 3, 500
	r := s.new(t)
	var handled [adders]chan struct{}
	var times [adders]int
	for a := range adders {
		handled[a] = make(chan struct{}, turns)
	}
	working := r.work(workers, func(item string) {
		a := int(item[0] - '0')
		if times[a]++; times[a]%3 == 0 {
			r.queue.Add(item)
			runtime.Gosched()
		} else {
			handled[a] <- struct{}{}
		}
	})
	ended := make(chan struct{})
	go func() { working.Wait(); close(ended) }()
	var adding sync.WaitGroup
	for a := range adders {
		adding.Go(func() {
			for range turns {
				r.queue.Add(strconv.Itoa(a))
				select {
				case <-handled[a]:
				case <-ended:
				}
			}
		})
	}
	adding.Wait()
	r.shutDown()
	<-ended
}

// drainDuringDones: a drain ends after the Done of each item, and it ends.
func drainDuringDones(t *testing.T, s workSetup) {
	const workers, rounds = 4, 100
	for range rounds {
		r := s.new(t).watchdog()
		var done atomic.Int32
		var working sync.WaitGroup
		for w := range workers {
			r.queue.Add(strconv.Itoa(w))
		}
		for range workers {
			item := r.take()
			working.Go(func() {
				runtime.Gosched()
				done.Add(1)
				r.queue.Done(item)
			})
		}
		r.queue.ShutDownWithDrain()
		if n := done.Load(); n < workers {
			t.Errorf("the drain ended with %d of %d items in process", workers-n, workers)
		}
		working.Wait()
	}
}

// randomWork compares random operations with the model. rapid reduces a difference to a short sequence.
func randomWork(t *testing.T, s workSetup) {
	kinds := []string{"add", "add", "add", "get", "get", "done", "done", "done", "len", "down", "shutdown"}
	operations := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) operation {
		return operation{rapid.SampledFrom(kinds).Draw(t, "kind"), rapid.StringMatching("[a-e]|[a-z]").Draw(t, "item")}
	}), 60, 200)
	rapid.Check(t, func(t *rapid.T) {
		r, m := s.new(t).watchdog(), workModel{ordered: fifoWork(s)}
		for i, o := range operations.Draw(t, "operations") {
			switch {
			case o.kind == "get" && m.queued == "" && !m.down:
			case o.kind == "done" && !oursWork(s) && has(m.queued, o.item):
			case o.kind == "shutdown" && i%30 > 0: // Seldom.
			default:
				after, err := m.step(o, r.call(o))
				if err != nil {
					t.Fatalf("%v: %v", m, err)
				}
				m = after
			}
		}
	})
}

// linearizableWork checks small histories of adders and workers.
func linearizableWork(t *testing.T, s workSetup) {
	for range 100 {
		seed := rand.Uint64()
		conformance.Linearizable(t, workMachine(fifoWork(s)), seed, s.history(t, seed))
	}
}

// history runs random operations and records them. The queue is shut down at some time, and workers
// take what is queued.
func (s workSetup) history(t *testing.T, seed uint64) []porcupine.Operation {
	const adders, workers, each = 3, 2, 6
	r := s.new(t).watchdog()
	clients := conformance.Clients(seed, adders+workers)
	call := func(c *conformance.Client, o operation) any {
		began := c.Now()
		out := r.call(o)
		c.Record(began, o, out)
		return out
	}
	var adding, working sync.WaitGroup
	for a, c := range clients[:adders] {
		adding.Go(func() {
			for range each {
				o := operation{"add", string(rune('a' + c.IntN(3)))}
				switch roll := c.IntN(8); {
				case roll == 0:
					o = operation{kind: "down"}
				case roll == 1 && fifoWork(s): // Shards are not counted at one moment.
					o = operation{kind: "len"}
				case roll == 2 && oursWork(s):
					o.kind = "done" // mostly of an item that is not in process
				}
				call(c, o)
				c.Yield()
			}
			if a == 0 && c.IntN(3) == 0 {
				call(c, operation{kind: "shutdown"})
			}
		})
	}
	for _, c := range clients[adders:] {
		working.Go(func() {
			for {
				item := call(c, operation{kind: "get"})
				if item == shutdown {
					return
				}
				c.Yield()
				call(c, operation{"done", fmt.Sprint(item)})
			}
		})
	}
	adding.Wait()
	call(clients[0], operation{kind: "shutdown"})
	working.Wait()
	return conformance.Operations(clients)
}
