package deltafifotest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls/conformance/internal/async"
	"watchlab/impls/deltafifo"
)

// roomChecks: capacity, and the producers that wait for room.
var roomChecks = []check{
	{name: "exactly capacity is accepted", applies: bounded, run: exactlyCapacity},
	{name: "a producer waits for room", applies: bounded, run: producerWaits},
	{name: "the context ends the wait", applies: bounded, run: contextEndsWait},
	{name: "close wakes producers", applies: bounded, run: closeWakesProducers},
	{name: "what process holds takes no place", applies: bounded, run: inHandIsNoPlace},
	{name: "replace takes one place", applies: bounded, run: replaceOnePlace},
	{name: "what is folded gives its place back", applies: bounded, places: 7, run: foldedPlaces},
}

// full returns a rig whose producers are told at once when there is no room,
// with the queue full of one delta each of many keys.
func (b bed) full(t *testing.T) *rig {
	t.Helper()
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	r := b.new(t, func(o *deltafifo.Options) { o.Context = canceled })
	r.fill("k", 0)
	return r
}

// fill adds keys of such names until there is no room, and holds the queue to its
// capacity, of which so many places are taken.
func (r *rig) fill(name string, taken int) {
	r.t.Helper()
	for i := taken; i <= r.Capacity; i++ {
		err := r.queue.Add(pod(fmt.Sprintf("%s%d", name, i), i))
		switch {
		case i < r.Capacity && err != nil:
			r.t.Fatalf("with %d of %d places taken, Add returned %v", i, r.Capacity, err)
		case i == r.Capacity && !errors.Is(err, context.Canceled):
			r.t.Fatalf("with all %d places taken, Add returned %v, want the error of the context", i, err)
		}
	}
}

func exactlyCapacity(t *testing.T, b bed) {
	r := b.full(t)
	calls := map[string]func() error{
		"Update":  func() error { return r.queue.Update(pod("new", 1)) },
		"Delete":  func() error { return r.queue.Delete(pod("k0", 1)) },
		"Replace": func() error { return r.queue.Replace([]any{pod("new", 1)}, "1") },
	}
	if b.Known || inOrder(b) {
		calls["Resync"] = r.queue.Resync
	}
	if bookmark, ok := r.queue.(cache.ReflectorBookmarkStore); ok && whole(b) {
		calls["Bookmark"] = func() error { return bookmark.Bookmark("1") }
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s of a full queue returned %v, want the error of the context", name, err)
		}
	}
	// After an error nothing was queued, and what is taken makes room again.
	for range 2 {
		if got := len(r.drain()); got != b.Capacity {
			t.Fatalf("%d deltas came out of a queue that accepted %d", got, b.Capacity)
		}
		r.fill("k", 0)
	}
}

func producerWaits(t *testing.T, b bed) {
	synctest.Test(t, func(t *testing.T) {
		const waiting = 3
		r := b.new(t)
		for i := range b.Capacity {
			r.do(r.queue.Add(pod(fmt.Sprintf("k%d", i), i)))
		}
		var results []func() (error, bool)
		for i := range waiting {
			results = append(results, async.Go(func() error { return r.queue.Add(pod(fmt.Sprintf("late%d", i), b.Capacity+i)) }))
			synctest.Wait()
		}
		for i, result := range results {
			if err, ok := result(); ok {
				t.Fatalf("producer %d did not wait for room: Add returned %v", i, err)
			}
		}

		for i, result := range results {
			if len(r.deltas(0)) <= i {
				r.do(r.take())
			}
			synctest.Wait()
			if err, ok := result(); !ok || err != nil {
				t.Errorf("producer %d did not go on when there was room (returned=%t, err=%v)", i, ok, err)
			}
		}
		r.drain()
		if got := len(r.deltas(0)); got != b.Capacity+waiting {
			t.Errorf("%d deltas came out, want %d", got, b.Capacity+waiting)
		}
		r.queue.Close()
	})
}

func contextEndsWait(t *testing.T, b bed) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := b.new(t, func(o *deltafifo.Options) { o.Context = ctx })
		for i := range b.Capacity {
			r.do(r.queue.Add(pod(fmt.Sprintf("k%d", i), i)))
		}
		results := []func() (error, bool){
			async.Go(func() error { return r.queue.Update(pod("late", 1)) }),
			async.Go(func() error { return r.queue.Replace([]any{pod("late", 2)}, "2") }),
		}
		synctest.Wait()
		cancel()
		synctest.Wait()
		for i, result := range results {
			if err, ok := result(); !ok || !errors.Is(err, context.Canceled) {
				t.Errorf("producer %d: returned=%t, err=%v, want the error of the context", i, ok, err)
			}
		}
		if got := len(r.drain()); got != b.Capacity {
			t.Errorf("%d deltas came out, want %d", got, b.Capacity)
		}

		r.do(r.queue.Add(pod("later", 3)))
		r.expect("Added later@3")
		r.queue.Close()
	})
}

