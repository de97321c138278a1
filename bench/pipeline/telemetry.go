package pipeline

import (
	"cmp"
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"watchlab/bench/cell"
	"watchlab/bench/telemetry/live"
	"watchlab/bench/telemetry/metric"
	"watchlab/impls/informer"
	"watchlab/impls/merge"
	"watchlab/loadgen/fault"
	"watchlab/loadgen/source"
)

// telemetry reads the stamps and the logs of a play and updates the figures of a
// [live.Set]: a few times a second during the play, and the rest at its end. The stages do
// not know it. A nil telemetry is a no-op.
//
// No count includes the initial list, which is handled before the clock starts, as in the recorder's
// figures: an object of it does not count when a later list has it again either.
//
// Counters are updated during the play. In paced cells so are the latencies of one event
// in [oneIn]. All other latencies are added at the end: those of mergers, of unpaced cells
// and of the remaining events. Then the set has every latency that the recorder has.
type telemetry struct {
	set       *live.Set
	sampling  *live.Sampling
	st        *stamps
	score     *score // nil for a live stream until arrived
	budget    int64  // largest allowed lag in nanoseconds
	generator generator
	// mu guards the fields below. The session's goroutine updates the set during the play,
	// the workload's at its end.
	mu                 sync.Mutex
	over               bool                     // no more updates during the play
	released, enqueued uint64                   // last counted events
	replaced           int64                    // counted list objects
	newest             uint64                   // newest event in the logs that were read
	length             func() int               // the queue's length
	queued             int                      // last result of length
	backlogs           informer.BacklogReporter // nil where handlers do not report
	logs               []*cursor
	work               *tail[work]           // nil in pipelines without it
	notices            *tail[notice]         // nil in pipelines without it
	exported           []uint64              // a bit for each event in [oneIn] whose latencies are in the set
	also               []func(*live.Figures) // further updates
	expiries           int                   // watches that relists of the storm ended
	refresh            func()                // updates the stamps of releases
}

// oneIn: the latencies of one event in 8 of a paced cell are exported during the play. It
// is a power of two.
const oneIn = 8

var boundaries = map[cell.Boundary]live.Histogram{
	Handled:          live.IntendedHandled,
	ReleasedHandled:  live.ReleasedHandled,
	ReleasedEnqueued: live.ReleasedEnqueued,
	ReleasedWire:     live.ReleasedWire,
	WireDecoded:      live.WireDecoded,
	DecodedEnqueued:  live.DecodedEnqueued,
	EnqueuedPopped:   live.EnqueuedPopped,
	PoppedStored:     live.PoppedStored,
	StoredHandled:    live.StoredHandled,
	EnqueuedMerged:   live.EnqueuedMerged,
	MergedHandled:    live.MergedHandled,
}

// newTelemetry returns nil where the context has no set. score is nil for a live stream,
// until [telemetry.arrived].
func newTelemetry(ctx context.Context, st *stamps, s *score) *telemetry {
	set := live.From(ctx)
	if set == nil {
		return nil
	}
	st.watched = true
	t := &telemetry{
		set: set, st: st, generator: newGenerator(st), budget: int64(cmp.Or(st.budget, cell.LateAfter)),
		exported: make([]uint64, len(st.handled)/oneIn/64+1), refresh: func() {},
	}
	events := 0
	if s != nil {
		t.score, t.released, t.enqueued = s, uint64(s.Initial), uint64(s.Initial)
		events = len(s.Events) - s.Initial
	}
	t.sampling = set.Begin(events)
	return t
}

// queue registers the delivery logs, and, as the last registration of a set-up, the queue's length.
func (t *telemetry) queue(length func() int, logs ...*deliveryLog) {
	if t == nil {
		return
	}
	for _, l := range logs {
		t.logs = append(t.logs, newCursor(l))
	}
	t.begin(length)
}

// merger registers the length of a merger's output and its log, as the last registration
// of a set-up.
func (t *telemetry) merger(length func() int, l *noticeLog) {
	if t == nil {
		return
	}
	t.notices = newTail(&l.notices, &l.published)
	t.begin(length)
}

// begin registers the queue's length. From then on the session's goroutine calls it, and
// updates the set with each call.
func (t *telemetry) begin(length func() int) {
	t.length = length
	t.set.Depth(func() int {
		t.mu.Lock()
		defer t.mu.Unlock()
		if !t.over {
			t.update(false)
		}
		return t.queued
	})
}

