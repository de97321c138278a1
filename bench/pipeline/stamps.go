package pipeline

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/bench/cell"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/storm"
)

// sampleEvery is the number of events of an unpaced cell that share one clock reading.
// It is a power of two.
const sampleEvery = 64

// Stamps selects the stamped events of an unpaced cell of deltafifo or queue; see the
// package documentation. Paced cells stamp every event.
type Stamps string

const (
	StampsNone    Stamps = "none"    // no stamps; the cell has no latencies
	StampsSampled Stamps = "sampled" // default: one event, and one hand-over, in 64
	StampsAll     Stamps = "all"     // every event and hand-over
)

// AllStamps returns all values of Stamps.
func AllStamps() []Stamps { return []Stamps{StampsNone, StampsSampled, StampsAll} }

// stamps has the time at which each event of a storm reached each stage, in nanoseconds
// since epoch, indexed by sequence number. 0 means no stamp. During the play, one
// goroutine writes each element; telemetry reads released and enqueued.
type stamps struct {
	epoch time.Time
	start atomic.Int64 // begin of the schedule, in nanoseconds since epoch

	schedule    pace.Schedule // intended times of the events after the initial ones
	initial     int
	producers   int           // goroutines that release and call the variant; 0: a source releases
	events      []storm.Event // of the storm, for several producers
	others      sync.Map      // nanoseconds of other calls right before an event's release: a Replace, a Resync
	mask        uint64        // selects the sequence numbers that are stamped on the way in
	paced       bool
	every, none bool          // each hand-over reads the clock; none does
	watched     bool          // telemetry reads during the play, so stores are atomic; plain ones cost less
	replaced    atomic.Int64  // later objects of all lists that went into the queue; for telemetry
	budget      time.Duration // largest allowed lag of a release; 0 for the default

	decoding *decoding // nil without a wire

	called                  []int64 // right before the variant's call, in paced cells; same as released if a producer calls
	released, enqueued      []int64
	popped, stored, handled []int64 // filled in from the logs, after the play
}

