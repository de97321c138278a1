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
	telemetry "watchlab/bench/telemetry/probe"
	"watchlab/impls/merge"
	"watchlab/loadgen/fault"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/source"
	"watchlab/loadgen/storm"
)

// taps is what a play tells telemetry while it goes on; nil where nobody looks,
// and then nothing is told and nothing paid. What is told is taken from stamps
// that are there anyway, so that the clock isn't read more often.
//
// Events are counted as they come. Latencies are told as they come too, in paced
// cells, of one hand-over in eight, as a dozen figures an event would be felt there.
// All that has not been told by then is told when the play is over ([taps.rest]):
// what was left out, what was coalesced away, what a merge told, as that can't be
// matched with events before, and all of unpaced cells. So in the end telemetry has
// been told of as many as the recorder has; of a version that was looked up several
// times it may have been told of a later time than the first.
type taps struct {
	set     *telemetry.Set
	st      *stamps
	events  []storm.Event
	initial uint64

	kinds []telemetry.Type

	intended []int64
	budget   int64

	told map[telemetry.Histogram][]bool

	stored []atomic.Int64

	newest       atomic.Uint64
	newestStored *atomic.Uint64

	expiries atomic.Int64
}

// oneIn is of how many turns one is told of at once; a power of two.
const oneIn = 8

// boundaries are those that telemetry is told of.
var boundaries = map[cell.Boundary]telemetry.Histogram{
	ReleasedEnqueued: telemetry.ReleasedEnqueued,
	EnqueuedPopped:   telemetry.EnqueuedPopped,
	PoppedStored:     telemetry.PoppedStored,
	StoredHandled:    telemetry.StoredHandled,
	EnqueuedMerged:   telemetry.EnqueuedMerged,
	MergedHandled:    telemetry.MergedHandled,
}

// newTaps returns the taps of a play whose probes are in the context; nil where
// there are none. It is called before anything is played.
func newTaps(ctx context.Context, st *stamps, s *score) *taps {
	set := telemetry.From(ctx)
	if set == nil {
		return nil
	}
	after := len(s.Events) - s.Initial
	set.Begin(after)
	t := &taps{
		set: set, st: st, events: s.Events, initial: uint64(s.Initial), budget: int64(st.budget),
		kinds: make([]telemetry.Type, len(s.Events)+1),
	}
	if t.budget == 0 {
		t.budget = int64(cell.LateAfter)
	}
	for i := range s.Events {
		t.kinds[i+1] = telemetry.WatchType(s.Events[i].Type)
	}
	if !st.paced {
		return t
	}
	st.watched = true
	t.intended = make([]int64, len(s.Events)+1)
	p := pace.On(s.schedule)
	for i := range after {
		t.intended[i+1+s.Initial] = int64(p.Intended(i))
	}
	_ = p.Close()
	t.told = map[telemetry.Histogram][]bool{}
	for _, h := range []telemetry.Histogram{
		telemetry.GeneratorLag, telemetry.ReleasedEnqueued, telemetry.EnqueuedPopped,
		telemetry.PoppedStored, telemetry.StoredHandled, telemetry.ReleasedHandled,
	} {
		t.told[h] = make([]bool, len(s.Events)+1)
	}
	return t
}

// newOpenTaps returns the taps of a play of which it is known afterwards only which
// events there were; nil where nobody looks. Until then they are only counted.
func newOpenTaps(ctx context.Context, st *stamps) *taps {
	set := telemetry.From(ctx)
	if set == nil {
		return nil
	}
	set.Begin(0)
	return &taps{set: set, st: st}
}

// heard tells which events there were: all of them were released when they came.
func (t *taps) heard(s *score) {
	if t == nil {
		return
	}
	t.events, t.initial = s.Events, uint64(s.Initial)
	t.set.Begin(len(s.Events) - s.Initial)
	t.intended = make([]int64, len(s.Events)+1)
	p := t.set.Probe()
	defer p.Close()
	for i := s.Initial; i < len(s.Events); i++ {
		t.intended[i+1] = int64(s.Events[i].At)
		p.Count(telemetry.Released, telemetry.WatchType(s.Events[i].Type), 1)
	}
}

