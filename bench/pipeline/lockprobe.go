package pipeline

import (
	"time"

	"watchlab/bench/cell"
)

// probeEvery is how often the probe asks: seldom enough to take less than one
// hundredth of two processors even where each question wakes an idle one up
// (BenchmarkProbe), and not in step with storms at round rates.
const probeEvery = 3700 * time.Microsecond

// asked is what a probe asks.
type asked interface{ HasSynced() bool }

// lockProbe asks a queue, at a fixed pace while that is played, for something that it
// knows at once, and keeps the longest that an answer took: for so long somebody
// held the lock that the question needs. Right before, it asks nothing at all in
// the same way, as often, which shows how long an answer may take because the
// goroutine was not running.
type lockProbe struct {
	queue, nothing asked

	hold, floor time.Duration
	asked       int
}

// answer is what asks nothing.
type answer struct{}

func (answer) HasSynced() bool { return true }

func newLockProbe(q asked) *lockProbe { return &lockProbe{queue: q, nothing: answer{}} }

// start begins to ask; stop ends it, and returns when it has ended. A nil probe
// does nothing.
func (p *lockProbe) start() (stop func()) {
	if p == nil {
		return func() {}
	}
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(probeEvery)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
				p.ask()
			}
		}
	}()
	return func() {
		close(over)
		<-ended
	}
}

func (p *lockProbe) ask() {
	begin := time.Now()
	p.nothing.HasSynced()
	between := time.Now()
	p.queue.HasSynced()
	end := time.Now()
	p.floor = max(p.floor, between.Sub(begin))
	p.hold = max(p.hold, end.Sub(between))
	p.asked++
}

// note tells the recorder, after stop.
func (p *lockProbe) note(rec *cell.Recorder) {
	if p == nil || p.asked == 0 {
		return
	}
	rec.Note("lock-hold-max-ns", float64(p.hold))
	rec.Note("lock-hold-floor-ns", float64(p.floor))
	rec.Note("lock-probes", float64(p.asked))
}
