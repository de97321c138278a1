package queuetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls/conformance/internal/async"
	"watchlab/impls/queue"
)

// roomChecks: capacity, and the producers that wait for room.
var roomChecks = []check{
	{name: "exactly capacity is accepted", applies: bounded, run: exactlyCapacity},
	{name: "what brings no new key needs no room", applies: bounded, run: needsNoRoom},
	{name: "what leaves makes room", applies: bounded, run: leaving},
	{name: "a producer waits for room", applies: bounded, run: producerWaits},
	{name: "the context ends the wait", applies: bounded, run: contextEndsWait},
	{name: "close wakes producers", applies: bounded, run: closeWakesProducers},
}

// full returns a rig whose producers are told at once when there is no room,
// with the queue full.
func (b bed) full(t *testing.T) *rig {
	t.Helper()
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	r := b.new(t, func(o *queue.Options) { o.Context = canceled })
	r.fill(0)
	return r
}

// fill adds keys, k0 and so on, until there is no room, and holds the queue to
// its capacity, of which so many places are taken.
func (r *rig) fill(taken int) {
	r.t.Helper()
	for i := taken; i <= r.Capacity; i++ {
		err := r.queue.Add(pod(fmt.Sprintf("k%d", r.filled), i))
		r.filled++
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
	// After an error nothing was queued, and what is taken makes room again.
	for range 3 {
		if got := len(r.drain()); got != b.Capacity {
			t.Fatalf("%d keys came out of a queue that accepted %d", got, b.Capacity)
		}
		r.fill(0)
	}
	// What process has in hand takes no place.
	once := true
	r.during = func() {
		if once {
			once = false
			r.fill(b.Capacity - 1)
		}
	}
	r.do(r.take())
	r.drain()
}

func needsNoRoom(t *testing.T, b bed) {
	r := b.full(t)
	// More than there are places on the way.
	for i := range 3 * b.Capacity {
		r.do(r.queue.Update(pod("k0", i)), r.queue.Delete(pod("nowhere", i)))
	}
	r.fill(b.Capacity)
	r.do(r.queue.Delete(pod("k0", 1)))
	r.fill(b.Capacity - 1)
	// A list takes no places, nor does what is told of its keys later.
	r.replace("a", "b", "c")
	r.do(r.queue.Update(pod("a", 10)))
	r.fill(0)
	if n, want := r.queue.Len(), b.Capacity+3; n != want {
		t.Errorf("length is %d, want %d", n, want)
	}
	r.drain()
	r.fill(0)
}

// leaving: each way in which a key stops to wait makes room for one, and no
// more.
func leaving(t *testing.T, b bed) {
	for range 20 {
		r := b.full(t)
		r.do(r.queue.Delete(pod("k0", 1)), r.queue.Delete(pod("k0", 1)))
		r.fill(b.Capacity - 1)
		r.do(r.take())
		r.fill(b.Capacity - 1)
		r.replace()
		r.fill(0)
		r.replace("k0", "a")
		r.do(r.queue.Delete(pod("a", 10)), r.take())
		r.fill(0)
		r.drain()
		r.fill(0)
	}
}

func producerWaits(t *testing.T, b bed) {
	synctest.Test(t, func(t *testing.T) {
		const late = 3
		r := b.new(t)
		for i := range b.Capacity {
			r.do(r.queue.Add(pod(fmt.Sprintf("k%d", i), i)))
		}
		var results []func() (error, bool)
		for i := range late {
			results = append(results, async.Go(func() error { return r.queue.Add(pod(fmt.Sprintf("late%d", i), i)) }))
			synctest.Wait()
		}
		through := func() (n int) {
			for _, result := range results {
				if err, ok := result(); ok {
					n++
					r.do(err)
				}
			}
			return n
		}
		if n := through(); n > 0 {
			t.Fatalf("%d producers did not wait for room", n)
		}

		for range late {
			r.do(r.take())
			synctest.Wait()
			if n := through(); n != 1 {
				t.Errorf("%d producers went on when there was room for one", n)
			}
		}
		if got := r.queue.Len(); got != b.Capacity {
			t.Errorf("%d keys wait, want %d", got, b.Capacity)
		}
	})
}

func contextEndsWait(t *testing.T, b bed) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := b.new(t, func(o *queue.Options) { o.Context = ctx })
		for i := range b.Capacity {
			r.do(r.queue.Add(pod(fmt.Sprintf("k%d", i), i)))
		}
		results := []func() (error, bool){
			async.Go(func() error { return r.queue.Update(pod("late", 1)) }),
			async.Go(func() error { return r.queue.Add(pod("later", 2)) }),
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
			t.Errorf("%d keys came out, want %d", got, b.Capacity)
		}

		r.do(r.queue.Add(pod("last", 3)))
		r.expect("last@3")
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
			async.Go(func() error { return r.queue.Update(pod("later", 2)) }),
		}
		synctest.Wait()
		r.queue.Close()
		synctest.Wait()
		for i, result := range results {
			if err, ok := result(); !ok || !errors.Is(err, cache.ErrFIFOClosed) {
				t.Errorf("producer %d: returned=%t, err=%v, want ErrFIFOClosed", i, ok, err)
			}
		}
		if got := len(r.drain()); got != b.Capacity {
			t.Errorf("%d keys came out, want %d", got, b.Capacity)
		}
		if err := r.take(); !errors.Is(err, cache.ErrFIFOClosed) {
			t.Errorf("Pop of a closed and drained queue: %v", err)
		}
	})
}