// tail reads a log that another goroutine appends to. During the play it reads the
// preallocated part, as the slice header changes with each append.
type tail[T any] struct {
	log          *[]T
	preallocated []T
	published    *atomic.Uint64
	next         int
}

func newTail[T any](log *[]T, published *atomic.Uint64) *tail[T] {
	return &tail[T]{log: log, preallocated: (*log)[:cap(*log)], published: published}
}

// read returns the published entries since the previous read; at the end of the play, all
// entries since then.
func (r *tail[T]) read(end bool) []T {
	if r == nil {
		return nil
	}
	log := r.preallocated
	if end {
		log = *r.log
	} else {
		log = log[:min(r.published.Load(), uint64(len(log)))]
	}
	out := log[r.next:]
	r.next = len(log)
	return out
}

func (t *telemetry) event(seq uint64) bool {
	return t.score != nil && seq > uint64(t.st.initial) && seq <= uint64(len(t.score.Events))
}

func (t *telemetry) kind(seq uint64) live.Type { return live.TypeOf(t.score.Events[seq-1].Type) }

// update updates the set from the new stamps and log entries. end: the play has ended. The
// caller holds mu.
func (t *telemetry) update(end bool) {
	// These may block, which the set's lock must not.
	t.refresh()
	t.queued = t.length()
	var backlog *int
	if t.backlogs != nil && !end {
		backlog = new(int)
		for _, b := range t.backlogs.Backlogs() {
			*backlog += b.Waiting
		}
	}
	t.set.Update(func(f *live.Figures) {
		f.HandlerBacklog = backlog
		if t.score != nil {
			t.released = t.count(f, live.Released, t.st.released, t.released)
		}
		for _, c := range t.logs {
			t.readLog(f, c, end)
		}
		t.readWork(f, t.work.read(end))
		for _, n := range t.notices.read(end) {
			t.readNotice(f, n.PodUpdate)
		}
		if t.score != nil {
			// After the logs, so that what came out has gone in.
			t.enqueued = t.count(f, live.Enqueued, t.st.enqueued, t.enqueued)
			n := t.st.replaced.Load()
			f.Count(live.Enqueued, live.Replaced, int(n-t.replaced))
			t.replaced = n
		}
		for _, update := range t.also {
			update(f)
		}
	})
}

// count counts the events of a stage in sequence order, up to the first without a stamp.
// It returns the last counted event.
func (t *telemetry) count(f *live.Figures, stage live.Stage, stamps []int64, from uint64) uint64 {
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
			f.Count(stage, t.kind(from+1), 1)
		}
		if stage == live.Released {
			t.lag(f, seq)
		}
	}
	return from
}

func (t *telemetry) lag(f *live.Figures, seq uint64) {
	if !t.st.paced {
		return
	}
	lag, _ := t.generator.lag(seq)
	if int64(lag) > t.budget {
		f.Late++
	}
	f.Observe(live.GeneratorLag, int64(lag))
}

// readLog reads the new hand-overs of a delivery log. It fills in the same stamps as the
// checker does at the end.
func (t *telemetry) readLog(f *live.Figures, c *cursor, end bool) {
	n := c.published()
	if end {
		n = c.all()
	}
	ones := uint64(0)
	for c.next < n && c.fits() {
		h := c.read()
		if len(h.deltas) == 1 {
			ones++
		} else {
			f.Observe(live.BatchSize, int64(len(h.deltas)))
		}
		for i := range h.deltas {
			d := &h.deltas[i]
			kind, n, seq := live.TypeOf(d.Type), 1, sequence(d.Object)
			if list, ok := listIn(h.deltas[i : i+1]); ok {
				n = t.st.later(list)
			} else if seq != 0 && seq <= uint64(t.st.initial) || t.score == nil && kind == live.Replaced {
				n = 0
			}
			f.Count(live.Popped, kind, n)
			f.Count(live.Handled, kind, n)
			if t.work != nil {
				f.Count(live.Stored, kind, n)
			}
			t.newest = max(t.newest, seq)
			switch {
			case t.score == nil:
				// A live stream has no list of events yet: the log is the only record.
				f.Count(live.Enqueued, kind, n)
				continue
			case !t.st.paced || seq%oneIn != 0 || seq >= uint64(len(t.st.popped)) || t.st.popped[seq] != 0 || h.at.popped == 0:
				continue
			}
			t.st.popped[seq] = h.at.popped
			if t.work != nil {
				t.st.stored[seq] = h.at.stored
			} else if t.event(seq) {
				t.latencies(f, seq, max(h.at.popped, h.at.stored))
			}
		}
	}
	f.ObserveN(live.BatchSize, 1, ones)
}

