package observe

import (
	"slices"
	"sync/atomic"
	"time"

	"watchlab/bench/cell"
	"watchlab/bench/telemetry"
)

// The boundaries of latencies. A pipeline reports those whose stages it has.
const (
	Handled         cell.Boundary = "intended→handled" // headline of paced cells, with the lag
	ReleasedHandled cell.Boundary = "released→handled" // headline of unpaced cells

	// The intervals between two stages. Pipelines of merge have Merged instead of Popped.
	ReleasedEnqueued cell.Boundary = "released→enqueued"
	// The parts of released→enqueued where a client decodes: the server and the connection, the decoder
	// from the bytes of a frame on, the Reflector.
	ReleasedWire    cell.Boundary = "released→wire"
	WireDecoded     cell.Boundary = "wire→decoded"
	DecodedEnqueued cell.Boundary = "decoded→enqueued"

	EnqueuedPopped cell.Boundary = "enqueued→popped"
	PoppedStored   cell.Boundary = "popped→stored"
	PoppedHandled  cell.Boundary = "popped→handled"
	StoredHandled  cell.Boundary = "stored→handled"
	EnqueuedMerged cell.Boundary = "enqueued→merged"
	MergedHandled  cell.Boundary = "merged→handled"

	Staleness     cell.Boundary = "staleness"      // age of the oldest released event that the store lacked at a worker's look-up
	ListStaleness cell.Boundary = "list-staleness" // the same at a reader's list
	Listed        cell.Boundary = "list"           // duration of a reader's list
)

// interval is the time between two stages.
type interval struct {
	from, to stage
	figure   telemetry.Histogram
	exported bool // as figure
}

var intervals = map[cell.Boundary]interval{
	ReleasedWire:     {released, wire, telemetry.ReleasedWire, true},
	WireDecoded:      {wire, decoded, telemetry.WireDecoded, true},
	DecodedEnqueued:  {decoded, enqueued, telemetry.DecodedEnqueued, true},
	ReleasedEnqueued: {released, enqueued, telemetry.ReleasedEnqueued, true},
	EnqueuedPopped:   {enqueued, popped, telemetry.EnqueuedPopped, true},
	EnqueuedMerged:   {enqueued, popped, telemetry.EnqueuedMerged, true},
	PoppedStored:     {popped, stored, telemetry.PoppedStored, true},
	PoppedHandled:    {popped, handled, 0, false},
	StoredHandled:    {stored, handled, telemetry.StoredHandled, true},
	MergedHandled:    {popped, handled, telemetry.MergedHandled, true},
	ReleasedHandled:  {released, handled, telemetry.ReleasedHandled, true},
}

// Outcome is the result of a check.
type Outcome struct {
	Violations Violations
	Out        uint64          // deltas, objects or notifications handed over
	Boundaries []cell.Boundary // intervals that the pipeline has, in the order of reports
}

// Report gives the figures of a play to its recorder.
func (s *Stamps) Report(rec *cell.Recorder, o Outcome) {
	rec.Count(uint64(len(s.Storm.Events)-s.initial), o.Out)
	if s.Paced {
		s.reportPaced(rec)
	}
	s.eachLatency(o.Boundaries, func(b cell.Boundary, _ uint64, d time.Duration) { rec.Latency(b, d) })
}

func (s *Stamps) reportPaced(rec *cell.Recorder) {
	if s.Budget > 0 {
		rec.Schedule(s.Budget, s.Schedule.Intended(max(len(s.at[handled])-2-s.initial, 0)))
	}
	g := newGenerator(s)
	for seq := s.initial + 1; seq < len(s.at[handled]); seq++ {
		if s.at[released][seq] != 0 {
			rec.Lag(g.lag(uint64(seq)))
		}
	}
	s.noteBlocked(rec)
	s.noteQueue(rec)
}

