package pipeline

import (
	"context"
	"encoding/json"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/cache"

	"watchlab/bench/cell"
	"watchlab/bench/telemetry/metric"
	"watchlab/bench/telemetry/probe"
	"watchlab/impls/merge"
	"watchlab/loadgen/fault"
	"watchlab/loadgen/source"
	"watchlab/loadgen/storm"
)

// telemetry reads the stamps and the logs of a play and forwards them to a probe: a few
// times a second during the play, and the rest at its end. The stages do not know it. A
// nil telemetry is a no-op.
//
// Counters are forwarded during the play. In paced cells so are the latencies of one
// event in [oneIn]. All other latencies are forwarded at the end: those of mergers, of
// unpaced cells and of the remaining events. Then telemetry has every latency that the
// recorder has.
type telemetry struct {
	set *probe.Set
	st  *stamps
	// score is nil for a live stream until arrived; initial is the length of its initial
	// list.
	score   *score
	initial uint64
	// budget is the largest allowed lag in nanoseconds.
	budget int64
	// mu guards the fields below. The session's goroutine forwards during the play, the
	// workload's at its end.
	mu    sync.Mutex
	probe *probe.Probe
	// over stops forwarding during the play.
	over bool
	// released and enqueued are the last counted events; replaced is the number of
	// counted list objects.
	released, enqueued uint64
	replaced           int64
	// newest is the newest event in the logs that were read.
	newest uint64
	// logs, work and notices are the readers of the logs; work and notices are nil in
	// pipelines without them.
	logs    []*logReader
	work    *workReader
	notices *noticeReader
	// forwarded has a bit for each event in [oneIn]; it is set once the event's
	// latencies are forwarded.
	forwarded []uint64
	// also has further functions that forward calls.
	also []func()
	// expiries counts the watches that relists of the storm ended.
	expiries int
}

// oneIn: one event in 8 of a paced cell is forwarded during the play. It is a power of
// two.
const oneIn = 8

// boundaries maps the recorder's boundaries to telemetry's histograms.
var boundaries = map[cell.Boundary]probe.Histogram{
	ReleasedEnqueued: probe.ReleasedEnqueued,
	EnqueuedPopped:   probe.EnqueuedPopped,
	PoppedStored:     probe.PoppedStored,
	StoredHandled:    probe.StoredHandled,
	EnqueuedMerged:   probe.EnqueuedMerged,
	MergedHandled:    probe.MergedHandled,
}

// newTelemetry returns nil where the context has no probes. score is nil for a live
// stream, until [telemetry.arrived].
func newTelemetry(ctx context.Context, st *stamps, s *score) *telemetry {
	set := probe.From(ctx)
	if set == nil {
		return nil
	}
	st.watched = true
	t := &telemetry{set: set, st: st, budget: int64(st.budget)}
	if t.budget == 0 {
		t.budget = int64(cell.LateAfter)
	}
	events := 0
	if s != nil {
		t.score, t.initial = s, uint64(s.Initial)
		events = len(s.Events) - s.Initial
		t.released, t.enqueued = t.initial, t.initial
	}
	t.forwarded = make([]uint64, len(st.handled)/oneIn/64+1)
	set.Begin(events)
	t.probe = set.Probe()
	return t
}

// queue registers the queue's length and the logs for reading until the teardown.
func (t *telemetry) queue(length func() int, logs ...*deliveryLog) {
	if t == nil {
		return
	}
	t.mu.Lock()
	for _, l := range logs {
		t.logs = append(t.logs, &logReader{l: l, deltas: l.deltas[:cap(l.deltas)], ends: l.ends[:cap(l.ends)], readings: l.readings[:cap(l.readings)]})
	}
	t.mu.Unlock()
	size := 0.0
	if t.score != nil {
		size = meanSize(t.score.Events)
	}
	t.watch(length, size)
}

