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
	"watchlab/impls/merge"
	"watchlab/loadgen/apiserver/fault"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/source"
	"watchlab/loadgen/storm"
	"watchlab/loadgen/telemetry/metric"
	telemetry "watchlab/loadgen/telemetry/probe"
)

// taps is what a play tells telemetry while it goes on; nil where nobody looks,
// and then nothing is told and nothing paid. What is told is taken from stamps
// that are there anyway, so that the clock isn't read more often.
//
// Latencies are told when an event is handled, of events that are stamped. What was
// coalesced away, and all that a merge tells, can't be matched with events before
// the end, so that those latencies are told then ([taps.rest]): in the end they are
// the recorder's.
type taps struct {
	set     *telemetry.Set
	st      *stamps
	events  []storm.Event
	initial uint64
	// kinds holds each event's type by its number, side by side, as events
	// themselves lie far apart.
	kinds []telemetry.Type
	// intended holds when each event is to be released, by its number, from the
	// beginning of the schedule; nil in unpaced cells.
	intended []int64
	budget   int64
	// stored holds when an event was stored, by its number, in paced cells of the
	// informer pipeline; it is written and read at the same time.
	stored []atomic.Int64
	// told has the events whose latency until they were handled has been told, by
	// their number. An element is written by one goroutine, and read when all have
	// ended.
	told []bool
	// newest is the number of the newest event that was released, in paced cells,
	// and newestStored that of the newest that the store has.
	newest       atomic.Uint64
	newestStored *atomic.Uint64
	// expiries are the watches that relists of the storm ended.
	expiries atomic.Int64
}

// newTaps returns the taps of a play whose probes are in the context; nil where
// there are none. It is called before anything is played.
func newTaps(ctx context.Context, st *stamps, s *score) *taps {
	set := telemetry.From(ctx)
	if set == nil {
		return nil
	}
	set.Begin(len(s.Events) - s.Initial)
	t := &taps{
		set: set, st: st, events: s.Events, initial: uint64(s.Initial), budget: int64(st.budget),
		kinds: make([]telemetry.Type, len(s.Events)+1), told: make([]bool, len(s.Events)+1),
	}
	if t.budget == 0 {
		t.budget = int64(cell.LateAfter)
	}
	for i := range s.Events {
		t.kinds[i+1] = telemetry.WatchType(s.Events[i].Type)
	}
	st.watched = true
	if st.paced {
		t.intended = make([]int64, len(s.Events)+1)
		p := pace.On(s.schedule)
		for i := range len(s.Events) - s.Initial {
			t.intended[i+1+s.Initial] = int64(p.Intended(i))
		}
		_ = p.Close()
	}
	return t
}

// depth has a queue looked at until the play is torn down. It may take the queue's
// lock, four times a second.
func (t *taps) depth(length func() int, also ...func()) {
	if t == nil {
		return
	}
	size := meanSize(t.events)
	t.set.Depth(func() int {
		for _, f := range also {
			f()
		}
		return length()
	}, size)
}

// sizeSamples is how many objects a storm's mean size is estimated from.
const sizeSamples = 64

// meanSize estimates what an object of the storm takes as JSON.
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

