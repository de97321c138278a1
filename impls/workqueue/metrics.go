package workqueue

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

// metrics are those of client-go (util/workqueue/metrics.go, v0.37.2), with the same meaning:
//
//   - depth counts the items that need processing: queued, or added again while in process.
//   - adds counts the Adds that changed something.
//   - latency is the time from that Add to the Get.
//   - work duration is the time from Get to Done.
//   - unfinished work is the sum of the times since Get of the items in process, longest running
//     processor the greatest of them. Both are set each updatePeriod.
//
// A variant with several locks calls the provider's metrics from several goroutines at once; those
// of Prometheus allow that. The times of an item are kept in its entry, so that they end with it.
//
// A nil *metrics is valid and measures nothing.
type metrics struct {
	clock clock.WithTicker
	epoch time.Time // of now

	depth          workqueue.GaugeMetric
	adds           workqueue.CounterMetric
	latency        workqueue.HistogramMetric
	workDuration   workqueue.HistogramMetric
	unfinished     workqueue.SettableGaugeMetric
	longestRunning workqueue.SettableGaugeMetric

	once sync.Once
	stop chan struct{}
	loop sync.WaitGroup
}

const updatePeriod = 500 * time.Millisecond

// newMetrics returns nil without a name or a provider.
func newMetrics[T comparable](o Options[T]) *metrics {
	p := o.MetricsProvider
	if o.Name == "" || p == nil {
		return nil
	}
	return &metrics{
		clock: o.Clock, epoch: o.Clock.Now(), stop: make(chan struct{}),
		depth: p.NewDepthMetric(o.Name), adds: p.NewAddsMetric(o.Name),
		latency: p.NewLatencyMetric(o.Name), workDuration: p.NewWorkDurationMetric(o.Name),
		unfinished:     p.NewUnfinishedWorkSecondsMetric(o.Name),
		longestRunning: p.NewLongestRunningProcessorSecondsMetric(o.Name),
	}
}

// begin starts the goroutine that updates the unfinished work until end. each calls back with the
// start of every item in process.
func (m *metrics) begin(each func(func(started int64))) {
	if m == nil {
		return
	}
	ticker := m.clock.NewTicker(updatePeriod)
	m.loop.Go(func() {
		defer ticker.Stop()
		for {
			select {
			case <-m.stop:
				return
			case <-ticker.C():
			}
			var total, oldest int64
			now := m.now()
			each(func(started int64) {
				total += now - started
				oldest = max(oldest, now-started)
			})
			m.unfinished.Set(time.Duration(total).Seconds())
			m.longestRunning.Set(time.Duration(oldest).Seconds())
		}
	})
}

// end stops the goroutine and waits for it. The caller holds no lock.
func (m *metrics) end() {
	if m != nil {
		m.once.Do(func() { close(m.stop) })
		m.loop.Wait()
	}
}

// now is the time of a stamp, in nanoseconds. It is 0 without metrics, and only then.
func (m *metrics) now() int64 {
	if m == nil {
		return 0
	}
	return 1 + int64(m.clock.Since(m.epoch))
}

// The nil checks of the following are inlined.

func (m *metrics) add() {
	if m != nil {
		m.countAdd()
	}
}

func (m *metrics) countAdd() {
	m.adds.Inc()
	m.depth.Inc()
}

func (m *metrics) get(added, now int64) {
	if m != nil {
		m.countGet(added, now)
	}
}

func (m *metrics) countGet(added, now int64) {
	m.depth.Dec()
	m.latency.Observe(time.Duration(now - added).Seconds())
}

func (m *metrics) done(started int64) {
	if m != nil {
		m.workDuration.Observe(time.Duration(m.now() - started).Seconds())
	}
}
