package observe

import (
	"cmp"
	"context"
	"math"
	"sync"
	"time"

	"watchlab/bench/cell"
	"watchlab/bench/telemetry"
	"watchlab/impls/informer"
	"watchlab/impls/merge"
	"watchlab/loadgen/fault"
	"watchlab/loadgen/source"
)

// Telemetry reads the stamps and the logs of a play and updates the figures of a
// [telemetry.Set]: a few times a second during the play, and the rest at its end. The stages do
// not know it. A nil Telemetry is a no-op.
//
// No count includes the initial list, which is handled before the clock starts, as in the recorder's
// figures: an object of it does not count when a later list has it again either.
//
// Counters are updated during the play. In paced cells so are the latencies of one event
// in [oneIn]. All other latencies are added at the end: those of mergers, of unpaced cells
// and of the remaining events. Then the set has every latency that the recorder has.
type Telemetry struct {
	set       *telemetry.Set
	sampling  *telemetry.Sampling
	st        *Stamps
	generator generator
	// mu guards the fields below. The session's goroutine updates the set during the play,
	// the workload's at its end.
	mu                 sync.Mutex
	over               bool // no more updates during the play
	stages             Stages
	released, enqueued uint64 // last counted events
	listed             int64  // counted list objects
	newest             uint64 // newest event in the logs that were read
	queued             int    // last length of the queue
	backlog            *int   // last number of notifications that wait for handlers; nil if it is not known
	singles            int    // hand-overs of one delta, which are observed at the end
	tally              telemetry.Tally
	log                *cursor  // nil without a log
	exported           []uint64 // a bit for each event in [oneIn] whose latencies are in the set
	relists            int      // counted lists after the first
	unexplained        int      // those of them that neither the storm nor a fault caused
	expiries           int      // watches that relists of the storm ended
	faults             map[fault.Name]int
}

// Stages are the parts of a pipeline that telemetry reads. All but Length may be nil.
type Stages struct {
	Length   func() int // of the queue or of the merger's output
	Log      *Log
	LookUps  *LookUps
	Notices  *Notices
	Source   source.Source
	Backlogs informer.BacklogReporter
}

// oneIn: the latencies of one event in 8 of a paced cell are exported during the play. It
// is a power of two.
const oneIn = 8

// exportedAtOnce are the boundaries whose latencies are exported during the play.
var exportedAtOnce = []cell.Boundary{
	ReleasedWire, WireDecoded, DecodedEnqueued, ReleasedEnqueued, EnqueuedPopped, PoppedStored, StoredHandled, ReleasedHandled,
}

// NewTelemetry returns nil where the context has no set.
func NewTelemetry(ctx context.Context, st *Stamps) *Telemetry {
	set := telemetry.From(ctx)
	if set == nil {
		return nil
	}
	st.concurrentReaders = true
	t := &Telemetry{
		set: set, st: st, generator: newGenerator(st), faults: map[fault.Name]int{},
		exported: make([]uint64, len(st.at[handled])/oneIn/64+1), released: uint64(st.initial), enqueued: uint64(st.initial),
	}
	t.sampling = set.Begin(len(st.Storm.Events) - st.initial)
	return t
}

// Watch begins the updates. From then on the session's goroutine calls Length, and
// updates the set with each call.
func (t *Telemetry) Watch(of Stages) {
	if t == nil {
		return
	}
	t.stages = of
	if of.Log != nil {
		t.log = newCursor(of.Log)
	}
	t.set.Depth(func() (int, *int) {
		t.mu.Lock()
		defer t.mu.Unlock()
		if !t.over {
			t.update(false)
		}
		return t.queued, t.backlog
	})
}

// samples reports whether the latencies of an event are exported during the play.
func (t *Telemetry) samples(seq uint64) bool {
	return t.st.Paced && seq%oneIn == 0 && seq > uint64(t.st.initial) && seq <= uint64(len(t.st.Storm.Events))
}

func (t *Telemetry) kind(seq uint64) telemetry.Type {
	return telemetry.TypeOf(t.st.Storm.Events[seq-1].Type)
}

// update updates the set from the new stamps and log entries. end: the play has ended. The
// caller holds mu.
func (t *Telemetry) update(end bool) {
	relists, faults := t.refresh()
	t.queued = t.stages.Length()
	if t.backlog = nil; t.stages.Backlogs != nil && !end {
		t.backlog = new(int)
		for _, b := range t.stages.Backlogs.Backlogs() {
			*t.backlog += b.Waiting
		}
	}
	t.released = t.count(released, t.released)
	if t.log != nil {
		t.readLog(end)
	}
	if l := t.stages.LookUps; l != nil {
		t.readLookUps(l.unread(end))
	}
	if l := t.stages.Notices; l != nil {
		for _, n := range l.unread(end) {
			t.readNotice(n.PodUpdate)
		}
	}
	// After the logs, so that what came out has gone in.
	t.enqueued = t.count(enqueued, t.enqueued)
	n := t.st.listed.Load()
	t.tally[telemetry.Enqueued][telemetry.Replaced] += uint64(n - t.listed)
	t.listed = n
	t.readSource(relists, faults)
	t.set.CountAll(&t.tally)
}