// merger registers the length of a merger's output and its log.
func (t *telemetry) merger(length func() int, l *noticeLog) {
	if t == nil {
		return
	}
	t.mu.Lock()
	t.notices = &noticeReader{l: l, log: l.notices[:cap(l.notices)]}
	t.mu.Unlock()
	t.watch(length, meanSize(t.score.Events))
}

// watch registers a function that reads the queue's length and forwards.
func (t *telemetry) watch(length func() int, size float64) {
	t.set.Depth(func() int {
		t.mu.Lock()
		defer t.mu.Unlock()
		if !t.over {
			t.forward()
		}
		return length()
	}, size)
}

// sizeSamples is the number of objects that estimate a storm's mean size.
const sizeSamples = 64

// meanSize estimates the size of an object of the storm as JSON.
func meanSize(events []storm.Event) float64 {
	bytes, n := 0, 0
	for i := 0; i < len(events); i += max(1, len(events)/sizeSamples) {
		if b, err := json.Marshal(events[i].Object); err == nil {
			bytes += len(b)
			n++
		}
	}
	return float64(bytes) / float64(max(n, 1))
}

// logReader is the read position in a delivery log. It has its own slice headers: the
// log's slices may be reallocated when they grow. Entries beyond these headers are read
// at the end.
type logReader struct {
	l        *deliveryLog
	deltas   []cache.Delta
	ends     []int32
	readings []reading
	// call, pos and reading are the next indexes in ends, deltas and readings.
	call, pos, reading int
}

// workReader is the read position in the worker's log.
type workReader struct {
	w    *worker
	log  []work
	next int
}

// noticeReader is the read position in a log of notifications.
type noticeReader struct {
	l    *noticeLog
	log  []notice
	next int
}

// event reports whether seq is an event after the initial list.
func (t *telemetry) event(seq uint64) bool {
	return t.score != nil && seq > t.initial && seq <= uint64(len(t.score.Events))
}

func (t *telemetry) kind(seq uint64) probe.Type { return probe.WatchType(t.score.Events[seq-1].Type) }

// intended returns the intended time of an event; false in unpaced cells.
func (t *telemetry) intended(seq uint64) (int64, bool) {
	if !t.st.paced {
		return 0, false
	}
	return t.st.start.Load() + int64(t.score.schedule.Intended(int(seq-1-t.initial))), true
}

// forward reads the new stamps and log entries. The caller holds mu.
func (t *telemetry) forward() {
	if t.score != nil {
		t.released = t.count(probe.Released, t.st.released, t.released)
		t.enqueued = t.count(probe.Enqueued, t.st.enqueued, t.enqueued)
	}
	if n := t.st.replaced.Load(); n > t.replaced {
		t.probe.Count(probe.Enqueued, probe.Replaced, int(n-t.replaced))
		t.replaced = n
	}
	for _, r := range t.logs {
		t.readLog(r, int(min(r.l.published.Load(), uint64(len(r.ends)))))
	}
	if r := t.work; r != nil {
		t.readWork(int(min(r.w.worked.Load(), uint64(len(r.log)))))
	}
	if r := t.notices; r != nil {
		t.readNotices(int(min(r.l.published.Load(), uint64(len(r.log)))))
	}
	for _, f := range t.also {
		f()
	}
	t.probe.Flush()
}

// count counts the events of a stage in sequence order, up to the first without a stamp.
// It returns the last counted event.
func (t *telemetry) count(stage probe.Stage, stamps []int64, from uint64) uint64 {
	step := t.st.mask + 1
	if t.st.none {
		return from
	}
	for seq := (from/step + 1) * step; seq < uint64(len(stamps)); seq += step {
		at := atomic.LoadInt64(&stamps[seq])
		if at == 0 {
			break
		}
		for ; from < seq; from++ {
			t.probe.Count(stage, t.kind(from+1), 1)
		}
		if stage == probe.Released {
			t.lag(seq, at)
		}
	}
	return from
}

