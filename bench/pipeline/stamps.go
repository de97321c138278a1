package pipeline

import (
	"math"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"watchlab/bench/cell"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/storm"
)

// sampleEvery is how often an unpaced cell reads the clock for single events.
// It is a power of two.
const sampleEvery = 64

// stamps holds when each event of a storm reached each stage, in nanoseconds
// since the epoch, by sequence number. 0 means no stamp. An element is written
// by one goroutine, and read when all have ended.
type stamps struct {
	epoch time.Time

	start int64

	mask  uint64
	paced bool

	every, none bool

	watched bool

	budget time.Duration

	released, enqueued []int64

	popped, stored, handled []int64
}

// newStamps has room for events 1 to n. A paced cell stamps all of them.
func newStamps(n int, paced bool, which Stamps) *stamps {
	if paced {
		which = StampsAll
	}
	s := &stamps{
		epoch:    time.Now(),
		paced:    paced,
		every:    which == StampsAll,
		none:     which == StampsNone,
		released: make([]int64, n+1),
		enqueued: make([]int64, n+1),
		popped:   make([]int64, n+1),
		stored:   make([]int64, n+1),
		handled:  make([]int64, n+1),
	}
	switch {
	case s.none:
		s.mask = math.MaxUint64
	case !s.every:
		s.mask = sampleEvery - 1
	}
	return s
}

// now is never 0, which means no stamp.
func (s *stamps) now() int64 { return max(1, int64(time.Since(s.epoch))) }

// begin starts the schedule; the pacers are to be started with what it
// returns.
func (s *stamps) begin() time.Time {
	t0 := time.Now()
	s.start = int64(t0.Sub(s.epoch))
	return t0
}

// heard ends the stamps with those of a storm that was heard from t0 on: an
// event is released when it arrives.
func (s *stamps) heard(heard *storm.Storm, t0 time.Time) {
	n := len(heard.Events)
	s.start = int64(t0.Sub(s.epoch))
	for i := range heard.Events {
		s.released[i+1] = s.start + int64(heard.Events[i].At)
	}
	for _, stamps := range []*[]int64{&s.released, &s.enqueued, &s.popped, &s.stored, &s.handled} {
		*stamps = (*stamps)[:n+1]
	}
}

// release is what a source calls right before it hands over an event.
func (s *stamps) release(seq uint64) {
	if seq&s.mask == 0 && seq < uint64(len(s.released)) {
		s.released[seq] = s.now()
	}
}

// enqueue is called right after the queue has taken an event.
func (s *stamps) enqueue(seq uint64) {
	if seq&s.mask == 0 && seq < uint64(len(s.enqueued)) {
		if s.watched {
			atomic.StoreInt64(&s.enqueued[seq], s.now())
			return
		}
		s.enqueued[seq] = s.now()
	}
}

// stretch is a boundary with the stamps at its ends.
type stretch struct {
	name     cell.Boundary
	from, to []int64
}

// report records the latencies and lags of the events after the initial list.
// Events that lack a stamp at either end of a boundary are left out of it.
func (s *stamps) report(rec *cell.Recorder, p *pace.Pacer, initial int, stretches ...stretch) {
	if s.paced {
		last := p.Intended(max(len(s.handled)-2-initial, 0))
		if s.budget > 0 {
			rec.Schedule(s.budget, last)
		}
		for seq := initial + 1; seq < len(s.handled); seq++ {
			due := p.Intended(seq - 1 - initial)
			intended := s.start + int64(due)
			if s.released[seq] != 0 {
				rec.Lag(time.Duration(s.released[seq]-intended), due)
			}
			if s.handled[seq] != 0 {
				rec.Latency(Handled, time.Duration(s.handled[seq]-intended))
			}
		}
	}
	// Last, as tables show the last where there is no better.
	stretches = append(stretches, stretch{ReleasedHandled, s.released, s.handled})
	for _, b := range stretches {
		for seq := initial + 1; seq < len(b.to); seq++ {
			if b.from[seq] != 0 && b.to[seq] != 0 {
				rec.Latency(b.name, time.Duration(b.to[seq]-b.from[seq]))
			}
		}
	}
}

// sequence reads an object's number from its resourceVersion; 0 where it has
// none. It doesn't allocate.
func sequence(obj any) uint64 {
	if pod, ok := obj.(*v1.Pod); ok {
		return parseSequence(pod.ResourceVersion)
	}
	if o, ok := obj.(metav1.Object); ok {
		return parseSequence(o.GetResourceVersion())
	}
	return 0
}

// parseSequence reads a decimal number; anything else is 0.
func parseSequence(rv string) uint64 {
	const digits = 18 // so many never overflow
	if len(rv) > digits {
		return 0
	}
	var n uint64
	for i := range len(rv) {
		c := rv[i] - '0'
		if c > 9 {
			return 0
		}
		n = n*10 + uint64(c)
	}
	return n
}
