package controller_test

import (
	"sync"
	"testing"
	"time"

	"watchlab/bench/controller"
)

// TestLook: a play in progress shows its states in order, its requests, a latency, and its process.
func TestLook(t *testing.T) {
	t.Parallel()
	looks, done := make(chan func() controller.Observation, 1), make(chan struct{})
	var states []string
	var last controller.Observation
	latencies, processes := 0, 0
	var wg sync.WaitGroup
	wg.Go(func() {
		var look func() controller.Observation
		select {
		case look = <-looks:
		case <-done:
			return
		}
		for {
			o := look()
			if n := len(states); n == 0 || states[n-1] != o.State {
				states = append(states, o.State)
			}
			if o.Latency != nil {
				latencies++
			}
			processes = max(processes, len(o.Samples))
			if o.Requests < last.Requests || o.At < last.At {
				t.Errorf("%+v after %+v", o, last)
			}
			last = o
			select {
			case <-time.After(10 * time.Millisecond):
			case <-done:
				return
			}
		}
	})
	var judged []string
	r, err := play(t, spec(t, correct), controller.Options{
		Playing: func(look func() controller.Observation) { looks <- look },
		Judged:  func(p *controller.Play) { judged = append(judged, p.Name) },
	})
	close(done)
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	// A look may come too late for the first state, or miss the last one.
	if len(states) > 3 || states[len(states)-1] != controller.Settling {
		t.Errorf("states %v", states)
	}
	if last.Requests == 0 || latencies == 0 || processes != 1 || last.Length <= 0 || last.Name != r.Plays[0].Name {
		t.Errorf("%d latencies, %d processes, at last %+v", latencies, processes, last)
	}
	if len(judged) != 1 || judged[0] != r.Plays[0].Name {
		t.Errorf("judged %v", judged)
	}
}