// lag forwards the lag of a release.
func (t *telemetry) lag(seq uint64, at int64) {
	if due, ok := t.intended(seq); ok {
		if at-due > t.budget {
			t.probe.Late()
		}
		t.probe.Observe(probe.GeneratorLag, time.Duration(at-due))
	}
}

// readLog reads a delivery log up to a hand-over. It fills in the same stamps as the
// checker does at the end.
func (t *telemetry) readLog(r *logReader, calls int) {
	way := probe.PoppedAndHandled
	if t.work != nil {
		way = probe.PoppedToHandled
	}
	for ; r.call < calls; r.call++ {
		end := int(max(r.ends[r.call], -r.ends[r.call]))
		deltas := r.deltas[r.pos:end]
		t.probe.HandOver(len(deltas))
		for i := range deltas {
			d := &deltas[i]
			t.probe.Through(way, probe.DeltaType(d.Type), objectsIn(deltas[i:i+1]))
			seq := sequence(d.Object)
			t.newest = max(t.newest, seq)
			switch {
			case t.score == nil:
				// A live stream has no list of events yet: the log is the only record.
				if kind := probe.DeltaType(d.Type); kind != probe.Replaced {
					t.probe.Count(probe.Enqueued, kind, 1)
				}
				continue
			case !t.st.paced || seq%oneIn != 0 || seq >= uint64(len(t.st.popped)) || t.st.popped[seq] != 0:
				continue
			}
			at := r.at(r.pos + i)
			if at.popped == 0 {
				continue
			}
			t.st.popped[seq] = at.popped
			if t.work != nil {
				t.st.stored[seq] = at.stored
			} else if t.event(seq) {
				t.latencies(seq, max(at.popped, at.stored))
			}
		}
		r.pos = end
	}
}

// at returns the clock reading that applies to a delta; the zero reading if there is
// none yet.
func (r *logReader) at(pos int) reading {
	for r.reading < len(r.readings) && r.readings[r.reading].upto != 0 && r.readings[r.reading].upto <= pos {
		r.reading++
	}
	if r.reading == len(r.readings) {
		return reading{}
	}
	return r.readings[r.reading]
}

func (t *telemetry) readWork(upto int) {
	r := t.work
	if r.next < upto && t.st.paced && t.score != nil {
		t.probe.Value(probe.Staleness, int64(t.released)-int64(t.newest))
	}
	for ; r.next < upto; r.next++ {
		item := &r.log[r.next]
		kind := probe.Deleted
		if item.obj != nil {
			kind = probe.Modified
		}
		t.probe.Count(probe.Worked, kind, 1)
		seq := sequence(item.obj)
		if t.st.paced && seq%oneIn == 0 && t.event(seq) && item.at != 0 {
			t.latencies(seq, item.at)
		}
	}
}

func (t *telemetry) readNotices(upto int) {
	r := t.notices
	for ; r.next < upto; r.next++ {
		u := r.log[r.next].PodUpdate
		kind := probe.Modified
		switch u.Op {
		case merge.ADD:
			kind = probe.Added
		case merge.REMOVE:
			kind = probe.Deleted
		}
		t.probe.Through(probe.PoppedAndHandled, kind, len(u.Pods))
		t.probe.HandOver(len(u.Pods))
	}
}

// latencies forwards the latencies of an event that was handled during the play. Later
// calls for the event do nothing.
func (t *telemetry) latencies(seq uint64, handled int64) {
	st := t.st
	released, enqueued := atomic.LoadInt64(&st.released[seq]), atomic.LoadInt64(&st.enqueued[seq])
	if released == 0 || t.isForwarded(seq) {
		return
	}
	t.forwarded[seq/oneIn/64] |= 1 << (seq / oneIn % 64)
	if enqueued == 0 {
		// A consumer popped it before the producer's call returned.
		enqueued = max(released, st.popped[seq])
	}
	t.between(probe.ReleasedEnqueued, released, enqueued)
	t.between(probe.EnqueuedPopped, enqueued, st.popped[seq])
	stored := atomic.LoadInt64(&st.stored[seq])
	t.between(probe.PoppedStored, st.popped[seq], stored)
	t.between(probe.StoredHandled, stored, handled)
	t.toHandled(seq, released, handled)
}

