package workqueue

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	upstream "k8s.io/client-go/util/workqueue"
	testingclock "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
)

var _ upstream.TypedRateLimitingInterface[int] = (*PriorityQueue[int])(nil)

// modelItem is an item of the model.
type modelItem struct {
	key       string
	priority  int
	place     place
	inProcess bool
	due       time.Duration
	order     int // of delayed items
}

// model is what a PriorityQueue does, in one goroutine and without its structures.
type model struct {
	items map[string]*modelItem
	ready []*modelItem // in the order of their adding
	now   time.Duration
	order int
	// levels has the priorities with ready items, the one that was passed over most often first.
	levels []int
	passed map[int]int
}

func (m *model) push(i *modelItem) {
	if i.inProcess {
		i.place = placeHeld
		return
	}
	i.place = placeReady
	m.ready = append(m.ready, i)
	if !slices.Contains(m.levels, i.priority) {
		m.levels = append(m.levels, i.priority)
		m.passed[i.priority] = 0
	}
}

// take takes a ready item out of all lists.
func (m *model) take(i *modelItem) {
	i.place = placeNone
	m.ready = slices.DeleteFunc(m.ready, func(r *modelItem) bool { return r == i })
	if !slices.ContainsFunc(m.ready, func(r *modelItem) bool { return r.priority == i.priority }) {
		m.levels = slices.DeleteFunc(m.levels, func(p int) bool { return p == i.priority })
	}
}

func (m *model) add(key string, after time.Duration, priority int) {
	i := m.items[key]
	if i == nil {
		i = &modelItem{key: key}
		m.items[key] = i
	}
	raised := i.place == placeNone || priority > i.priority
	if raised && i.place == placeReady {
		m.take(i)
		i.priority = priority
		m.push(i)
		return
	}
	if raised {
		i.priority = priority
	}
	switch {
	case i.place == placeReady || i.place == placeHeld:
	case after <= 0:
		m.push(i)
	case i.place == placeNone || m.now+after < i.due:
		m.order++
		i.place, i.due, i.order = placeDelayed, m.now+after, m.order
	}
}

// step moves the time.
func (m *model) step(by time.Duration) {
	m.now += by
	for {
		var first *modelItem
		for _, i := range m.items {
			if i.place == placeDelayed && i.due <= m.now &&
				(first == nil || i.due < first.due || i.due == first.due && i.order < first.order) {
				first = i
			}
		}
		if first == nil {
			return
		}
		m.push(first)
	}
}

// get takes the next item. It fails if the priority of an item was passed over too often.
func (m *model) get() *modelItem {
	priority := slices.Max(m.levels)
	if m.passed[m.levels[0]] >= StarvationLimit {
		priority = m.levels[0]
	}
	i := m.ready[slices.IndexFunc(m.ready, func(i *modelItem) bool { return i.priority == priority })]
	for _, p := range m.levels {
		m.passed[p]++
	}
	m.passed[priority] = 0
	m.levels = append(slices.DeleteFunc(m.levels, func(p int) bool { return p == priority }), priority)
	m.take(i)
	i.inProcess = true
	return i
}

func (m *model) done(key string) {
	i := m.items[key]
	if i == nil || !i.inProcess {
		return
	}
	i.inProcess = false
	switch i.place {
	case placeHeld:
		m.push(i)
	case placeNone:
		delete(m.items, key)
	}
}

// TestPriorityModel compares a queue with the model.
func TestPriorityModel(t *testing.T) { rapid.Check(t, testModel) }

