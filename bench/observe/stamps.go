// Package observe records the events of a storm on their way through a pipeline. It is the
// only reader of these records.
//
//  1. While the clock runs, a pipeline writes: [Stamps] hold the time at which an event was
//     released and enqueued, a [Log] the hand-overs of a queue or the calls of a handler,
//     [LookUps] what a worker found, [Notices] the notifications of a merger.
//  2. [cursor] folds a log: it expands lists, numbers the objects and fills in their stamps.
//     The check and telemetry read logs by this fold only.
//  3. After the play [Check], [LookUps.Check] and [Notices.Check] compare the records with the
//     storm. They return [Violations].
//  4. [Stamps.Report] gives latencies, the generator's lag and blocked times to the cell's recorder; [Freshness] gives the staleness of a store.
//  5. [Telemetry] reads the same records some times a second during the play, and the rest at
//     its end.
//
// # Stamps
//
// Reading the clock costs as much as a fast queue does. Unpaced cells of deltafifo and queue
// therefore stamp every 64th event on the way in, and read the clock once a batch or 64 events on
// the way out. Events between two readings take the later one, so their latency is too long by less
// than 64 events. Such readings are too coarse to subtract: [PoppedStored] and [StoredHandled]
// exist in paced cells and with [All] only. [Handled] counts from the intended time and
// exists in paced cells only. Pipelines of merge stamp every event.
//
// A coalesced event is handled when a newer version of its key is. A latest-object
// queue never hands over a deletion: neither the deletion nor the versions that it
// removed have a latency, nor have events that change nothing for a merger.
//
// client-go's own informer has no hook between its queue and its store. There, enqueued is stamped
// by the transform function, stored by an index function (a deletion: by the handler), and popped
// not at all. The check reads the log of handler calls, which every informer cell has.
package observe

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/pace"
	"watchlab/loadgen/storm"
)

// SampleEvery is the number of events of an unpaced cell that share one clock reading.
// It is a power of two.
const SampleEvery = 64

// Sampling selects the stamped events: those whose number has none of its bits.
type Sampling uint64

const (
	All     Sampling = 0               // every event and hand-over
	Sampled Sampling = SampleEvery - 1 // one event, and one hand-over, in 64
	None    Sampling = math.MaxUint64  // no stamps; the cell has no latencies
)

// stage of a pipeline, in the order in which an event passes them.
type stage uint8

const (
	released stage = iota
	wire           // the client has the bytes of the frame; this and decoded only where a client decodes
	decoded
	enqueued
	popped // merged, in pipelines of merge
	stored
	handled

	stages
)

// Stamps hold the time at which each event of a storm reached each stage, in nanoseconds
// since epoch, indexed by sequence number. 0 means no stamp. During the play, one
// goroutine writes each element; telemetry reads released and enqueued.
type Stamps struct {
	Options
	epoch             time.Time
	start             atomic.Int64 // begin of the schedule, in nanoseconds since epoch
	initial           int
	concurrentReaders bool         // telemetry reads during the play, so stores are atomic; plain ones cost less
	listed            atomic.Int64 // later objects of all lists that went into the queue; for telemetry
	controlCalls      sync.Map     // nanoseconds of Replace and Resync calls right before an event's release
	callStart         []int64      // right before the variant's call, in paced cells; released if a producer calls
	// released, wire, decoded and enqueued are stamped during the play. The fold of the logs
	// fills in the others.
	at [stages][]int64
}

// Options of [NewStamps].
type Options struct {
	Storm     *storm.Storm  // that is played
	Schedule  pace.Schedule // intended times of the events after the initial list
	Paced     bool          // stamps every event
	Sampling  Sampling      // of an unpaced cell
	Producers int           // goroutines that release and call the variant; 0: a source releases
	Budget    time.Duration // largest allowed lag of a release; 0 means [cell.LateAfter]
}

// NewStamps returns stamps for the events of a storm.
func NewStamps(opts Options) *Stamps {
	s := &Stamps{Options: opts, epoch: time.Now(), initial: opts.Storm.Initial}
	n := len(opts.Storm.Events)
	if s.Paced {
		s.Sampling = All
	}
	for _, of := range []stage{released, enqueued, popped, stored, handled} {
		s.at[of] = make([]int64, n+1)
	}
	switch {
	case s.Paced && s.Producers > 0:
		s.callStart = s.at[released]
	case s.Paced:
		s.callStart = make([]int64, n+1)
	}
	return s
}