// depth has a queue looked at until the play is torn down. It may take the queue's
// lock, four times a second. size is that of an object as JSON, on average.
func (t *taps) depth(length func() int, size float64, also ...func()) {
	if t == nil {
		return
	}
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
func (t *taps) meanSize() float64 {
	if t == nil {
		return 0
	}
	return meanSize(t.events)
}

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

	turn uint64

	lag, in, out, storing, storedFor, end []bool
}

// tap returns one for the goroutine that is going to use it. It is to be closed.
func (t *taps) tap() *tap {
	if t == nil {
		return nil
	}
	return &tap{
		taps: t, probe: t.set.Probe(),
		lag: t.told[telemetry.GeneratorLag], in: t.told[telemetry.ReleasedEnqueued],
		out: t.told[telemetry.EnqueuedPopped], storing: t.told[telemetry.PoppedStored],
		storedFor: t.told[telemetry.StoredHandled], end: t.told[telemetry.ReleasedHandled],
	}
}

func (t *tap) close() {
	if t != nil {
		t.probe.Close()
	}
}

// event reports whether a number is that of one of the storm's events after the
// initial list, of which latencies are told.
func (t *taps) event(seq uint64) bool { return seq > t.initial && seq < uint64(len(t.kinds)) }

// nowToo reports whether what comes next is to be told of at once.
func (t *tap) nowToo() bool {
	t.turn++
	return t.told != nil && t.turn%oneIn == 0
}