// refresh returns the lists of the source after the first, and its faults; nil for a source without.
func (t *Telemetry) refresh() (relists int, faults map[fault.Name]int) {
	switch src := t.stages.Source.(type) {
	case nil:
		return 0, nil
	case *source.APIServer:
		counters, _ := src.Refresh() // A lost process fails the play.
		return int(max(counters.Snapshots-1, 0)), counters.Faults
	default:
		return src.Relists(), nil
	}
}

// count counts the events of a stage in sequence order, up to the first without a stamp.
// It returns the last counted event.
func (t *Telemetry) count(of stage, from uint64) uint64 {
	if t.st.Sampling == None {
		return from
	}
	step, figure := uint64(t.st.Sampling)+1, telemetry.Enqueued
	if of == released {
		figure = telemetry.Released
	}
	for seq := (from/step + 1) * step; t.st.load(of, seq) != 0; seq += step {
		for ; from < seq; from++ {
			t.tally[figure][t.kind(from+1)]++
		}
		if of == released {
			t.lag(seq)
		}
	}
	return from
}

func (t *Telemetry) lag(seq uint64) {
	if !t.st.Paced {
		return
	}
	lag, _ := t.generator.lag(seq)
	if lag > cmp.Or(t.st.Budget, cell.LateAfter) {
		t.set.Add(telemetry.GeneratorLate, 1)
	}
	t.set.Observe(telemetry.GeneratorLag, int64(lag))
}

// readLog reads the new hand-overs of a delivery log.
func (t *Telemetry) readLog(end bool) {
	for h := range t.log.fold(end) {
		if len(h.deltas) == 1 {
			t.singles++
		} else {
			t.set.Observe(telemetry.BatchSize, int64(len(h.deltas)))
		}
		for d := range h.deliveries() {
			t.readDelivery(d)
		}
	}
}

func (t *Telemetry) readDelivery(d delivery) {
	kind := telemetry.TypeOf(d.Type)
	t.newest = max(t.newest, d.seq)
	if d.seq != 0 && d.seq <= uint64(t.st.initial) {
		return
	}
	t.tally[telemetry.Popped][kind]++
	t.tally[telemetry.Handled][kind]++
	if t.stages.LookUps != nil {
		t.tally[telemetry.Stored][kind]++
	}
	if t.stages.LookUps == nil && !d.listed && t.samples(d.seq) {
		t.latencies(d.seq, t.st.at[handled][d.seq])
	}
}

func (t *Telemetry) readLookUps(items []lookUp) {
	if len(items) > 0 && t.st.Paced {
		t.set.Observe(telemetry.Staleness, int64(t.released)-int64(t.newest))
	}
	for i := range items {
		item := &items[i]
		kind := telemetry.Deleted
		if item.obj != nil {
			kind = telemetry.Modified
		}
		seq := Sequence(item.obj)
		if seq == 0 || seq > uint64(t.st.initial) {
			t.tally[telemetry.Worked][kind]++
		}
		if t.samples(seq) {
			t.latencies(seq, item.at)
		}
	}
}

func (t *Telemetry) readNotice(u merge.PodUpdate) {
	kind := telemetry.Modified
	switch u.Op {
	case merge.ADD:
		kind = telemetry.Added
	case merge.REMOVE:
		kind = telemetry.Deleted
	}
	n := 0
	for _, pod := range u.Pods {
		// The other operations keep the resourceVersion of the ADD, as kubelet does.
		if u.Op != merge.ADD || Sequence(pod) > uint64(t.st.initial) {
			n++
		}
	}
	t.tally[telemetry.Popped][kind] += uint64(n)
	t.tally[telemetry.Handled][kind] += uint64(n)
	t.set.Observe(telemetry.BatchSize, int64(len(u.Pods)))
}

func (t *Telemetry) readSource(relists int, faults map[fault.Name]int) {
	t.set.Add(telemetry.Relists, float64(relists-t.relists))
	t.relists = relists
	// Without faults, the storm's own relists explain lists; see Expired.
	if more := relists - t.expiries - t.unexplained; faults == nil && more > 0 {
		t.unexplained += more
		t.set.Add(telemetry.WatchErrors, float64(more), telemetry.OtherFault)
	}
	for name, n := range faults {
		more := float64(n - t.faults[name])
		t.faults[name] = n
		t.set.Add(telemetry.Faults, more, string(name))
		if name != fault.Drip && name != fault.Stall && name != fault.DuplicateBookmark {
			t.set.Add(telemetry.WatchErrors, more, string(name))
		}
	}
}