// Now is never 0, which means no stamp.
func (s *Stamps) Now() int64 { return max(1, int64(time.Since(s.epoch))) }

// Begin starts the schedule and returns the time to start the pacers with.
func (s *Stamps) Begin() time.Time {
	t0 := time.Now()
	s.start.Store(int64(t0.Sub(s.epoch)))
	return t0
}

// Initial is the number of events of the initial list.
func (s *Stamps) Initial() int { return s.initial }

// intended returns the intended time of an event of a paced cell, also from the start of
// the schedule.
func (s *Stamps) intended(seq uint64) (at int64, due time.Duration) {
	due = s.Schedule.Intended(int(seq) - 1 - s.initial)
	return s.start.Load() + int64(due), due
}

// Release is called right before an event is handed over.
func (s *Stamps) Release(seq uint64) { s.ReleaseAt(seq, time.Time{}) }

// ReleaseAt is called by a source for each event; a zero time is now.
func (s *Stamps) ReleaseAt(seq uint64, at time.Time) {
	switch {
	case seq&uint64(s.Sampling) != 0 || seq >= uint64(len(s.at[released])):
	case at.IsZero():
		s.put(&s.at[released][seq])
	default:
		s.set(&s.at[released][seq], max(1, int64(at.Sub(s.epoch))))
	}
}

// Enqueue is called right after the queue has taken an event.
func (s *Stamps) Enqueue(seq uint64) {
	if seq&uint64(s.Sampling) == 0 && seq < uint64(len(s.at[enqueued])) {
		s.put(&s.at[enqueued][seq])
	}
}

// EnqueueOnce is Enqueue for an event that may come again, in a list.
func (s *Stamps) EnqueueOnce(seq uint64) {
	if seq < uint64(len(s.at[enqueued])) && s.at[enqueued][seq] == 0 {
		s.Enqueue(seq)
	}
}

// Store stamps an event at its first store, where no log has it.
func (s *Stamps) Store(seq uint64) {
	if seq > 0 && seq < uint64(len(s.at[stored])) && s.at[stored][seq] == 0 {
		s.put(&s.at[stored][seq])
	}
}

// Replace is called right after the queue has taken a list.
func (s *Stamps) Replace(list []any) {
	if s.concurrentReaders {
		s.listed.Add(int64(s.later(list)))
	}
}

// later counts the objects of a list that are newer than the initial list.
func (s *Stamps) later(list []any) (n int) {
	for _, obj := range list {
		if Sequence(obj) > uint64(s.initial) {
			n++
		}
	}
	return n
}

// Call is called by a Reflector's goroutine right before the variant gets an event.
func (s *Stamps) Call(seq uint64) {
	if s.Paced && seq < uint64(len(s.callStart)) {
		s.callStart[seq] = s.Now()
	}
}

// ControlCall records a call without an event of its own, right before an event's release.
func (s *Stamps) ControlCall(seq uint64, began int64) {
	before, _ := s.controlCalls.LoadOrStore(seq, int64(0))
	s.controlCalls.Store(seq, before.(int64)+s.Now()-began)
}

func (s *Stamps) put(stamp *int64) { s.set(stamp, s.Now()) }

func (s *Stamps) set(stamp *int64, at int64) {
	if s.concurrentReaders {
		atomic.StoreInt64(stamp, at)
		return
	}
	*stamp = at
}

// load returns a stamp during the play; 0 for a stage that the pipeline does not have.
func (s *Stamps) load(of stage, seq uint64) int64 {
	if seq >= uint64(len(s.at[of])) {
		return 0
	}
	return atomic.LoadInt64(&s.at[of][seq])
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

// ProducerOf divides the keys among the producers, so that the order of each key's events holds.
func ProducerOf(keyIndex int32, producers int) int { return int(keyIndex) % producers }

// Sequence parses an object's resourceVersion; 0 if it is no number. It does not allocate.
func Sequence(obj any) uint64 {
	if pod, ok := obj.(*v1.Pod); ok {
		return ParseSequence(pod.ResourceVersion)
	}
	if o, ok := obj.(metav1.Object); ok {
		return ParseSequence(o.GetResourceVersion())
	}
	return 0
}

// ParseSequence parses a decimal number; anything else is 0.
func ParseSequence(rv string) uint64 {
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