func testModel(t *rapid.T) {
	clock := testingclock.NewFakeClock(time.Unix(1, 0))
	q := NewPriority(PriorityOptions[string]{Options: Options[string]{Clock: clock}})
	defer q.ShutDown()
	m := &model{items: map[string]*modelItem{}, passed: map[int]int{}}
	key := rapid.Custom(func(t *rapid.T) string { return fmt.Sprint(rapid.IntRange(0, 200).Draw(t, "key")) })
	priorities := rapid.SampledFrom([]int{-100, 0, 0, 7, math.MaxInt})
	var inProcess []string
	add := func(t *rapid.T, o AddOpts, keys ...string) {
		q.AddWithOpts(o, keys...)
		for _, k := range keys {
			m.add(k, o.After, *o.Priority)
		}
	}
	get := func(t *rapid.T) {
		if len(m.ready) == 0 {
			return
		}
		want := m.get()
		got, priority, shutdown := q.GetWithPriority()
		if got != want.key || priority != want.priority || shutdown {
			t.Fatalf("got %s of priority %d, %v; want %s of %d", got, priority, shutdown, want.key, want.priority)
		}
		for p, n := range m.passed {
			if slices.Contains(m.levels, p) && n > StarvationLimit+4-1 { // Four are drawn; one that is empty by now may have gone first.
				t.Fatalf("priority %d was passed over %d times", p, n)
			}
		}
		inProcess = append(inProcess, got)
	}
	done := func(at int) {
		q.Done(inProcess[at])
		m.done(inProcess[at])
		inProcess = slices.Delete(inProcess, at, at+1)
	}
	t.Repeat(map[string]func(*rapid.T){
		"": func(t *rapid.T) {
			if n := q.Len(); n != len(m.ready) {
				t.Fatalf("%d items, want %d", n, len(m.ready))
			}
		},
		"add": func(t *rapid.T) {
			p := priorities.Draw(t, "priority")
			add(t, AddOpts{Priority: &p}, rapid.SliceOfN(key, 1, 5).Draw(t, "keys")...)
		},
		"addAfter": func(t *rapid.T) {
			p := priorities.Draw(t, "priority")
			after := time.Duration(rapid.IntRange(-1, 100).Draw(t, "ms")) * time.Millisecond
			add(t, AddOpts{After: after, Priority: &p}, key.Draw(t, "key"))
		},
		"step": func(t *rapid.T) {
			d := time.Duration(rapid.IntRange(0, 50).Draw(t, "ms")) * time.Millisecond
			clock.Step(d)
			q.call(func() { q.expire() })
			m.step(d)
		},
		"get": get,
		"done": func(t *rapid.T) {
			if len(inProcess) > 0 {
				done(rapid.IntRange(0, len(inProcess)-1).Draw(t, "which"))
			}
		},
		"doneTwice": func(t *rapid.T) {
			k := key.Draw(t, "key")
			if !slices.Contains(inProcess, k) {
				q.Done(k)
			}
		},
		// A worker that is always behind: each item is added again with its priority.
		"saturate": func(t *rapid.T) {
			for range rapid.IntRange(1, 100).Draw(t, "items") {
				if len(m.ready) == 0 {
					return
				}
				get(t)
				p := m.items[inProcess[len(inProcess)-1]].priority
				add(t, AddOpts{Priority: &p}, inProcess[len(inProcess)-1])
				done(len(inProcess) - 1)
			}
		},
	})
}

// TestDelays: items become ready on time, the goroutine of the delays ends with the last one, and ShutDown
// ends it and drops the rest. In the end, synctest checks that no goroutine is left.
func TestDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewPriority(PriorityOptions[string]{})
		start := time.Now()
		expect := func(want string, at time.Duration) {
			t.Helper()
			item, _, shutdown := q.GetWithPriority()
			if got := time.Since(start); item != want || got != at || shutdown {
				t.Errorf("got %q after %v, %v; want %q after %v", item, got, shutdown, want, at)
			}
			q.Done(item)
		}
		q.AddAfter("year", 365*24*time.Hour)
		synctest.Wait() // The goroutine waits for the year.
		q.AddAfter("second", time.Second)
		q.AddAfter("nanosecond", 1)
		q.AddAfter("now", 0)
		q.AddAfter("minute", time.Hour)
		q.AddAfter("minute", time.Minute)
		expect("now", 0)
		expect("nanosecond", 1)
		expect("second", time.Second)
		q.AddAfter("year", -1)
		expect("year", time.Second)
		expect("minute", time.Minute)
		synctest.Wait()
		if q.timing {
			t.Error("nothing is delayed, but the goroutine runs")
		}

		q.AddRateLimited("limited")
		expect("limited", time.Minute+5*time.Millisecond)
		if n := q.NumRequeues("limited"); n != 1 {
			t.Errorf("%d requeues, want 1", n)
		}
		q.AddWithOpts(AddOpts{RateLimited: true, After: time.Millisecond}, "limited")
		expect("limited", time.Minute+6*time.Millisecond)
		q.Forget("limited")
		if n := q.NumRequeues("limited"); n != 0 {
			t.Errorf("%d requeues after Forget", n)
		}
		q.AddAfter("never", math.MaxInt64)
		q.AddAfter("dropped", time.Second)
		q.ShutDown()
		if item, shutdown := q.Get(); !shutdown {
			t.Errorf("got %q after ShutDown", item)
		}
		q.AddAfter("ignored", time.Second)
	})
}