// sourceTold returns what tells of the source's relists and faults since it was
// last called. It may be called from several goroutines.
func (t *taps) sourceTold(src source.Source) func() {
	if t == nil || src == nil {
		return func() {}
	}
	var mu sync.Mutex
	relists, unexplained, faults := 0, 0, map[string]int{}
	return func() {
		mu.Lock()
		defer mu.Unlock()
		n := src.Relists()
		t.set.Relist(n - relists)
		relists = n
		api, ok := src.(*source.APIServer)
		if !ok || api.Injector() == nil {
			if more := n - int(t.expiries.Load()) - unexplained; more > 0 {
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
	}
}

// mostWaiting is how many events may wait for a reading of the clock; more than
// any hand-over has. Of those beyond, nothing is told but that they came.
const mostWaiting = 4096

// endsWatches reports whether a fault ends the watches that it strikes, or refuses
// requests for one.
func endsWatches(name fault.Name) bool {
	switch name {
	case fault.Drip, fault.Stall, fault.DuplicateBookmark:
		return false
	}
	return true
}

// expired tells that a relist of the storm has ended the watch.
func (t *taps) expired() {
	if t != nil {
		t.expiries.Add(1)
		t.set.WatchError(string(fault.Relist), 1)
	}
}

// tap is one goroutine's. The nil tap does nothing.
type tap struct {
	*taps
	probe *telemetry.Probe
	// waiting are events that are to get the next reading of the clock.
	waiting []uint64
}

// tap returns one for the goroutine that is going to use it. It is to be closed.
func (t *taps) tap() *tap {
	if t == nil {
		return nil
	}
	return &tap{taps: t, probe: t.set.Probe(), waiting: make([]uint64, 0, mostWaiting)}
}

func (t *tap) close() {
	if t != nil {
		t.probe.Close()
	}
}

// event reports whether a number is that of one of the storm's events after the
// initial list, of which latencies are told.
func (t *taps) event(seq uint64) bool { return seq > t.initial && seq < uint64(len(t.kinds)) }

// released tells that an event was released, right after its stamp.
func (t *tap) released(seq uint64) {
	if t == nil || !t.event(seq) {
		return
	}
	t.probe.Count(telemetry.Released, t.kinds[seq], 1)
	at := t.st.released[seq]
	if t.intended != nil && at != 0 {
		lag := at - t.st.start - t.intended[seq]
		t.probe.Release(time.Duration(lag), lag > t.budget)
		t.newest.Store(seq)
	}
	t.probe.Commit(at)
}

// enqueued tells that the queue has taken an event, right after its stamp.
func (t *tap) enqueued(seq uint64) {
	if t == nil || !t.event(seq) {
		return
	}
	t.probe.Count(telemetry.Enqueued, t.kinds[seq], 1)
	at := t.st.enqueued[seq]
	if at != 0 && t.st.released[seq] != 0 {
		t.probe.Observe(telemetry.ReleasedEnqueued, time.Duration(at-t.st.released[seq]))
	}
	t.probe.Commit(at)
}

// replaced tells that the queue has taken a list.
func (t *tap) replaced(objects int) {
	if t == nil {
		return
	}
	t.probe.Count(telemetry.Enqueued, telemetry.Replaced, objects)
	t.probe.Flush()
}

// handedOver tells what a queue handed over, and that it has gone through stages.
// Of events that are stamped, it keeps the numbers in waiting, for the next reading
// of the clock.
func (t *tap) handedOver(deltas []cache.Delta, stages []telemetry.Stage) {
	n := 0
	for i := range deltas {
		d := &deltas[i]
		kind, objects := telemetry.DeltaType(d.Type), 1
		if kind == telemetry.Replaced {
			objects = objectsIn(deltas[i : i+1])
		}
		n += objects
		for _, s := range stages {
			t.probe.Count(s, kind, objects)
		}
		t.wait(sequence(d.Object))
	}
	t.probe.Deltas(n)
	t.probe.Value(telemetry.BatchSize, int64(len(deltas)))
}

// wait keeps the number of an event that is stamped.
func (t *tap) wait(seq uint64) {
	if t.event(seq) && seq&t.st.mask == 0 && len(t.waiting) < cap(t.waiting) {
		t.waiting = append(t.waiting, seq)
	}
}

// inQueue tells how long an event was in the queue.
func (t *tap) inQueue(seq uint64, popped int64) {
	// An event may be taken before the call that put it in has returned.
	in := atomic.LoadInt64(&t.st.enqueued[seq])
	if in == 0 {
		in = popped
	}
	t.probe.Observe(telemetry.EnqueuedPopped, time.Duration(popped-in))
}

// toHandled tells how long it took until an event was handled.
func (t *tap) toHandled(seq uint64, at int64) {
	t.told[seq] = true
	if t.intended != nil {
		t.probe.ObserveEvent(telemetry.IntendedHandled, time.Duration(at-t.st.start-t.intended[seq]), seq)
	}
	t.probe.ObserveEvent(telemetry.ReleasedHandled, time.Duration(at-t.st.released[seq]), seq)
}

// The stages that one goroutine takes an event through.
var (
	poppedAndHandled = []telemetry.Stage{telemetry.Popped, telemetry.Handled}
	poppedToHandled  = []telemetry.Stage{telemetry.Popped, telemetry.Stored, telemetry.Handled}
)

// consumed tells what the consumer of a queue was handed and has handled; popped
// is 0 where the clock wasn't read, and handled where handling takes no time.
func (t *tap) consumed(deltas []cache.Delta, popped, handled int64) {
	if t == nil {
		return
	}
	t.handedOver(deltas, poppedAndHandled)
	if popped != 0 {
		for _, seq := range t.waiting {
			if t.st.released[seq] != 0 {
				t.inQueue(seq, popped)
				t.toHandled(seq, max(popped, handled))
			}
		}
		t.waiting = t.waiting[:0]
	}
	t.probe.Commit(popped)
}

// processed tells what an informer's queue handed over, and that it was stored and
// the handlers were told; popped and stored are 0 where the clock wasn't read.
func (t *tap) processed(deltas []cache.Delta, popped, stored int64) {
	if t == nil {
		return
	}
	t.handedOver(deltas, poppedToHandled)
	if popped != 0 {
		for _, seq := range t.waiting {
			if t.st.released[seq] == 0 {
				continue
			}
			t.inQueue(seq, popped)
			if t.stored != nil && stored != 0 {
				t.probe.Observe(telemetry.PoppedStored, time.Duration(stored-popped))
				t.stored[seq].Store(stored)
			}
		}
		t.waiting = t.waiting[:0]
	}
	t.probe.Commit(popped)
}

// informs readies the taps for an informer, whose store is behind the source.
func (t *taps) informs(newestStored *atomic.Uint64) {
	if t != nil && t.intended != nil {
		t.stored, t.newestStored = make([]atomic.Int64, len(t.kinds)), newestStored
	}
}

// worked tells that a worker has looked an object up: nil for none. at is 0 where
// the clock wasn't read.
func (t *tap) worked(obj any, at int64) {
	if t == nil {
		return
	}
	kind := telemetry.Deleted
	if obj != nil {
		kind = telemetry.Modified
	}
	t.probe.Count(telemetry.Worked, kind, 1)
	if t.newestStored != nil && at >= t.st.start && t.st.start != 0 {
		t.probe.Value(telemetry.Staleness, int64(t.newest.Load())-int64(t.newestStored.Load()))
	}
	if obj != nil {
		t.wait(sequence(obj))
	}
	if at != 0 {
		for _, seq := range t.waiting {
			// A version may be looked up again.
			if t.st.released[seq] == 0 || t.told[seq] {
				continue
			}
			if t.stored != nil {
				if in := t.stored[seq].Load(); in != 0 {
					t.probe.Observe(telemetry.StoredHandled, time.Duration(at-in))
				}
			}
			t.toHandled(seq, at)
		}
		t.waiting = t.waiting[:0]
	}
	t.probe.Commit(at)
}

// notified tells of a merger's notification.
func (t *tap) notified(u merge.PodUpdate, at int64) {
	if t == nil {
		return
	}
	kind := telemetry.Modified
	switch u.Op {
	case merge.ADD:
		kind = telemetry.Added
	case merge.REMOVE:
		kind = telemetry.Deleted
	}
	t.probe.Count(telemetry.Popped, kind, len(u.Pods))
	t.probe.Count(telemetry.Handled, kind, len(u.Pods))
	t.probe.Deltas(len(u.Pods))
	t.probe.Value(telemetry.BatchSize, int64(len(u.Pods)))
	t.probe.Commit(at)
}

// rest tells, when the play is over and all stamps are there, of what could not be
// told before: the latencies of events that were coalesced away, or merged, and how
// many were not released.
func (t *taps) rest(merged bool) {
	tap := t.tap()
	if tap == nil {
		return
	}
	defer tap.close()
	st, missed := t.st, 0
	for seq := t.initial + 1; seq < uint64(len(st.handled)); seq++ {
		if st.released[seq] == 0 {
			missed++
			continue
		}
		if st.handled[seq] == 0 {
			continue
		}
		if merged && st.popped[seq] != 0 {
			if st.enqueued[seq] != 0 {
				tap.probe.Observe(telemetry.EnqueuedMerged, time.Duration(st.popped[seq]-st.enqueued[seq]))
			}
			tap.probe.Observe(telemetry.MergedHandled, time.Duration(st.handled[seq]-st.popped[seq]))
		}
		if !t.told[seq] {
			tap.toHandled(seq, st.handled[seq])
		}
	}
	if t.intended != nil {
		tap.probe.Missed(missed)
	}
}

// journeys tells of the ways of the events that are traced, when all stamps are
// there. out names the stage that popped stands for. Where looked is true, an event
// whose newer version was handled at the same moment was coalesced into that.
func (t *taps) journeys(out string, looked bool) {
	if t == nil {
		return
	}
	sampling := t.set.Sampling()
	if sampling == nil {
		return
	}
	told := map[uint64]bool{}
	for seq := t.initial + 1; seq < uint64(len(t.st.released)); seq++ {
		if !sampling.Sampled(seq) || told[seq] {
			continue
		}
		into := t.into(seq, looked)
		t.journey(sampling, seq, out, into)
		told[seq] = true
		if into != 0 && !told[into] && !sampling.Sampled(into) {
			t.journey(sampling, into, out, 0)
			told[into] = true
		}
	}
}

// into returns the newer version that was handled in an event's place; 0 where it
// was handled itself, or never.
func (t *taps) into(seq uint64, looked bool) uint64 {
	handled := t.st.handled[seq]
	if handled == 0 || !looked && t.st.popped[seq] != 0 {
		return 0
	}
	key, found := t.events[seq-1].KeyIndex, uint64(0)
	for later := seq + 1; later < uint64(len(t.st.handled)); later++ {
		if t.events[later-1].KeyIndex != key {
			continue
		}
		if t.st.handled[later] != handled {
			break
		}
		found = later
		if !looked && t.st.popped[later] != 0 {
			break
		}
	}
	return found
}

func (t *taps) journey(sampling *telemetry.Sampling, seq uint64, out string, into uint64) {
	e := &t.events[seq-1]
	j := telemetry.Journey{Seq: seq, Type: string(e.Type), Key: e.Key, Into: into}
	at := func(stamp int64) time.Time { return t.st.epoch.Add(time.Duration(stamp)) }
	if t.intended != nil {
		j.Intended = at(t.st.start + t.intended[seq])
	}
	last := int64(math.MinInt64)
	for _, s := range []struct {
		name  string
		stamp int64
	}{
		{"released", t.st.released[seq]}, {"enqueued", t.st.enqueued[seq]}, {out, t.st.popped[seq]},
		{"stored", t.st.stored[seq]}, {"handled", t.st.handled[seq]},
	} {
		// An event may be taken before the call that put it in has returned: its
		// stages are told as they follow each other.
		if s.stamp != 0 {
			last = max(last, s.stamp)
			j.Stages = append(j.Stages, telemetry.Arrival{Stage: s.name, At: at(last)})
		}
	}
	sampling.Journey(j)
}
