package queuetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls/conformance"
	"watchlab/impls/deltafifo"
)

// roomChecks: capacity, and producers that wait for room.
var roomChecks = []check{
	{Name: "capacity is exact", For: bounded, Run: exactCapacity},
	{Name: "a producer blocks when full", For: bounded, Run: bubble(producerWaits)},
	{Name: "the context ends the wait", For: bounded, Run: contextEndsWait},
	{Name: "Close wakes blocked producers", For: bounded, Run: bubble(closeWakesProducers)},
	{Name: "events in process use no capacity", For: bounded, Run: inProcessUsesNone},
	{Name: "Replace is queued as one item", For: all(deltas, bounded), Run: bubble(replaceOneItem)},
	{Name: "folded deltas free capacity", For: all(deltas, bounded, room(7)), Run: foldedFree},
	{Name: "queued keys need no room", For: all(objects, bounded), Run: queuedKeysNeedNoRoom},
	{Name: "keys that leave free capacity", For: all(objects, bounded), Run: leavingFrees},
}

func exactCapacity(t *testing.T, s setup) {
	r := s.full(t)
	if deltas(s) {
		for _, call := range s.calls() {
			if err := s.push(r.queue, call); !errors.Is(err, context.Canceled) {
				t.Errorf("%s of a full queue returned %v, want the error of the context", word(call), err)
			}
		}
	}
	// A call that failed queued nothing, and a pop makes room again.
	for range 3 {
		if got := len(r.drain()); got != s.Capacity {
			t.Fatalf("popped %d events of a queue that accepted %d", got, s.Capacity)
		}
		r.fill("k", 0)
	}
}

// fillBlocking adds capacity keys to a queue whose producers wait.
func (r *rig) fillBlocking() {
	for i := range r.Capacity {
		r.do(r.queue.Add(key(i)))
	}
}

func producerWaits(r *rig) {
	const late = 3
	r.fillBlocking()
	var calls []conformance.Call
	for i := range late {
		calls = append(calls, conformance.Async(func() error { return r.queue.Add(pod(fmt.Sprintf("late%d", i), i)) }))
		synctest.Wait()
	}
	accepted := 0
	count := func() int {
		for _, c := range calls {
			if ok, err := c.Returned(); ok {
				accepted++
				r.do(err)
			}
		}
		return accepted
	}
	if n := count(); n > 0 {
		r.t.Fatalf("%d producers did not wait for room", n)
	}
	// A batch makes room for several.
	for accepted < late {
		before := len(r.deltas(0))
		r.do(r.pop())
		synctest.Wait()
		if n, want := count(), min(late, len(r.deltas(0))); n != want || len(r.deltas(0)) == before {
			r.t.Fatalf("%d producers were accepted when %d events had been popped", n, len(r.deltas(0)))
		}
	}
	r.drain()
	if got := len(r.deltas(0)); got != r.Capacity+late {
		r.t.Errorf("popped %d events, want %d", got, r.Capacity+late)
	}
	r.queue.Close()
}

// endWait tests that calls of a full queue wait, and that end makes them return
// want. The queue has what it accepted before.
func (r *rig) endWait(end func(), want error) {
	r.t.Helper()
	r.fillBlocking()
	waiting := map[string]conformance.Call{}
	for _, call := range r.calls() {
		if deltas(r.setup) || call.Type == cache.Added || call.Type == cache.Updated {
			waiting[word(call)] = conformance.Async(func() error { return r.push(r.queue, call) })
		}
	}
	synctest.Wait()
	end()
	for call, c := range waiting {
		c.Returns(r.t, want, call)
	}
	if got := len(r.drain()); got != r.Capacity {
		r.t.Errorf("popped %d events, want the %d that were accepted", got, r.Capacity)
	}
}

func contextEndsWait(t *testing.T, s setup) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := s.new(t, func(o *deltafifo.Options) { o.Context = ctx })
		r.endWait(cancel, context.Canceled)
		// A call that finds room does not fail.
		r.run("add last@3\nwant Added last@3")
		r.queue.Close()
	})
}

func closeWakesProducers(r *rig) {
	r.endWait(r.queue.Close, nil)
	r.ended()
}

// inProcessUsesNone: a pop has made room before process is called.
func inProcessUsesNone(t *testing.T, s setup) {
	r := s.full(t)
	r.once(func(deltas []cache.Delta) { r.fill("new", s.Capacity-len(deltas)) })
	r.do(r.pop())
	r.drain()
}

// replaceOneItem: however long its list, Replace waits for room for one and is popped as a whole.
func replaceOneItem(r *rig) {
	var objects []any
	for i := range r.Capacity + 5 {
		objects = append(objects, key(i+r.Capacity))
	}
	list := listOf("1", objects...)
	r.do(r.push(r.queue, list))
	r.drain()
	want := r.store.state()
	if len(want) != len(objects) {
		r.t.Fatalf("popped %d of %d objects of the list", len(want), len(objects))
	}
	r.fillBlocking()
	replace := conformance.Async(func() error { return r.push(r.queue, list) })
	replace.Sleeps(r.t, "Replace without room")
	r.do(r.pop())
	replace.Returns(r.t, nil, "Replace with room")
	r.drain()
	if got := r.store.state(); deletesSeen(r.setup) && !slices.Equal(got, want) {
		r.t.Errorf("the store ends with %v, want %v", got, want)
	}
	r.queue.Close()
}

// foldedFree: deltas that are dropped while they are queued give their room back.
func foldedFree(t *testing.T, s setup) {
	r := s.full(t)
	for range 20 {
		r.drain()
		// The queue may not know the key unknown.
		r.run("add a@1, update a@2, delete a@3, delete a@4, delete unknown@5, replace b@6")
		if deletesSeen(s) {
			r.run("resync")
		}
	}
	r.drain()
	r.fill("k", 0)
	if got := len(r.drain()); got != s.Capacity {
		t.Errorf("popped %d events, want %d", got, s.Capacity)
	}
}

func queuedKeysNeedNoRoom(t *testing.T, s setup) {
	r := s.full(t)
	// More calls than a variant may buffer.
	for i := range 3 * s.Capacity {
		r.do(r.queue.Update(pod("k0", i)), r.queue.Delete(pod("unknown", i)))
	}
	r.fill("x", s.Capacity)
	r.do(r.queue.Delete(pod("k0", 1)))
	r.fill("y", s.Capacity-1)
	// A list uses no capacity, nor do later updates of its keys.
	r.run("replace a b c, update a@10")
	r.fill("z", 0)
	r.run(fmt.Sprintf("len %d, drain", s.Capacity+3))
	r.fill("k", 0)
}

// leavingFrees: each way in which a key leaves the queue makes room for one key.
func leavingFrees(t *testing.T, s setup) {
	names := 0
	for range 20 {
		r := s.full(t)
		for _, step := range []struct {
			commands string
			used     int
		}{
			{"delete k0@1, delete k0@1", s.Capacity - 1},
			{"pop", s.Capacity - 1},
			{"replace", 0},
			{"replace k0 a, delete a@10, pop", 0},
			{"drain", 0},
		} {
			r.run(step.commands)
			names++
			r.fill(fmt.Sprintf("n%d-", names), step.used)
		}
	}
}