func (t *telemetry) between(h probe.Histogram, from, to int64) {
	if from != 0 && to != 0 {
		t.probe.Observe(h, time.Duration(to-from))
	}
}

func (t *telemetry) toHandled(seq uint64, released, handled int64) {
	if due, ok := t.intended(seq); ok {
		t.probe.ObserveEvent(probe.IntendedHandled, time.Duration(handled-due), seq)
	}
	t.probe.ObserveEvent(probe.ReleasedHandled, time.Duration(handled-released), seq)
}

func (t *telemetry) isForwarded(seq uint64) bool {
	return seq%oneIn == 0 && t.forwarded[seq/oneIn/64]&(1<<(seq/oneIn%64)) != 0
}

// arrived sets the events of a live stream, which are known only after the round.
func (t *telemetry) arrived(s *score) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forward()
	t.score, t.initial = s, uint64(s.Initial)
	t.released, t.enqueued = t.initial, uint64(len(s.Events))
	t.set.Begin(len(s.Events) - s.Initial)
	t.probe.Close()
	t.probe = t.set.Probe()
}

// pause stops forwarding during the play. The checker writes the stamps from then on.
func (t *telemetry) pause() {
	if t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.over = true
	}
}

// finish forwards the rest, after the play, when all stamps are complete.
func (t *telemetry) finish(o outcome) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.logs {
		r.deltas, r.ends, r.readings = r.l.deltas, r.l.ends, r.l.readings
		r.l.published.Store(uint64(len(r.ends)))
	}
	if r := t.work; r != nil {
		r.log = r.w.log
	}
	if r := t.notices; r != nil {
		r.log = r.l.notices
	}
	st := t.st
	t.forward()
	missed := 0
	for seq := t.initial + 1; seq < uint64(len(st.handled)); seq++ {
		if seq > t.released && (st.released[seq] != 0 || !st.every) {
			t.probe.Count(probe.Released, t.kind(seq), 1)
			if st.every {
				t.lag(seq, st.released[seq])
			}
		}
		if seq > t.enqueued && (st.enqueued[seq] != 0 || !st.every) {
			t.probe.Count(probe.Enqueued, t.kind(seq), 1)
		}
		if st.released[seq] == 0 {
			missed++
		}
		if t.isForwarded(seq) {
			continue
		}
		for _, b := range o.stretches {
			if h, ok := boundaries[b.name]; ok {
				t.between(h, b.from[seq], b.to[seq])
			}
		}
		if st.released[seq] != 0 && st.handled[seq] != 0 {
			t.toHandled(seq, st.released[seq], st.handled[seq])
		}
	}
	if st.paced {
		t.probe.Missed(missed)
	}
	t.journeys(o)
	t.probe.Flush()
}

// close closes the probe.
func (t *telemetry) close() {
	if t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.over = true
		t.probe.Close()
	}
}

// source forwards the source's relists, faults and broken watches.
func (t *telemetry) source(src source.Source) {
	if t == nil {
		return
	}
	relists, unexplained, faults := 0, 0, map[string]int{}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.also = append(t.also, func() {
		n := src.Relists()
		t.set.Relist(n - relists)
		relists = n
		api, ok := src.(*source.APIServer)
		if !ok || api.Injector() == nil {
			if more := n - t.expiries - unexplained; more > 0 {
				unexplained += more
				t.set.WatchError(metric.OtherFault, more)
			}
			return
		}
		for name, n := range api.Injector().Counts() {
			more := n - faults[string(name)]
			faults[string(name)] = n
			t.set.Fault(string(name), more)
			if endsWatches(name) {
				t.set.WatchError(string(name), more)
			}
		}
	})
}