// closeWakesProducers: those that wait are refused, and what was accepted is
// handed over.
func closeWakesProducers(t *testing.T, b bed) {
	synctest.Test(t, func(t *testing.T) {
		r := b.new(t)
		for i := range b.Capacity {
			r.do(r.queue.Add(pod(fmt.Sprintf("k%d", i), i)))
		}
		results := []func() (error, bool){
			async.Go(func() error { return r.queue.Add(pod("late", 1)) }),
			async.Go(func() error { return r.queue.Delete(pod("k0", 2)) }),
			async.Go(func() error { return r.queue.Replace([]any{pod("late", 3)}, "3") }),
		}
		synctest.Wait()
		r.queue.Close()
		synctest.Wait()
		asleep := 0
		for i, result := range results {
			err, ok := result()
			if !ok {
				asleep++
			} else if !errors.Is(err, cache.ErrFIFOClosed) {
				t.Errorf("producer %d was told %v, want ErrFIFOClosed", i, err)
			}
		}
		if asleep > 0 {
			t.Errorf("Close left %d producers asleep", asleep)
		}
		if got := len(r.drain()); got != b.Capacity {
			t.Errorf("%d deltas came out, want the %d that were accepted", got, b.Capacity)
		}
		if err := r.take(); !errors.Is(err, cache.ErrFIFOClosed) {
			t.Errorf("take of a closed and drained queue: %v", err)
		}
	})
}

// inHandIsNoPlace: what was taken has made room before process is called.
func inHandIsNoPlace(t *testing.T, b bed) {
	r := b.full(t)
	once := true
	r.during = func(deltas []cache.Delta) {
		if once {
			once = false

			r.fill("new", b.Capacity-len(deltas))
		}
	}
	r.do(r.take())
	r.drain()
}

// replaceOnePlace: however long its list, it waits for one place and comes in
// one piece.
func replaceOnePlace(t *testing.T, b bed) {
	synctest.Test(t, func(t *testing.T) {
		r := b.new(t)
		listed := []any{}
		for i := range b.Capacity + 5 {
			listed = append(listed, pod(fmt.Sprintf("l%d", i), i))
		}

		r.do(r.queue.Replace(listed, "1"))
		r.drain()
		want := r.store.state()
		if len(want) != len(listed) {
			t.Fatalf("of %d objects that were listed %d came", len(listed), len(want))
		}

		for i := range b.Capacity {
			r.do(r.queue.Add(pod(fmt.Sprintf("k%d", i), i)))
		}
		result := async.Go(func() error { return r.queue.Replace(listed, "2") })
		synctest.Wait()
		if err, ok := result(); ok {
			t.Fatalf("Replace did not wait for room: %v", err)
		}
		r.do(r.take())
		synctest.Wait()
		if err, ok := result(); !ok || err != nil {
			t.Fatalf("Replace did not go on when there was room (returned=%t, err=%v)", ok, err)
		}
		r.drain()
		if got := r.store.state(); (b.Known || inOrder(b)) && !slices.Equal(got, want) {
			t.Errorf("the consumer ends with %v, want %v", got, want)
		}
		r.queue.Close()
	})
}

// foldedPlaces: deltas that are dropped while they wait must not shrink the
// queue.
func foldedPlaces(t *testing.T, b bed) {
	r := b.full(t)
	for range 20 {
		r.drain()
		r.do(r.queue.Add(pod("a", 1)), r.queue.Update(pod("a", 2)), r.queue.Delete(pod("a", 3)), r.queue.Delete(pod("a", 4)))
		// Of what the queue may not know.
		r.do(r.queue.Delete(pod("nobody", 5)), r.queue.Replace([]any{pod("b", 6)}, "6"))
		if b.Known || inOrder(b) {
			r.do(r.queue.Resync())
		}
	}
	r.drain()
	r.fill("k", 0)
	if got := len(r.drain()); got != b.Capacity {
		t.Errorf("%d deltas came out, want %d", got, b.Capacity)
	}
}
