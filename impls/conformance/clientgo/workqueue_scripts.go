package clientgo

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
	"weak"

	"github.com/google/go-cmp/cmp"
	clientgoqueue "k8s.io/client-go/util/workqueue"

	"watchlab/impls/workqueue"
)

var scriptChecks = []workCheck{
	{Name: "an item in process is not handed out", Run: workScript(`add a, get a, add a, wait, add b, got b, wait, done a, got a`)},
	{Name: "every wait is woken", Run: workScript(
		`wait, add a, got a, wait, done a, add a, got a, add a, wait, done a, got a`,
		`wait, wait, wait, add a b, got a b, add c, got c, add a b c, wait, wait, done a b, got a b`,
		`add a, get a, wait, wait, add a b, got b, done a, got a`)},
	{Name: "ShutDown ends every wait", Run: workScript(`wait, wait, down false, shutdown, got shutdown shutdown, down true, end`)},
	{Name: "ShutDownWithDrain waits for items in process", For: wholeWork, Run: workScript(
		`drain, drained 1, down true, end, add a, len 0`,
		`add a b, get a b, add a b, drain, done a, get a, done a, done b, get b, done b, end, drained 1`,
		`add a, get a, add b, drain, drained 0, add c, get b, done a, drained 0, end, done b, drained 1`,
		`add a, get a, wait, drain, got shutdown, drained 0, done b, drained 0, done a, drained 1`)},
	{Name: "ShutDown ends a drain", For: wholeWork, Run: workScript(
		`add a, get a, drain, drain, drained 0, shutdown, drained 2, done a`,
		`add a, get a, shutdown, drain, drained 0, done a, drained 1`)},
	// client-go's Done wakes one of them.
	{Name: "several drains at once", For: oursWork, Run: workScript(`add a, get a, drain, drain, drained 0, done a, drained 2`)},
}

var otherChecks = []workCheck{
	{Name: "the metrics are client-go's", For: wholeWork, Run: metricsEqual},
	{Name: "no goroutine leaks", For: wholeWork, Run: noWorkGoroutineLeft},
	{Name: "items that are done can be collected", Run: itemsCollected},
	{Name: "client-go's delaying queue on top", For: wholeWork, Run: workBubble(delaying)},
	{Name: "random operations", For: wholeWork, Run: randomWork},
}

func (m *metrics) NewDepthMetric(n string) clientgoqueue.GaugeMetric  { return metric{m, n + " depth"} }
func (m *metrics) NewAddsMetric(n string) clientgoqueue.CounterMetric { return metric{m, n + " adds"} }
func (m *metrics) NewLatencyMetric(n string) clientgoqueue.HistogramMetric {
	return metric{m, n + " latency"}
}
func (m *metrics) NewWorkDurationMetric(n string) clientgoqueue.HistogramMetric {
	return metric{m, n + " work duration"}
}
func (m *metrics) NewUnfinishedWorkSecondsMetric(n string) clientgoqueue.SettableGaugeMetric {
	return metric{m, n + " unfinished work"}
}
func (m *metrics) NewLongestRunningProcessorSecondsMetric(n string) clientgoqueue.SettableGaugeMetric {
	return metric{m, n + " longest running processor"}
}
func (m *metrics) NewRetriesMetric(n string) clientgoqueue.CounterMetric {
	return metric{m, n + " retries"}
}

// metricsEqual compares the calls of each metric with those that client-go's queue makes.
func metricsEqual(t *testing.T, s workSetup) {
	clientgo, err := workqueue.Lookup("clientgo")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		`add a, step 1s, add a, step 1s, get a, step 3s, done a, done a, done b, step 1s`,
		`add a, get a, step 100ms, add a, step 200ms, add a, step 500ms, done a, step 1s, get a, step 250ms, done a, step 1s`,
		`add a, get a, step 1s, add b, get b, step 1s, step 500ms, done a, step 1s, done b, step 1s`,
		`wait, step 1s, add a, got a, step 2s, shutdown, add b, step 1s, done a, step 1s, end`,
		`add a, get a, add a, drain, step 1s, done a, get a, step 1s, done a, drained 1`,
	} {
		calls := func(v workqueue.Variant, name string) map[string][]string {
			m := &metrics{calls: map[string][]string{}}
			synctest.Test(t, func(t *testing.T) {
				workSetup{v, s.Guarantees}.new(t, func(o *workqueue.Options[string]) {
					o.Name, o.MetricsProvider, m.clock = name, m, o.Clock
				}).run(text)
			})
			return m.calls
		}
		if diff := cmp.Diff(calls(clientgo, "q"), calls(s.variant, "q")); diff != "" {
			t.Errorf("%s: calls of metrics (-client-go +%s):\n%s", text, s.variant.Name, diff)
		}
		if got := calls(s.variant, ""); len(got) > 0 {
			t.Errorf("%s: a queue without a name called metrics: %v", text, got)
		}
	}
}

// noWorkGoroutineLeft: a queue without a name starts no goroutine, and one with a name leaves none
// behind: a bubble panics at its end if one is left.
func noWorkGoroutineLeft(t *testing.T, s workSetup) {
	for _, text := range []string{``, `add a, get a, add b a`, `wait, wait`, `add a, get a, drain`} {
		for _, name := range []string{"", "q"} {
			synctest.Test(t, func(t *testing.T) {
				t.Log(text, name)
				before := runtime.NumGoroutine()
				r := s.new(t, func(o *workqueue.Options[string]) {
					o.Name, o.MetricsProvider = name, &metrics{calls: map[string][]string{}, clock: o.Clock}
				})
				synctest.Wait()
				if n := runtime.NumGoroutine(); name == "" && n > before {
					t.Errorf("a new queue without a name starts %d goroutines", n-before)
				}
				r.run(text)
				r.queue.ShutDown()
			})
		}
	}
}

// itemsCollected: a queue holds no reference to items that are done, save for a few.
func itemsCollected(t *testing.T, s workSetup) {
	const items, most = 1000, 20
	r := s.new(t).watchdog()
	all := make([]weak.Pointer[byte], items)
	for i := range items {
		item := fmt.Sprintf("a-namespace/a-long-name-with-memory-of-its-own-%d", i)
		all[i] = weak.Make(unsafe.StringData(item))
		r.queue.Add(item)
		for i%90 == 89 && r.queue.Len() > 0 {
			got := r.take()
			if i%180 == 89 {
				r.queue.Add(got) // Once more.
			}
			r.queue.Done(got)
			if i%180 == 89 {
				r.queue.Done(r.take())
			}
		}
	}
	for r.queue.Len() > 0 {
		r.queue.Done(r.take())
	}
	runtime.GC()
	alive := 0
	for _, p := range all {
		if p.Value() != nil {
			alive++
		}
	}
	runtime.KeepAlive(r.queue)
	if alive > most {
		t.Errorf("%d of %d items that are done cannot be collected", alive, items)
	}
}

func delaying(r *workRig) {
	d := clientgoqueue.NewTypedDelayingQueueWithConfig(clientgoqueue.TypedDelayingQueueConfig[string]{Clock: r.clock, Queue: r.queue})
	r.queue = d
	synctest.Wait()
	d.AddAfter("a", 2*time.Second)
	d.AddAfter("b", time.Second)
	d.AddAfter("c", 0)
	r.run(`len 1, get c, wait, step 999ms, got, step 1ms, got b, add b, done b, get b, wait, step 1s, got a`)
	d.AddAfter("a", time.Second)
	d.AddAfter("a", time.Minute)
	r.run(`wait, step 1s, got, done a, got a, shutdown, end, done a, step 1m, len 0, end`)
}
