package pipeline

import (
	"time"

	"watchlab/bench/cell"
)

// probeEvery is the probe's period: long enough to cost less than 1 % of two
// processors (BenchmarkProbe), and not a multiple of a round rate's.
const probeEvery = 3700 * time.Microsecond

// lockProbe calls HasSynced periodically and keeps the longest duration (hold). That is the time
// for which another goroutine held the lock. Before each call it times an empty function through
// the same interface. The longest of these (floor) is caused by the scheduler.
type lockProbe struct {
	queue, empty interface{ HasSynced() bool }
	hold, floor  time.Duration
	calls        int
}

type emptyQueue struct{}

func (emptyQueue) HasSynced() bool { return true }

// start starts the probe; stop ends it and waits for its goroutine. A nil probe does nothing.
func (p *lockProbe) start() (stop func()) {
	if p == nil {
		return func() {}
	}
	end := every(probeEvery, func() error {
		begin := time.Now()
		p.empty.HasSynced()
		between := time.Now()
		p.queue.HasSynced()
		p.hold = max(p.hold, time.Since(between))
		p.floor = max(p.floor, between.Sub(begin))
		p.calls++
		return nil
	})
	return func() { _ = end() }
}

func (p *lockProbe) note(rec *cell.Recorder) {
	if p == nil || p.calls == 0 {
		return
	}
	rec.Note("lock-hold-max-ns", float64(p.hold))
	rec.Note("lock-hold-floor-ns", float64(p.floor))
	rec.Note("lock-probes", float64(p.calls))
}