// eachLatency calls f with the latencies of the events after the initial list, boundary by
// boundary. A boundary leaves out events that lack a stamp at either end.
func (s *Stamps) eachLatency(boundaries []cell.Boundary, f func(b cell.Boundary, seq uint64, d time.Duration)) {
	for seq := uint64(s.initial + 1); s.Paced && seq < uint64(len(s.at[handled])); seq++ {
		if at := s.at[handled][seq]; at != 0 {
			intended, _ := s.intended(seq)
			f(Handled, seq, time.Duration(at-intended))
		}
	}
	// Tables of unpaced cells show the last boundary.
	for _, b := range append(slices.Clip(boundaries), ReleasedHandled) {
		from, to := s.at[intervals[b].from], s.at[intervals[b].to]
		for seq := s.initial + 1; seq < min(len(from), len(to)); seq++ {
			if from[seq] != 0 && to[seq] != 0 {
				f(b, uint64(seq), time.Duration(to[seq]-from[seq]))
			}
		}
	}
}

// generator finds the generator's own part of each release's lag: the lag of the same releases if
// all calls returned at once. The rest is the variant's: a call had not returned, or had made the
// producer late for later events. It stays in the latency, which counts from the intended time.
type generator struct {
	*Stamps
	producing []producer
}

// producer is a producer after a release: its event, and the time of the release if calls took no time.
type producer struct {
	last uint64
	free int64
}

func newGenerator(s *Stamps) generator { return generator{s, make([]producer, max(1, s.Producers))} }

// lag returns the generator's lag for an event, and its intended time from the start of the
// schedule. It is called once for each event, in the order of the events.
func (g generator) lag(seq uint64) (own, due time.Duration) {
	p, returned := &g.producing[0], released
	if g.Producers > 0 {
		p, returned = &g.producing[ProducerOf(g.Storm.Events[seq-1].KeyIndex, g.Producers)], enqueued
	}
	intended, due := g.intended(seq)
	late := atomic.LoadInt64(&g.at[released][seq]) - max(intended, atomic.LoadInt64(&g.at[returned][p.last]))
	if d, ok := g.controlCalls.Load(seq); ok {
		late = max(0, late-d.(int64))
	}
	p.last, p.free = seq, max(intended, p.free)+late
	return time.Duration(p.free - intended), due
}

// noteBlocked reports the time inside calls, unless client-go's own informer hides them.
func (s *Stamps) noteBlocked(rec *cell.Recorder) {
	var sum, longest int64
	add := func(d int64) { sum, longest = sum+d, max(longest, d) }
	for seq := s.initial + 1; seq < len(s.callStart); seq++ {
		if s.callStart[seq] != 0 && s.at[enqueued][seq] != 0 {
			add(s.at[enqueued][seq] - s.callStart[seq])
		}
		if d, ok := s.controlCalls.Load(uint64(seq)); ok {
			add(d.(int64))
		}
	}
	if sum > 0 {
		rec.Note("blocked-ns/event", float64(sum)/float64(len(s.callStart)-1-s.initial))
		rec.Note("blocked-max-ns", float64(longest))
	}
}

// noteQueue reports the most events that were sent to the variant and not handled yet, wherever they
// waited: in a queue, in a listener or in process. An event that a call holds up is not sent yet; its
// latency, from the intended time, shows that.
func (s *Stamps) noteQueue(rec *cell.Recorder) {
	var sent, done []int64
	for seq := s.initial + 1; seq < len(s.at[handled]); seq++ {
		if in, out := s.at[enqueued][seq], s.at[handled][seq]; in != 0 && out != 0 {
			// A consumer may handle an event before the producer's Add returns.
			sent, done = append(sent, min(in, out)), append(done, out)
		}
	}
	slices.Sort(sent)
	slices.Sort(done)
	longest, n := 0, 0
	for i, at := range sent {
		for done[n] < at {
			n++
		}
		longest = max(longest, i+1-n)
	}
	rec.Note("queue-max", float64(longest))
}
