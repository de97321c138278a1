package clientgo

import (
	"runtime"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
	"watchlab/impls/conformance"
)

// throttleChecks: producers that wait for process while the queue is long. That others never wait is
// the check "producers go on during process".
var throttleChecks = []queueCheck{
	{Name: "a long queue holds producers up", For: throttles, Run: longQueueHolds},
	{Name: "what ends the wait for process", For: throttled, Run: waitForProcessEnds},
	{Name: "throttled among producers", For: throttled, Concurrent: true, Run: func(t *testing.T, s queueSetup) {
		s.BatchSize = 1
		oneConsumer(s.new(t))
	}},
}

func throttled(s queueSetup) bool { return s.Throttle }
func throttles(s queueSetup) bool {
	return s.Throttle || deltas(s) && s.guarantees.Throttles == impls.Throttles
}

// long adds keys until the queue has more than process and two batches.
func (r *queueRig) long() {
	r.t.Helper()
	for i := r.queue.Len(); i <= 3*r.batchSize(); i++ {
		r.do(r.queue.Add(key(i)))
	}
}

// longQueueHolds: each call waits for the process that began with a long queue, and for no other.
func longQueueHolds(t *testing.T, s queueSetup) {
	s = s.oneShard()
	run, settle := synctest.Test, synctest.Wait
	if upstream(s) {
		// A goroutine that waits for a mutex keeps a bubble from settling.
		run = func(t *testing.T, f func(*testing.T)) { f(t) }
		settle = func() {
			for range 1000 {
				runtime.Gosched()
			}
		}
	}
	run(t, func(t *testing.T) {
		r := s.new(t)
		for _, call := range s.calls() {
			r.long()
			var c conformance.Call
			r.once(func([]cache.Delta) {
				c = conformance.Async(func() error { return s.push(r.queue, call) })
				settle()
				if ok, err := c.Returned(); ok {
					t.Fatalf("%s returned %v during process, with a long queue", word(call), err)
				}
			})
			r.do(r.pop(), c.Wait())
		}
		r.drain()
		r.queue.Close()
	})
}

// waitForProcessEnds: Close ends the wait, and the call has no effect; a panic ends it too.
func waitForProcessEnds(t *testing.T, s queueSetup) {
	s = s.oneShard()
	for _, c := range []struct {
		name string
		end  func(r *queueRig)
		more int // events that the call queued
	}{
		{"Close", func(r *queueRig) { r.queue.Close() }, 0},
		{"a panic", nil, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := s.new(t)
			r.long()
			var add conformance.Call
			queued := 0
			r.once(func([]cache.Delta) {
				queued = r.queue.Len()
				add = conformance.Async(func() error { return r.queue.Add(pod("late", 1)) })
				add.Sleeps(t, "Add with a long queue")
				if c.end == nil {
					panic("process")
				}
				c.end(r)
				add.Returns(t, nil, c.name)
			})
			func() {
				defer func() { _ = recover() }()
				r.do(r.pop())
			}()
			if c.end == nil {
				add.Returns(t, nil, c.name)
			}
			if n := r.queue.Len(); n != queued+c.more {
				t.Errorf("%s: %d are queued, want %d", c.name, n, queued+c.more)
			}
			r.queue.Close()
		})
	}
}