func (t *telemetry) readWork(f *live.Figures, items []work) {
	if len(items) > 0 && t.st.paced && t.score != nil {
		f.Observe(live.Staleness, int64(t.released)-int64(t.newest))
	}
	for i := range items {
		item := &items[i]
		kind := live.Deleted
		if item.obj != nil {
			kind = live.Modified
		}
		seq := sequence(item.obj)
		if seq == 0 || seq > uint64(t.st.initial) {
			f.Count(live.Worked, kind, 1)
		}
		if t.st.paced && seq%oneIn == 0 && t.event(seq) && item.at != 0 {
			t.latencies(f, seq, item.at)
		}
	}
}

func (t *telemetry) readNotice(f *live.Figures, u merge.PodUpdate) {
	kind := live.Modified
	switch u.Op {
	case merge.ADD:
		kind = live.Added
	case merge.REMOVE:
		kind = live.Deleted
	}
	n := 0
	for _, pod := range u.Pods {
		// The other operations keep the resourceVersion of the ADD, as kubelet does.
		if u.Op != merge.ADD || sequence(pod) > uint64(t.st.initial) {
			n++
		}
	}
	f.Count(live.Popped, kind, n)
	f.Count(live.Handled, kind, n)
	f.Observe(live.BatchSize, int64(len(u.Pods)))
}

// latencies adds the latencies of an event of a paced cell that was handled during the
// play. Later calls for the event do nothing.
func (t *telemetry) latencies(f *live.Figures, seq uint64, handled int64) {
	st := t.st
	released, enqueued := atomic.LoadInt64(&st.released[seq]), atomic.LoadInt64(&st.enqueued[seq])
	if released == 0 || t.isExported(seq) {
		return
	}
	t.exported[seq/oneIn/64] |= 1 << (seq / oneIn % 64)
	popped, stored := st.popped[seq], atomic.LoadInt64(&st.stored[seq])
	if enqueued == 0 {
		// A consumer popped it before the producer's call returned.
		enqueued = max(released, popped)
	}
	wire, decoded := st.decoding.at(seq)
	intended, _ := st.intended(seq)
	for _, l := range []struct {
		of       live.Histogram
		from, to int64
	}{
		{live.ReleasedWire, released, wire}, {live.WireDecoded, wire, decoded}, {live.DecodedEnqueued, decoded, enqueued},
		{live.ReleasedEnqueued, released, enqueued}, {live.EnqueuedPopped, enqueued, popped},
		{live.PoppedStored, popped, stored}, {live.StoredHandled, stored, handled},
		{live.IntendedHandled, intended, handled}, {live.ReleasedHandled, released, handled},
	} {
		if l.from != 0 && l.to != 0 {
			f.ObserveEvent(l.of, l.to-l.from, seq)
		}
	}
}

func (t *telemetry) isExported(seq uint64) bool {
	return seq%oneIn == 0 && t.exported[seq/oneIn/64]&(1<<(seq/oneIn%64)) != 0
}

// arrived sets the events of a live stream, known only after the round.
func (t *telemetry) arrived(s *score) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.update(false)
	t.score, t.released, t.enqueued = s, uint64(s.Initial), uint64(len(s.Events))
	t.sampling = t.set.Begin(len(s.Events) - s.Initial)
}

// rest ends updates during a play that succeeded, with a last one. The checker writes the stamps from then on.
func (t *telemetry) rest() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over {
		t.update(false)
		t.over = true
		t.set.Update(func(f *live.Figures) { f.QueueDepth = t.queued })
	}
}

// stop ends updates during a play. The length of a queue that failed may block.
func (t *telemetry) stop() {
	if t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.over = true
	}
}

// finish adds the rest, after the play, when all stamps are complete.
func (t *telemetry) finish(o outcome) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.update(true)
	t.set.Update(func(f *live.Figures) { t.remaining(f, o.intervals) })
	t.exportTraces(o)
}

// remaining adds the counts and latencies that were not exported during the play.
func (t *telemetry) remaining(f *live.Figures, intervals []interval) {
	st := t.st
	for seq := uint64(st.initial + 1); seq < uint64(len(st.handled)); seq++ {
		if seq > t.released && (st.released[seq] != 0 || !st.every) {
			f.Count(live.Released, t.kind(seq), 1)
			if st.every {
				t.lag(f, seq)
			}
		}
		if seq > t.enqueued && (st.enqueued[seq] != 0 || !st.every) {
			f.Count(live.Enqueued, t.kind(seq), 1)
		}
		if st.paced && st.released[seq] == 0 {
			f.Missed++
		}
	}
	st.eachLatency(intervals, func(b cell.Boundary, seq uint64, d time.Duration) {
		if h, ok := boundaries[b]; ok && !t.isExported(seq) {
			f.ObserveEvent(h, int64(d), seq)
		}
	})
}