// TestHolder: who finds the queue held leaves a command and returns, or waits if it wants an answer or the
// inbox is full. The holder executes all of them, in order, and wakes a worker for each item.
func TestHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewPriority(PriorityOptions[int]{})
		const workers = 3
		got := make(chan int, workers+1)
		get := func() {
			item, _ := q.Get()
			got <- item
		}
		for range workers - 1 {
			go get()
		}
		synctest.Wait()
		if !q.hold() {
			t.Fatal("the queue is held")
		}
		go get()
		synctest.Wait()
		added := false
		go func() {
			for i := range inboxLimit + 1 {
				q.Add(i)
			}
			added = true
		}()
		synctest.Wait()
		if n := q.inboxLen.Load(); added || n < inboxLimit || len(got) > 0 {
			t.Errorf("%d commands in the inbox, the adder is through: %v, %d items taken", n, added, len(got))
		}
		q.release()
		synctest.Wait()
		if n := q.Len(); !added || n != inboxLimit+1-workers || len(got) != workers {
			t.Errorf("%d items, the adder is through: %v, %d items taken", n, added, len(got))
		}
		q.ShutDown()
	})
}

// TestPriorityCrowd: many adders and workers, with priorities and delays. No item is in process twice
// at once, each add is followed by a Get, and nothing is left.
func TestPriorityCrowd(t *testing.T) {
	const adders, workers, keys, adds = 8, 16, 64, 2000
	for _, procs := range []int{1, 2, 8} {
		t.Run(fmt.Sprintf("procs=%d", procs), func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
			q := NewPriority(PriorityOptions[int]{})
			var added [keys]atomic.Int64
			var seen, busy [keys]atomic.Int64
			var adding, working sync.WaitGroup
			for a := range adders {
				adding.Go(func() {
					rng := rand.New(rand.NewPCG(uint64(a), 1))
					for range adds {
						key, priority := rng.IntN(keys), rng.IntN(3)
						added[key].Add(1)
						q.AddWithOpts(AddOpts{After: time.Duration(max(0, rng.IntN(200)-150)) * time.Microsecond, Priority: &priority}, key)
					}
				})
			}
			for range workers {
				working.Go(func() {
					for {
						key, shutdown := q.Get()
						if shutdown {
							return
						}
						if busy[key].Add(1) != 1 {
							t.Errorf("%d is in process twice", key)
						}
						seen[key].Store(added[key].Load())
						busy[key].Add(-1)
						q.Done(key)
					}
				})
			}
			adding.Wait()
			for q.entryCount() > 0 {
				runtime.Gosched()
			}
			q.ShutDownWithDrain()
			working.Wait()
			for key := range keys {
				if seen[key].Load() != added[key].Load() {
					t.Errorf("%d was added %d times, the last Get saw %d", key, added[key].Load(), seen[key].Load())
				}
			}
		})
	}
}

// entryCount returns the number of items that are queued, delayed or in process.
func (q *PriorityQueue[T]) entryCount() (n int) {
	q.call(func() { n = len(q.entries) })
	return n
}
