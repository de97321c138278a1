package probe

import (
	"math/bits"
	"sync/atomic"
	"time"
)

const (
	// ringSize is how many records a probe has room for between two folds: 20 ms
	// of 100,000 paced events a second. It is a power of two.
	ringSize = 1 << 14
	// seldom is how many events may go by unseen, and soon for how long, in
	// nanoseconds, while there are more.
	seldom = 64
	soon   = int64(time.Millisecond)
	// pad keeps what two goroutines write apart: two lines, as neighbouring ones
	// are fetched together.
	pad = 128
)

// counter is a number that only rises: one for each stage and type, and some
// more.
type counter uint8

const (
	// through are those of each [Way] and type.
	through counter = counter(stages) * counter(types)
	late    counter = through + counter(ways)*counter(types) + iota - 1
	missed
	// ones are hand-overs of one, which are most where they aren't batches.
	ones

	counters
)

func stageCounter(s Stage, t Type) counter { return counter(s)*counter(types) + counter(t) }

// A record is a kind in its highest byte and a value in the others: a histogram, a
// counter, or the number of the event that the next record tells of.
const (
	valueBits  = 56
	valueMask  = 1<<valueBits - 1
	counterAt  = uint64(histograms)
	sequenceAt = uint64(histograms) + uint64(counters)
)

func record(kind, value uint64) uint64 { return kind<<valueBits | value&valueMask }

// Probe is told what happens in one goroutine. The nil Probe does nothing. Made
// by [Set.Probe]; all methods but those of its set are for the goroutine that it
// belongs to. None allocates.
type Probe struct {
	set   *Set
	trace *Sampling
	ring  *[ringSize]uint64

	_ [pad]byte

	head, room uint64

	pending [counters]uint32
	dirty   uint64
	events  uint32

	flushed int64

	_ [pad]byte

	published atomic.Uint64

	_ [pad]byte

	tail atomic.Uint64

	sequence uint64

	_ [pad]byte
}

// Count tells that n events of a type came to a stage.
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

// Through tells that n events of a type went through several stages at once.
func (p *Probe) Through(w Way, t Type, n int) {
	if p != nil {
		p.count(through+counter(w)*counter(types)+counter(t), n)
	}
}

// HandOver tells that the variant handed over so much at once.
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

// Observe adds to a histogram; d is cut to the years that a record has room for,
// and 0 where it is negative.
func (p *Probe) Observe(h Histogram, d time.Duration) {
	if p != nil {
		p.observe(h, int64(d))
	}
}

// Value adds a number to a histogram that is not of times.
func (p *Probe) Value(h Histogram, n int64) {
	if p != nil {
		p.observe(h, n)
	}
}

// ObserveEvent is Observe that says of which event. Where that is traced, the
// histogram gets an exemplar.
func (p *Probe) ObserveEvent(h Histogram, d time.Duration, seq uint64) {
	if p != nil {
		p.observeEvent(h, int64(d), seq)
	}
}

// Late tells that an event was released later than it may be.
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

// Missed tells of events that were not released when the schedule was over.
func (p *Probe) Missed(n int) {
	if p != nil {
		p.count(missed, n)
	}
}

// Commit is called after an event, or after a hand-over of several. now is what the
// clock said last, in nanoseconds since whenever; 0 where it has not been read.
// What was told becomes visible where it is of 64 events or a millisecond since the
// last time, so that where events are slow each is seen at once.
func (p *Probe) Commit(now int64) {
	if p != nil && (p.events >= seldom || now-p.flushed >= soon) {
		p.Flush()
		p.flushed = now
	}
}

// Flush makes what was told visible. It is to be called before the goroutine
// ends, and may be before it waits for long.
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

// makeRoom looks how much has been folded, and folds what is there where that is
// nothing.
func (p *Probe) makeRoom() {
	if p.room = p.tail.Load() + ringSize; p.room > p.head {
		return
	}
	p.published.Store(p.head)
	p.set.Fold()
	p.room = p.tail.Load() + ringSize
}

// fold takes in the probe's new records, oldest first. It is called under the
// lock of the set, so that only one goroutine is in it.
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