// newStamps returns stamps for events 1 to n. A paced cell stamps all of them.
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
	if paced {
		s.called = make([]int64, n+1)
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

// begin starts the schedule and returns the time to start the pacers with.
func (s *stamps) begin() time.Time {
	t0 := time.Now()
	s.start.Store(int64(t0.Sub(s.epoch)))
	return t0
}

// intended returns the intended time of an event of a paced cell, also from the start of
// the schedule.
func (s *stamps) intended(seq uint64) (at int64, due time.Duration) {
	due = s.schedule.Intended(int(seq) - 1 - s.initial)
	return s.start.Load() + int64(due), due
}

// arrived replaces the released stamps by the arrival times of a live stream that
// began at t0, and cuts the stamps to its length.
func (s *stamps) arrived(stream *storm.Storm, t0 time.Time) {
	n := len(stream.Events)
	s.schedule, s.initial = arrivals{stream}, stream.Initial
	start := int64(t0.Sub(s.epoch))
	s.start.Store(start)
	for i := range stream.Events {
		s.released[i+1] = start + int64(stream.Events[i].At)
	}
	for _, stamps := range []*[]int64{&s.called, &s.released, &s.enqueued, &s.popped, &s.stored, &s.handled} {
		*stamps = (*stamps)[:n+1]
	}
}

// release is called right before an event is handed over.
func (s *stamps) release(seq uint64) { s.releaseAt(seq, time.Time{}) }

// releaseAt is called by a source for each event; a zero time is now.
func (s *stamps) releaseAt(seq uint64, at time.Time) {
	switch {
	case seq&s.mask != 0 || seq >= uint64(len(s.released)):
	case at.IsZero():
		s.put(&s.released[seq])
	default:
		s.set(&s.released[seq], max(1, int64(at.Sub(s.epoch))))
	}
}

// enqueue is called right after the queue has taken an event.
func (s *stamps) enqueue(seq uint64) {
	if seq&s.mask == 0 && seq < uint64(len(s.enqueued)) {
		s.put(&s.enqueued[seq])
	}
}

// replace is called right after the queue has taken a list.
func (s *stamps) replace(list []any) {
	if s.watched {
		s.replaced.Add(int64(s.later(list)))
	}
}

// later counts the objects of a list that are newer than the initial list.
func (s *stamps) later(list []any) (n int) {
	for _, obj := range list {
		if sequence(obj) > uint64(s.initial) {
			n++
		}
	}
	return n
}

// call is called by a Reflector's goroutine right before the variant gets an event.
func (s *stamps) call(seq uint64) {
	if s.paced && seq < uint64(len(s.called)) {
		s.called[seq] = s.now()
	}
}

// other records a call without an event of its own, right before an event's release.
func (s *stamps) other(seq uint64, began int64) {
	before, _ := s.others.LoadOrStore(seq, int64(0))
	s.others.Store(seq, before.(int64)+s.now()-began)
}

func (s *stamps) put(stamp *int64) { s.set(stamp, s.now()) }

func (s *stamps) set(stamp *int64, at int64) {
	if s.watched {
		atomic.StoreInt64(stamp, at)
		return
	}
	*stamp = at
}

// generator finds the generator's own part of each release's lag: the lag of the same releases if
// all calls returned at once. The rest is the variant's: a call had not returned, or had made the
// producer late for later events. It stays in the latency, which counts from the intended time.
type generator struct {
	*stamps
	producing []producer
}

// producer is a producer after a release: its event, and the time of the release if calls took no time.
type producer struct {
	last uint64
	free int64
}

func newGenerator(s *stamps) generator { return generator{s, make([]producer, max(1, s.producers))} }

// noteBlocked reports the time inside calls, unless client-go's own informer hides them.
func (s *stamps) noteBlocked(rec *cell.Recorder) {
	var sum, longest int64
	add := func(d int64) { sum, longest = sum+d, max(longest, d) }
	for seq := s.initial + 1; s.paced && seq < len(s.called); seq++ {
		if s.called[seq] != 0 && s.enqueued[seq] != 0 {
			add(s.enqueued[seq] - s.called[seq])
		}
		if d, ok := s.others.Load(uint64(seq)); ok {
			add(d.(int64))
		}
	}
	if sum > 0 {
		rec.Note("blocked-ns/event", float64(sum)/float64(len(s.called)-1-s.initial))
		rec.Note("blocked-max-ns", float64(longest))
	}
}

// noteQueue reports the most events that were sent to the variant and not handled yet, wherever they
// waited: in a queue, in a listener or in process. An event that a call holds up is not sent yet; its
// latency, from the intended time, shows that.
func (s *stamps) noteQueue(rec *cell.Recorder) {
	if !s.paced {
		return
	}
	var sent, handled []int64
	for seq := s.initial + 1; seq < len(s.handled); seq++ {
		if s.enqueued[seq] != 0 && s.handled[seq] != 0 {
			// A consumer may handle an event before the producer's Add returns.
			sent = append(sent, min(s.enqueued[seq], s.handled[seq]))
			handled = append(handled, s.handled[seq])
		}
	}
	slices.Sort(sent)
	slices.Sort(handled)
	longest, done := 0, 0
	for i, at := range sent {
		for handled[done] < at {
			done++
		}
		longest = max(longest, i+1-done)
	}
	rec.Note("queue-max", float64(longest))
}

// lag returns the generator's lag for an event, and its intended time from the start of the
// schedule. It is called once for each event, in the order of the events.
func (g generator) lag(seq uint64) (own, due time.Duration) {
	p, returned := &g.producing[0], g.released
	if g.producers > 0 {
		p, returned = &g.producing[producerOf(g.events[seq-1].KeyIndex, g.producers)], g.enqueued
	}
	intended, due := g.intended(seq)
	late := atomic.LoadInt64(&g.released[seq]) - max(intended, atomic.LoadInt64(&returned[p.last]))
	if d, ok := g.others.Load(seq); ok {
		late = max(0, late-d.(int64))
	}
	p.last, p.free = seq, max(intended, p.free)+late
	return time.Duration(p.free - intended), due
}

type interval struct {
	name     cell.Boundary
	from, to []int64 // stamps at its ends
}

// eachLatency calls f with the latencies of the events after the initial list, boundary by
// boundary. A boundary leaves out events that lack a stamp at either end.
func (s *stamps) eachLatency(intervals []interval, f func(b cell.Boundary, seq uint64, d time.Duration)) {
	for seq := uint64(s.initial + 1); s.paced && seq < uint64(len(s.handled)); seq++ {
		if s.handled[seq] != 0 {
			intended, _ := s.intended(seq)
			f(Handled, seq, time.Duration(s.handled[seq]-intended))
		}
	}
	// Tables of unpaced cells show the last boundary.
	for _, b := range append(slices.Clip(intervals), interval{ReleasedHandled, s.released, s.handled}) {
		for seq := s.initial + 1; seq < len(b.to); seq++ {
			if b.from[seq] != 0 && b.to[seq] != 0 {
				f(b.name, uint64(seq), time.Duration(b.to[seq]-b.from[seq]))
			}
		}
	}
}

func (s *stamps) report(rec *cell.Recorder, intervals []interval) {
	if s.paced && s.budget > 0 {
		rec.Schedule(s.budget, s.schedule.Intended(max(len(s.handled)-2-s.initial, 0)))
	}
	g := newGenerator(s)
	for seq := s.initial + 1; s.paced && seq < len(s.handled); seq++ {
		if s.released[seq] != 0 {
			rec.Lag(g.lag(uint64(seq)))
		}
	}
	s.noteBlocked(rec)
	s.noteQueue(rec)
	s.eachLatency(intervals, func(b cell.Boundary, _ uint64, d time.Duration) { rec.Latency(b, d) })
}

const maxMoments = 200 // length of a timeline

// moments counts the released, handled and waiting events in moments of equal length,
// from the start of a paced schedule to the last handled event. taken is the time at
// which each event left the queue; an event without it counts as never queued.
func (s *stamps) moments(taken []int64) []cell.Moment {
	start := s.start.Load()
	last := start
	for seq := s.initial + 1; seq < len(s.handled); seq++ {
		last = max(last, s.released[seq], s.enqueued[seq], taken[seq], s.handled[seq])
	}
	if last == start {
		return nil
	}
	// Rounded up, so that the last stamp lies within.
	width := (last - start + maxMoments) / maxMoments
	n := int((last-start)/width) + 1
	at := func(stamp int64) int { return int(max(stamp-start, 0) / width) }

	moments := make([]cell.Moment, n)
	// change is the change of the queue's length in each moment.
	change := make([]int64, n)
	for seq := s.initial + 1; seq < len(s.handled); seq++ {
		if released := s.released[seq]; released != 0 {
			moments[at(released)].Released++
		}
		if handled := s.handled[seq]; handled != 0 {
			moments[at(handled)].Handled++
		}
		if s.enqueued[seq] != 0 && taken[seq] != 0 {
			// A consumer may pop an event before the producer's Add returns.
			change[min(at(s.enqueued[seq]), at(taken[seq]))]++
			change[at(taken[seq])]--
		}
	}
	depth := int64(0)
	for i := range moments {
		depth += change[i]
		moments[i].At = time.Duration(width * int64(i+1))
		moments[i].Depth = uint64(depth)
	}
	return moments
}

// completeByKey gives each event without a stamp the stamp of the key's next version. latest: a
// deletion removes the waiting versions before it, so they stay without a stamp.
func completeByKey(s *storm.Storm, stamp []int64, latest bool) {
	next := make([]int64, s.Keys)
	for i := len(s.Events) - 1; i >= 0; i-- {
		e := &s.Events[i]
		switch {
		case latest && e.Type == watch.Deleted:
			next[e.KeyIndex] = 0
		case stamp[e.Seq] != 0:
			next[e.KeyIndex] = stamp[e.Seq]
		default:
			stamp[e.Seq] = next[e.KeyIndex]
		}
	}
}

// sequence parses an object's resourceVersion; 0 if it is no number. It does not allocate.
func sequence(obj any) uint64 {
	if pod, ok := obj.(*v1.Pod); ok {
		return parseSequence(pod.ResourceVersion)
	}
	if o, ok := obj.(metav1.Object); ok {
		return parseSequence(o.GetResourceVersion())
	}
	return 0
}

// parseSequence parses a decimal number; anything else is 0.
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