func (t *telemetry) source(src source.Source) {
	if t == nil {
		return
	}
	api, remote := src.(*source.APIServer)
	var counters source.Counters
	if remote {
		t.refresh = func() { counters, _ = api.Refresh() } // A lost process fails the play.
	}
	relists, unexplained, faults := 0, 0, map[fault.Name]int{}
	t.also = append(t.also, func(f *live.Figures) {
		n := int(max(counters.Snapshots-1, 0))
		if !remote {
			n = src.Relists()
		}
		f.Relists += uint64(n - relists)
		relists = n
		if counters.Faults == nil {
			if more := n - t.expiries - unexplained; more > 0 {
				unexplained += more
				f.WatchErrors[metric.OtherFault] += uint64(more)
			}
			return
		}
		for name, n := range counters.Faults {
			more := uint64(n - faults[name])
			faults[name] = n
			f.Faults[string(name)] += more
			if endsWatches(name) {
				f.WatchErrors[string(name)] += more
			}
		}
	})
}

func endsWatches(name fault.Name) bool {
	return name != fault.Drip && name != fault.Stall && name != fault.DuplicateBookmark
}

func (t *telemetry) expired() {
	if t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.expiries++
		t.set.Update(func(f *live.Figures) { f.WatchErrors[string(fault.Relist)]++ })
	}
}

// upstream returns client-go's metrics and the variant's name in them; nil for none.
// Unpaced cells have none, as client-go updates these metrics while events are handled.
func (t *telemetry) upstream() (*live.Upstream, string) {
	if t == nil || !t.st.paced || t.score == nil || t.set.Upstream() == nil {
		return nil, ""
	}
	return t.set.Upstream(), t.set.Labels().UpstreamName()
}

func (t *telemetry) informer() {
	all, name := t.upstream()
	if all == nil {
		return
	}
	m := all.Informer(name, t.score.Resource)
	next := 0
	t.also = append(t.also, func(*live.Figures) {
		m.Queued.Set(float64(t.queued))
		c := t.logs[0]
		for ; next < c.next; next++ {
			if next < len(c.readings) && c.readings[next].stored != 0 {
				m.Processing.Observe(time.Duration(c.readings[next].stored - c.readings[next].popped).Seconds())
			}
		}
		m.Version.Set(float64(t.newest))
	})
}

// exportTraces exports the sampled events, and the events that they were coalesced into.
func (t *telemetry) exportTraces(o outcome) {
	if t.sampling == nil {
		return
	}
	done := map[uint64]bool{}
	for seq := uint64(t.st.initial + 1); seq < uint64(len(t.st.released)); seq++ {
		if !t.sampling.Sampled(seq) || done[seq] {
			continue
		}
		into := t.into(seq, o.lookedUp)
		t.sampling.Export(t.trace(seq, o.popped, into))
		done[seq] = true
		if into != 0 && !done[into] && !t.sampling.Sampled(into) {
			t.sampling.Export(t.trace(into, o.popped, 0))
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

// trace returns the stamps of an event. A consumer may pop an event before the producer's
// Add returns; later stages are moved so that times never decrease.
func (t *telemetry) trace(seq uint64, popped string, into uint64) live.EventTrace {
	e := &t.score.Events[seq-1]
	out := live.EventTrace{Seq: seq, Type: string(e.Type), Key: e.Key, Into: into}
	at := func(stamp int64) time.Time { return t.st.epoch.Add(time.Duration(stamp)) }
	if t.st.paced {
		intended, _ := t.st.intended(seq)
		out.Intended = at(intended)
	}
	last := int64(math.MinInt64)
	wire, decoded := t.st.decoding.at(seq)
	for _, s := range []struct {
		stage string
		stamp int64
	}{
		{metric.Released, t.st.released[seq]}, {metric.Wire, wire}, {metric.Decoded, decoded}, {metric.Enqueued, t.st.enqueued[seq]}, {popped, t.st.popped[seq]},
		{metric.Stored, t.st.stored[seq]}, {metric.Handled, t.st.handled[seq]},
	} {
		if s.stamp != 0 {
			last = max(last, s.stamp)
			out.Stages = append(out.Stages, live.StageTime{Stage: s.stage, At: at(last)})
		}
	}
	return out
}
