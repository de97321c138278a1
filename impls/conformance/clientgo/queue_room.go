package clientgo

import (
	"fmt"
	"testing/synctest"

	"watchlab/impls/conformance"
)

// roomChecks: producers that wait for room. That capacity is exact is part of the model.
var roomChecks = []queueCheck{
	{Name: "a producer blocks when full", For: bounded, Run: bubble(producerWaits)},
	{Name: "Close wakes blocked producers", For: bounded, Run: bubble(closeWakesProducers)},
}

// fillBlocking adds capacity keys to a queue whose producers wait.
func (r *queueRig) fillBlocking() {
	for i := range r.Capacity {
		r.do(r.queue.Add(key(i)))
	}
}

func producerWaits(r *queueRig) {
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

// closeWakesProducers: calls of a full queue wait, and Close makes them return. The queue has what it
// accepted before.
func closeWakesProducers(r *queueRig) {
	r.fillBlocking()
	waiting := map[string]conformance.Call{}
	for _, call := range r.calls() {
		waiting[word(call)] = conformance.Async(func() error { return r.push(r.queue, call) })
	}
	synctest.Wait()
	r.queue.Close()
	for call, c := range waiting {
		c.Returns(r.t, nil, call)
	}
	if got := len(r.drain()); got != r.Capacity {
		r.t.Errorf("popped %d events, want the %d that were accepted", got, r.Capacity)
	}
	r.ended()
}
