package pipeline_test

import (
	"testing"
	"time"

	"watchlab/bench/observe"
	"watchlab/bench/pipeline"
	"watchlab/impls"
)

// TestBlockedProducer: a full queue holds its producers up. The wait is the variant's latency, and
// the generator is in time. Every pipeline shows the time inside calls.
func TestBlockedProducer(t *testing.T) {
	const full = time.Millisecond // of a call, on average, at least
	for want, spec := range map[time.Duration]pipeline.Config{
		full: {Family: impls.DeltaFIFO, Pipeline: "queue", Impls: []string{"cond"}, Modes: []string{"in-order"}, Producers: 2},
		1:    {Family: impls.DeltaFIFO, Pipeline: "informer", Impls: []string{"ring"}, Modes: []string{"in-order"}},
		2:    {Family: impls.Merge, Pipeline: "kubelet", Impls: []string{"cond"}},
		3:    {Family: impls.Merge, Pipeline: "queue", Impls: []string{"cond"}},
	} {
		if want == full {
			// At 2,000 events/s the handler is 450 ms behind at the end.
			spec.Knobs, spec.HandlerCost = pipeline.Knobs{Capacity: 1, BatchSize: 1}, 5*time.Millisecond
		}
		spec.Events, spec.Paces = 100, rates(2000)
		for _, cl := range comparisons(t, spec) {
			res := measure(t, cl)
			l, ok := res.At(observe.Handled)
			if !ok || want == full && l.P99 < 100*time.Millisecond {
				t.Errorf("%s: %s without the wait: %+v", name(cl), observe.Handled, l)
			}
			if res.Lag == nil || want == full && res.Lag.P50 > l.P50/2 {
				t.Errorf("%s: the time in calls counts as the generator's lag: %+v of %+v", name(cl), res.Lag, l)
			}
			mean, ok := noted(res, "blocked-ns/event")
			longest, _ := noted(res, "blocked-max-ns")
			if !ok || mean < float64(want) || longest < mean {
				t.Errorf("%s: blocked for %v ns, at most %v (noted: %v)", name(cl), mean, longest, ok)
			}
		}
	}
}