// Expired counts a watch that a relist of the storm ended.
func (t *Telemetry) Expired() {
	if t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.expiries++
		t.set.Add(telemetry.WatchErrors, 1, string(fault.Relist))
	}
}

// latencies adds the latencies of an event of a paced cell that was handled during the
// play. Later calls for the event do nothing.
func (t *Telemetry) latencies(seq uint64, handledAt int64) {
	var at [stages]int64
	for of := range at {
		at[of] = t.st.load(stage(of), seq)
	}
	if at[released] == 0 || handledAt == 0 || t.isExported(seq) {
		return
	}
	t.exported[seq/oneIn/64] |= 1 << (seq / oneIn % 64)
	at[handled] = handledAt
	if at[enqueued] == 0 {
		// A consumer popped it before the producer's call returned.
		at[enqueued] = max(at[released], at[popped])
	}
	intended, _ := t.st.intended(seq)
	t.set.ObserveEvent(telemetry.IntendedHandled, handledAt-intended, seq)
	for _, b := range exportedAtOnce {
		if i := intervals[b]; at[i.from] != 0 && at[i.to] != 0 {
			t.set.ObserveEvent(i.figure, at[i.to]-at[i.from], seq)
		}
	}
}

func (t *Telemetry) isExported(seq uint64) bool {
	return seq%oneIn == 0 && t.exported[seq/oneIn/64]&(1<<(seq/oneIn%64)) != 0
}

// Rest ends updates during a play that succeeded, with a last one. The check writes the stamps from then on.
func (t *Telemetry) Rest() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over {
		t.update(false)
		t.over = true
	}
}

// Stop ends updates during a play. The length of a queue that failed may block.
func (t *Telemetry) Stop() {
	if t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.over = true
	}
}

// Finish adds the rest, after the play, when all stamps are complete.
func (t *Telemetry) Finish(o Outcome) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.update(true)
	t.remaining(o.Boundaries)
	t.exportTraces()
}

// remaining adds the counts and latencies that were not exported during the play.
func (t *Telemetry) remaining(boundaries []cell.Boundary) {
	st := t.st
	all := st.Sampling == All
	for seq := uint64(st.initial + 1); seq < uint64(len(st.at[handled])); seq++ {
		if seq > t.released && (st.at[released][seq] != 0 || !all) {
			t.tally[telemetry.Released][t.kind(seq)]++
			if all {
				t.lag(seq)
			}
		}
		if seq > t.enqueued && (st.at[enqueued][seq] != 0 || !all) {
			t.tally[telemetry.Enqueued][t.kind(seq)]++
		}
		if st.Paced && st.at[released][seq] == 0 {
			t.set.Add(telemetry.GeneratorMissed, 1)
		}
	}
	t.set.CountAll(&t.tally)
	for range t.singles {
		t.set.Observe(telemetry.BatchSize, 1)
	}
	st.eachLatency(boundaries, func(b cell.Boundary, seq uint64, d time.Duration) {
		figure, exported := telemetry.IntendedHandled, true
		if b != Handled {
			figure, exported = intervals[b].figure, intervals[b].exported
		}
		if exported && !t.isExported(seq) {
			t.set.ObserveEvent(figure, int64(d), seq)
		}
	})
}

// exportTraces exports the sampled events.
func (t *Telemetry) exportTraces() {
	for seq := uint64(t.st.initial + 1); t.sampling != nil && seq < uint64(len(t.st.at[released])); seq++ {
		if t.sampling.Sampled(seq) {
			t.sampling.Export(t.trace(seq))
		}
	}
}

// stageNames are those of traces.
var stageNames = [stages]string{"released", "wire", "decoded", "enqueued", "popped", "stored", "handled"}

// trace returns the stamps of an event. A consumer may pop an event before the producer's
// Add returns; later stages are moved so that times never decrease.
func (t *Telemetry) trace(seq uint64) telemetry.EventTrace {
	e := &t.st.Storm.Events[seq-1]
	out := telemetry.EventTrace{Seq: seq, Type: string(e.Type), Key: e.Key}
	at := func(stamp int64) time.Time { return t.st.epoch.Add(time.Duration(stamp)) }
	if t.st.Paced {
		intended, _ := t.st.intended(seq)
		out.Intended = at(intended)
	}
	last := int64(math.MinInt64)
	for of, name := range stageNames {
		if stage(of) == popped && t.stages.Notices != nil {
			name = "merged"
		}
		if stamp := t.st.load(stage(of), seq); stamp != 0 {
			last = max(last, stamp)
			out.Stages = append(out.Stages, telemetry.StageTime{Stage: name, At: at(last)})
		}
	}
	return out
}
