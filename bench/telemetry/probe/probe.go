package probe

import (
	"math/bits"
	"sync/atomic"
	"time"
)

const (
	// ringSize is the number of records between two folds: 20 ms at 100,000 paced
	// events/s. It is a power of two.
	ringSize = 1 << 14
	// flushEvents and flushNanos bound the events and the time between two publications
	// while events arrive.
	flushEvents = 64
	flushNanos  = int64(time.Millisecond)
	// pad separates fields that different goroutines write by two cache lines, as the
	// adjacent-line prefetcher fetches pairs.
	pad = 128
)

// counter is the index of a count: one for each stage and type, one for each way and
// type, and three single ones.
type counter uint8

const (
	// through is the first of the counters for each [Way] and type.
	through counter = counter(stages) * counter(types)
	late    counter = through + counter(ways)*counter(types) + iota - 1
	missed
	// ones counts batches of size 1, the most frequent size of unbatched queues.
	ones

	counters
)

func stageCounter(s Stage, t Type) counter { return counter(s)*counter(types) + counter(t) }

// A record has its kind in the highest byte and a value in the others. The kind is a
// histogram, a counter, or the sequence number of the event that the next record is for.
const (
	valueBits  = 56
	valueMask  = 1<<valueBits - 1
	counterAt  = uint64(histograms)
	sequenceAt = uint64(histograms) + uint64(counters)
)

func record(kind, value uint64) uint64 { return kind<<valueBits | value&valueMask }

// Probe records the events of one goroutine, the only one that may call its methods. No
// method allocates. The nil Probe does nothing. Create one with [Set.Probe].
type Probe struct {
	set   *Set
	trace *Sampling
	ring  *[ringSize]uint64

	_ [pad]byte
	// Only the probe's goroutine uses the fields up to the next padding. head is the
	// index of the next record; room is the index up to which the ring is known to be
	// free.
	head, room uint64
	// pending has counts that are not in the ring yet. Bit c of dirty is set if
	// pending[c] is not 0. events is the number of events since the last publication.
	pending [counters]uint32
	dirty   uint64
	events  uint32
	// flushed is the time of the last publication, in nanoseconds of Commit's clock.
	flushed int64

	_ [pad]byte
	// published is the head for the folding goroutine. The probe's goroutine stores it
	// after the records: the atomic store orders them, so a published record is
	// complete.
	published atomic.Uint64

	_ [pad]byte
	// tail is the index up to which records are folded. The folding goroutine stores it
	// after it has read the records, so that the probe overwrites only folded ones.
	tail atomic.Uint64
	// sequence is the traced event that the next record belongs to; 0 for none. The
	// set's lock guards it.
	sequence uint64

	_ [pad]byte
}

// Count records that n events of a type reached a stage.
func (p *Probe) Count(s Stage, t Type, n int) {
	if p != nil {
		p.count(stageCounter(s, t), n)
	}
}

func (p *Probe) count(c counter, n int) {
	p.pending[c] += uint32(n)
	p.dirty |= 1 << c
	p.events += uint32(n)
}

// Through records that n events of a type passed the stages of a way.
func (p *Probe) Through(w Way, t Type, n int) {
	if p != nil {
		p.count(through+counter(w)*counter(types)+counter(t), n)
	}
}

// HandOver records the size of a batch that the variant returned.
func (p *Probe) HandOver(n int) {
	switch {
	case p == nil:
	case n == 1:
		p.pending[ones]++
		p.dirty |= 1 << ones
	default:
		p.observe(BatchSize, int64(n))
	}
}

// Observe adds a duration to a histogram, clamped to 0 and 2^56 ns.
func (p *Probe) Observe(h Histogram, d time.Duration) {
	if p != nil {
		p.observe(h, int64(d))
	}
}

// Value adds a number to a histogram that is not of durations.
func (p *Probe) Value(h Histogram, n int64) {
	if p != nil {
		p.observe(h, n)
	}
}

// ObserveEvent is Observe for a known event. A traced event becomes an exemplar.
func (p *Probe) ObserveEvent(h Histogram, d time.Duration, seq uint64) {
	if p != nil {
		p.observeEvent(h, int64(d), seq)
	}
}

// Late counts a release beyond the lag budget.
func (p *Probe) Late() {
	if p != nil {
		p.count(late, 1)
	}
}

func (p *Probe) observe(h Histogram, n int64) {
	p.push(record(uint64(h), uint64(min(max(n, 0), valueMask))))
}

func (p *Probe) observeEvent(h Histogram, n int64, seq uint64) {
	if p.trace.Sampled(seq) {
		p.push(record(sequenceAt, seq))
	}
	p.observe(h, n)
}

// Missed counts events that were not released when the schedule ended.
func (p *Probe) Missed(n int) {
	if p != nil {
		p.count(missed, n)
	}
}

// Commit is called after an event or a batch. now is the last reading of a monotonic
// clock in nanoseconds; 0 if there is none. Commit publishes the records after 64 events
// or a millisecond, so that slow events become visible one by one.
func (p *Probe) Commit(now int64) {
	if p != nil && (p.events >= flushEvents || now-p.flushed >= flushNanos) {
		p.Flush()
		p.flushed = now
	}
}

// Flush publishes all records. Call it before the goroutine blocks for long.
func (p *Probe) Flush() {
	if p == nil {
		return
	}
	for p.dirty != 0 {
		c := bits.TrailingZeros64(p.dirty)
		p.dirty &= p.dirty - 1
		p.push(record(counterAt+uint64(c), uint64(p.pending[c])))
		p.pending[c] = 0
	}
	p.events = 0
	p.published.Store(p.head)
}

func (p *Probe) push(r uint64) {
	if p.head == p.room {
		p.makeRoom()
	}
	p.ring[p.head%ringSize] = r
	p.head++
}

// makeRoom updates room from tail. It folds the ring itself if it is full.
func (p *Probe) makeRoom() {
	if p.room = p.tail.Load() + ringSize; p.room > p.head {
		return
	}
	p.published.Store(p.head)
	p.set.Fold()
	p.room = p.tail.Load() + ringSize
}

// fold adds the published records to the set, oldest first. The caller holds the set's
// lock.
func (p *Probe) fold() {
	tail, head := p.tail.Load(), p.published.Load()
	for ; tail != head; tail++ {
		p.add(p.ring[tail%ringSize])
	}
	p.tail.Store(tail)
}

func (p *Probe) add(record uint64) {
	kind, value := record>>valueBits, record&valueMask
	switch {
	case kind < counterAt:
		octave, ok := p.set.hists[kind].observe(value, meanings[kind].scale)
		if p.sequence != 0 {
			if ok {
				p.set.hists[kind].exemplify(octave, exemplar{value: value, seq: p.sequence, at: time.Now(), trace: p.trace})
			}
			p.sequence = 0
		}
	case kind == counterAt+uint64(ones):
		p.set.hists[BatchSize].observeOnes(value)
	case kind < sequenceAt:
		p.set.count(counter(kind-counterAt), value)
	default:
		p.sequence = value
	}
}