// endsWatches reports whether a fault ends watches or refuses requests for a watch.
func endsWatches(name fault.Name) bool {
	switch name {
	case fault.Drip, fault.Stall, fault.DuplicateBookmark:
		return false
	}
	return true
}

// expired counts a watch that a relist of the storm ends.
func (t *telemetry) expired() {
	if t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.expiries++
		t.set.WatchError(string(fault.Relist), 1)
	}
}

// upstream returns client-go's metrics and the variant's name in them; nil for none.
// Unpaced cells have none, as client-go updates these metrics while events are handled.
func (t *telemetry) upstream() (*probe.Upstream, string) {
	if t == nil || !t.st.paced || t.score == nil || t.set.Upstream() == nil {
		return nil, ""
	}
	return t.set.Upstream(), t.set.Labels().UpstreamName()
}

// informer forwards client-go's metrics of an informer.
func (t *telemetry) informer(length func() int) {
	all, name := t.upstream()
	if all == nil {
		return
	}
	m := all.Informer(name, t.score.Resource)
	next := 0
	t.mu.Lock()
	defer t.mu.Unlock()
	t.also = append(t.also, func() {
		m.Queued.Set(float64(length()))
		r := t.logs[0]
		for ; next < r.call; next++ {
			if next < len(r.readings) && r.readings[next].stored != 0 {
				m.Processing.Observe(time.Duration(r.readings[next].stored - r.readings[next].popped).Seconds())
			}
		}
		m.Version.Set(float64(t.newest))
	})
}

// journeys forwards the journeys of the traced events.
func (t *telemetry) journeys(o outcome) {
	sampling := t.set.Sampling()
	if sampling == nil {
		return
	}
	done := map[uint64]bool{}
	for seq := t.initial + 1; seq < uint64(len(t.st.released)); seq++ {
		if !sampling.Sampled(seq) || done[seq] {
			continue
		}
		into := t.into(seq, o.lookedUp)
		t.journey(sampling, seq, o.popped, into)
		done[seq] = true
		if into != 0 && !done[into] && !sampling.Sampled(into) {
			t.journey(sampling, into, o.popped, 0)
			done[into] = true
		}
	}
}

// into returns the newer version that an event was coalesced into; 0 if the event itself
// was handled, or never.
func (t *telemetry) into(seq uint64, lookedUp bool) uint64 {
	handled := t.st.handled[seq]
	if handled == 0 || !lookedUp && t.st.popped[seq] != 0 {
		return 0
	}
	events := t.score.Events
	key, found := events[seq-1].KeyIndex, uint64(0)
	for later := seq + 1; later < uint64(len(t.st.handled)); later++ {
		if events[later-1].KeyIndex != key {
			continue
		}
		if t.st.handled[later] != handled {
			break
		}
		found = later
		if !lookedUp && t.st.popped[later] != 0 {
			break
		}
	}
	return found
}

func (t *telemetry) journey(sampling *probe.Sampling, seq uint64, popped string, into uint64) {
	e := &t.score.Events[seq-1]
	j := probe.Journey{Seq: seq, Type: string(e.Type), Key: e.Key, Into: into}
	at := func(stamp int64) time.Time { return t.st.epoch.Add(time.Duration(stamp)) }
	if due, ok := t.intended(seq); ok {
		j.Intended = at(due)
	}
	last := int64(math.MinInt64)
	for _, s := range []struct {
		name  string
		stamp int64
	}{
		{"released", t.st.released[seq]}, {"enqueued", t.st.enqueued[seq]}, {popped, t.st.popped[seq]},
		{"stored", t.st.stored[seq]}, {"handled", t.st.handled[seq]},
	} {
		// A consumer may pop an event before the producer's Add returns. Later stages
		// are moved so that times never decrease.
		if s.stamp != 0 {
			last = max(last, s.stamp)
			j.Stages = append(j.Stages, probe.Arrival{Stage: s.name, At: at(last)})
		}
	}
	sampling.Journey(j)
}