// released tells that an event was released, right after its stamp.
func (t *tap) released(seq uint64) {
	if t == nil || !t.event(seq) {
		return
	}
	t.probe.Count(telemetry.Released, t.kinds[seq], 1)
	at := t.st.released[seq]
	if t.intended != nil {
		lag := at - t.st.start - t.intended[seq]
		if lag > t.budget {
			t.probe.Late()
		}
		if seq%oneIn == 0 {
			t.lag[seq] = true
			t.probe.Observe(telemetry.GeneratorLag, time.Duration(lag))
		}
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
	if t.intended != nil && seq%oneIn == 0 && t.st.released[seq] != 0 {
		t.in[seq] = true
		t.probe.Observe(telemetry.ReleasedEnqueued, time.Duration(at-t.st.released[seq]))
	}
	t.probe.Commit(at)
}

// entered tells that the queue of an informer has taken an event, whose type is
// known to be the one given if from nowhere else.
func (t *tap) entered(kind telemetry.Type, seq uint64) {
	switch {
	case t == nil:
	case t.kinds != nil:
		t.enqueued(seq)
	default:
		t.probe.Count(telemetry.Enqueued, kind, 1)
		if seq < uint64(len(t.st.enqueued)) {
			t.probe.Commit(t.st.enqueued[seq])
		}
	}
}

// replaced tells that the queue has taken a list.
func (t *tap) replaced(objects int) {
	if t == nil {
		return
	}
	t.probe.Count(telemetry.Enqueued, telemetry.Replaced, objects)
	t.probe.Flush()
}

// handedOver counts what a queue handed over, and the stages that it has gone
// through.
func (t *tap) handedOver(deltas []cache.Delta, way telemetry.Way) {
	t.probe.HandOver(len(deltas))
	if len(deltas) == 1 {
		t.probe.Through(way, telemetry.DeltaType(deltas[0].Type), objectsIn(deltas))
		return
	}
	for i := range deltas {
		t.probe.Through(way, telemetry.DeltaType(deltas[i].Type), 1)
	}
}

// inQueue tells how long an event was in the queue.
func (t *tap) inQueue(seq uint64, popped int64) {
	// An event may be taken before the call that put it in has returned.
	in := atomic.LoadInt64(&t.st.enqueued[seq])
	if in == 0 {
		in = popped
	}
	t.out[seq] = true
	t.probe.Observe(telemetry.EnqueuedPopped, time.Duration(popped-in))
}

// toHandled tells how long it took until an event was handled.
func (t *tap) toHandled(seq uint64, at int64) {
	if t.intended != nil {
		t.probe.ObserveEvent(telemetry.IntendedHandled, time.Duration(at-t.st.start-t.intended[seq]), seq)
	}
	t.probe.ObserveEvent(telemetry.ReleasedHandled, time.Duration(at-t.st.released[seq]), seq)
}

// consumed tells what the consumer of a queue was handed and has handled; popped
// is 0 where the clock wasn't read, and handled where handling takes no time.
func (t *tap) consumed(deltas []cache.Delta, popped, handled int64) {
	if t == nil {
		return
	}
	t.handedOver(deltas, telemetry.PoppedAndHandled)
	if t.nowToo() {
		for i := range deltas {
			if seq := sequence(deltas[i].Object); t.event(seq) && !t.end[seq] {
				t.end[seq] = true
				t.inQueue(seq, popped)
				t.toHandled(seq, max(popped, handled))
			}
		}
	}
	t.probe.Commit(popped)
}

// processed tells what an informer's queue handed over, and that it was stored and
// the handlers were told; popped and stored are 0 where the clock wasn't read.
func (t *tap) processed(deltas []cache.Delta, popped, stored int64) {
	if t == nil {
		return
	}
	t.handedOver(deltas, telemetry.PoppedToHandled)
	if t.nowToo() && stored != 0 {
		for i := range deltas {
			if seq := sequence(deltas[i].Object); t.event(seq) && t.st.released[seq] != 0 && !t.out[seq] {
				t.inQueue(seq, popped)
				t.storing[seq] = true
				t.probe.Observe(telemetry.PoppedStored, time.Duration(stored-popped))
				t.stored[seq].Store(stored)
			}
		}
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
	if t.nowToo() && at >= t.st.start && t.st.start != 0 {
		t.probe.Value(telemetry.Staleness, int64(t.newest.Load())-int64(t.newestStored.Load()))
		// A version may be looked up again.
		if seq := sequence(obj); obj != nil && t.event(seq) && t.st.released[seq] != 0 && !t.end[seq] {
			if in := t.stored[seq].Load(); in != 0 {
				t.storedFor[seq] = true
				t.probe.Observe(telemetry.StoredHandled, time.Duration(at-in))
			}
			t.end[seq] = true
			t.toHandled(seq, at)
		}
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
	t.probe.Through(telemetry.PoppedAndHandled, kind, len(u.Pods))
	t.probe.HandOver(len(u.Pods))
	t.probe.Commit(at)
}

// rest tells, when the play is over and all stamps are there, of what has not been
// told before: the latencies of the boundaries given, as the recorder was told, and
// how many events were not released.
func (t *taps) rest(stretches ...stretch) {
	tap := t.tap()
	if tap == nil {
		return
	}
	defer tap.close()
	untold := func(h telemetry.Histogram, seq uint64) bool { return t.told[h] == nil || !t.told[h][seq] }
	for _, b := range stretches {
		h, ok := boundaries[b.name]
		if !ok {
			continue
		}
		for seq := t.initial + 1; seq < uint64(len(b.to)); seq++ {
			if b.from[seq] != 0 && b.to[seq] != 0 && untold(h, seq) {
				tap.probe.Observe(h, time.Duration(b.to[seq]-b.from[seq]))
			}
		}
	}
	missed := 0
	for seq := t.initial + 1; seq < uint64(len(t.st.handled)); seq++ {
		if t.st.released[seq] == 0 {
			missed++
			continue
		}
		if t.intended != nil && untold(telemetry.GeneratorLag, seq) {
			tap.probe.Observe(telemetry.GeneratorLag, time.Duration(t.st.released[seq]-t.st.start-t.intended[seq]))
		}
		if t.st.handled[seq] != 0 && untold(telemetry.ReleasedHandled, seq) {
			tap.toHandled(seq, t.st.handled[seq])
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
