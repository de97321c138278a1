package pipeline

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/workqueue"

	telemetry "watchlab/bench/telemetry/probe"
)

// upstreamEvery is of how many hand-overs and items one is timed. It is a power of
// two.
const upstreamEvery = 16

// upstream keeps client-go's own metrics of an informer and of its workqueue, in
// paced cells. Upstream times each hand-over and each item, which takes several
// readings of the clock and would show in what is measured; here one in 16 is timed,
// and depths are looked at four times a second. So histograms have fewer values than
// upstream's, of the same distribution, and counters are the same. The nil upstream
// does nothing.
type upstream struct {
	informer telemetry.Informer
	adds     workqueue.CounterMetric
	depth    workqueue.GaugeMetric
	waited   workqueue.HistogramMetric
	worked   workqueue.HistogramMetric
	busy     workqueue.SettableGaugeMetric
	longest  workqueue.SettableGaugeMetric

	handOvers, turn uint64
	added           atomic.Uint64

	timed atomic.Pointer[timedItem]
	begun atomic.Int64
}

// timedItem is a key that was added to the workqueue, and when.
type timedItem struct {
	key string
	at  int64
}

// newUpstream returns the metrics that are in the context; nil where there are
// none, or the cell is unpaced.
func newUpstream(ctx context.Context, t *taps, s *score) *upstream {
	set := telemetry.From(ctx)
	wq := set.Upstream()
	if wq == nil || t == nil || t.intended == nil {
		return nil
	}
	name := set.Labels().UpstreamName()
	wq.NewRetriesMetric(name) // There are none, and so it says.
	return &upstream{
		informer: wq.Informer(name, s.Resource),
		adds:     wq.NewAddsMetric(name), depth: wq.NewDepthMetric(name),
		waited: wq.NewLatencyMetric(name), worked: wq.NewWorkDurationMetric(name),
		busy: wq.NewUnfinishedWorkSecondsMetric(name), longest: wq.NewLongestRunningProcessorSecondsMetric(name),
	}
}

// look returns what brings gauges and counters up to date.
func (u *upstream) look(st *stamps, queue interface{ Len() int }, newest *atomic.Uint64, work workqueue.TypedInterface[string]) func() {
	if u == nil {
		return func() {}
	}
	told, waiting := uint64(0), 0
	return func() {
		u.informer.Queued.Set(float64(queue.Len()))
		u.informer.Version.Set(float64(newest.Load()))
		for added := u.added.Load(); told < added; told++ {
			u.adds.Inc()
		}
		for n := work.Len(); waiting != n; {
			if waiting < n {
				u.depth.Inc()
				waiting++
			} else {
				u.depth.Dec()
				waiting--
			}
		}
		running := 0.0
		if begun := u.begun.Load(); begun != 0 {
			running = max(0, time.Duration(st.now()-begun).Seconds())
		}
		u.busy.Set(running)
		u.longest.Set(running)
	}
}

// processed is told when a hand-over has been processed that was popped at a time.
func (u *upstream) processed(st *stamps, popped int64) {
	if u == nil || popped == 0 {
		return
	}
	if u.handOvers++; u.handOvers%upstreamEvery == 0 {
		u.informer.Processing.Observe(time.Duration(st.now() - popped).Seconds())
	}
}

// add is told when a key has been added to the workqueue.
func (u *upstream) add(st *stamps, key string) {
	if u == nil {
		return
	}
	u.added.Add(1)
	if u.turn++; u.turn%upstreamEvery == 0 && u.timed.Load() == nil {
		u.timed.Store(&timedItem{key, st.now()})
	}
}

// took is told when the worker has taken a key from the workqueue, and done when it
// is through with it; mine is what took returned.
func (u *upstream) took(st *stamps, key string) (mine *timedItem) {
	if u == nil {
		return nil
	}
	item := u.timed.Load()
	if item == nil || item.key != key {
		return nil
	}
	now := st.now()
	u.begun.Store(now)
	u.waited.Observe(time.Duration(now - item.at).Seconds())
	return item
}

func (u *upstream) done(st *stamps, mine *timedItem) {
	if mine == nil {
		return
	}
	u.worked.Observe(time.Duration(st.now() - u.begun.Load()).Seconds())
	u.begun.Store(0)
	u.timed.Store(nil)
}
