package observe

import (
	"iter"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"
)

// Log is a delivery log: it records the hand-overs of one consumer, or the calls of a handler.
// While the clock runs, only that goroutine appends, into preallocated slices. Telemetry reads
// the published entries.
type Log struct {
	st        *Stamps
	second    stage         // stage of the second time of a reading
	deltas    []cache.Delta // in the order of hand-over; Type is empty if the queue hands over objects
	ends      []int32       // end index in deltas of each hand-over; negative for a batch
	readings  []reading     // clock readings; none in a log of calls
	marked    int           // deltas that the readings cover
	published atomic.Uint64 // hand-overs that others may read, stored after the entries are written
}

// reading is one clock reading. It applies to the deltas after the previous reading, up
// to index upto.
type reading struct {
	upto           int
	popped, second int64
}

func newLog(st *Stamps, second stage, room int) *Log {
	return &Log{
		st: st, second: second,
		deltas:   make([]cache.Delta, 0, room+SampleEvery),
		ends:     make([]int32, 0, room+SampleEvery),
		readings: make([]reading, 0, room+SampleEvery),
	}
}

// NewConsumerLog returns the log of a queue's consumer that handles what it pops.
func NewConsumerLog(st *Stamps, room int) *Log { return newLog(st, handled, room) }

// NewStoreLog returns the log of a queue's consumer that stores what it pops.
func NewStoreLog(st *Stamps, room int) *Log { return newLog(st, stored, room) }

// NewCallLog returns the log of a handler's calls.
func NewCallLog(st *Stamps, room int) *Log {
	l := newLog(st, handled, room)
	l.readings = nil
	return l
}

// Begin is called with the number of deltas of each hand-over before it is processed. It reads the clock
// if a reading is due, else it returns 0.
func (l *Log) Begin(deltas int) (popped int64) {
	switch l.st.Sampling {
	case All:
		popped = l.st.Now()
	case Sampled:
		if len(l.deltas)+deltas-l.marked >= SampleEvery {
			popped = l.st.Now()
		}
	}
	return popped
}

// Add logs a hand-over after it is processed. popped and second are 0 if the clock was not read.
func (l *Log) Add(deltas []cache.Delta, batch bool, popped, second int64) {
	l.deltas = append(l.deltas, deltas...)
	end := int32(len(l.deltas))
	if batch {
		end = -end
	}
	l.ends = append(l.ends, end)
	switch {
	case popped != 0:
		l.marked = len(l.deltas)
		l.readings = append(l.readings, reading{l.marked, popped, second})
	case l.st.Sampling == None && len(l.deltas)-l.marked >= SampleEvery:
		l.marked = len(l.deltas)
	default:
		return
	}
	l.published.Store(uint64(len(l.ends)))
}

// Call logs and publishes a call of a handler, which has no reading of the clock.
func (l *Log) Call(t cache.DeltaType, obj any) {
	l.deltas = append(l.deltas, cache.Delta{Type: t, Object: obj})
	l.ends = append(l.ends, int32(len(l.deltas)))
	l.published.Store(uint64(len(l.ends)))
}

// Finish reads the clock for the deltas after the last reading and publishes all entries.
func (l *Log) Finish() {
	if len(l.deltas) > l.marked && l.st.Sampling != None {
		now := l.st.Now()
		l.marked = len(l.deltas)
		l.readings = append(l.readings, reading{l.marked, now, now})
	}
	l.published.Store(uint64(len(l.ends)))
}

// Now reads the clock of the stamps.
func (l *Log) Now() int64 { return l.st.Now() }

// HandOvers returns the number of entries, for the goroutine that appends.
func (l *Log) HandOvers() int { return len(l.ends) }

// Published returns the number of entries that other goroutines may read.
func (l *Log) Published() uint64 { return l.published.Load() }

// listIn returns the objects of deltas that are a ReplacedAll.
func listIn(deltas []cache.Delta) (list []any, ok bool) {
	if len(deltas) == 1 {
		if all, ok := deltas[0].Object.(cache.ReplacedAllInfo); ok {
			return all.Objects, true
		}
	}
	return nil, false
}

// ObjectsIn counts the objects of deltas: a ReplacedAll holds a whole list.
func ObjectsIn(deltas []cache.Delta) int {
	if list, ok := listIn(deltas); ok {
		return len(list)
	}
	return len(deltas)
}

// cursor folds a log from its first hand-over on. It keeps the slices of its creation, at
// full capacity, so another goroutine may append while it reads published entries.
type cursor struct {
	l        *Log
	ends     []int32
	deltas   []cache.Delta
	readings []reading

	next, delta, reading int // next indexes
}

// handOver is an entry of a delivery log. at is the zero reading if none applies yet.
type handOver struct {
	l      *Log
	deltas []cache.Delta
	batch  bool
	at     reading
}

// delivery is an object of a hand-over. seq is 0 for a tombstone, a bookmark and an object that
// has no number.
type delivery struct {
	cache.Delta
	seq    uint64
	listed bool // an object of a ReplacedAll, whose type is Replaced
}

func newCursor(l *Log) *cursor {
	return &cursor{l: l, ends: l.ends[:cap(l.ends)], deltas: l.deltas[:cap(l.deltas)], readings: l.readings[:cap(l.readings)]}
}

// fold yields the hand-overs that it has not yielded yet: the published ones, or all if the log is
// complete. During the play it ends where a log has outgrown the cursor's slices.
func (c *cursor) fold(complete bool) iter.Seq[handOver] {
	return func(yield func(handOver) bool) {
		n := int(min(c.l.published.Load(), uint64(len(c.ends))))
		if complete {
			c.ends, c.deltas, c.readings = c.l.ends, c.l.deltas, c.l.readings
			n = len(c.ends)
		}
		for c.next < n {
			end := c.ends[c.next]
			upto := int(max(end, -end))
			if upto > len(c.deltas) {
				return
			}
			h := handOver{l: c.l, deltas: c.deltas[c.delta:upto], batch: end < 0}
			for c.reading < len(c.readings) && c.readings[c.reading].upto != 0 && c.readings[c.reading].upto <= c.delta {
				c.reading++
			}
			if c.reading < len(c.readings) {
				h.at = c.readings[c.reading]
			}
			c.next, c.delta = c.next+1, upto
			if !yield(h) {
				return
			}
		}
	}
}

// deliveries yields the objects of a hand-over and fills in the stamps of those that come the first time.
func (h handOver) deliveries() iter.Seq[delivery] {
	return func(yield func(delivery) bool) {
		if list, ok := listIn(h.deltas); ok {
			for _, o := range list {
				if !yield(h.stamped(delivery{Delta: cache.Delta{Type: cache.Replaced, Object: o}, listed: true})) {
					return
				}
			}
			return
		}
		for _, d := range h.deltas {
			if !yield(h.stamped(delivery{Delta: d})) {
				return
			}
		}
	}
}

func (h handOver) stamped(d delivery) delivery {
	d.seq = Sequence(d.Object)
	at := &h.l.st.at
	if d.seq != 0 && d.seq < uint64(len(at[popped])) && at[popped][d.seq] == 0 && h.at.popped != 0 {
		at[popped][d.seq], at[h.l.second][d.seq] = h.at.popped, h.at.second
	}
	return d
}

// record is a log of other entries. One goroutine appends; telemetry reads the published entries.
type record[T any] struct {
	log          []T
	preallocated []T // what telemetry reads during the play, as the header of log changes with each append
	published    atomic.Uint64
	read         int // entries that telemetry has read
}

func (r *record[T]) reserve(room int) {
	r.log = make([]T, 0, room+SampleEvery)
	r.preallocated = r.log[:cap(r.log)]
}

// add returns the number of entries.
func (r *record[T]) add(item T) uint64 {
	r.log = append(r.log, item)
	return r.published.Add(1)
}

// Len returns the number of entries, for the goroutine that adds them.
func (r *record[T]) Len() int { return len(r.log) }

// Published returns the number of entries that other goroutines may read.
func (r *record[T]) Published() uint64 { return r.published.Load() }

// unread returns the published entries since the last call; at the end of the play, all entries since then.
func (r *record[T]) unread(end bool) []T {
	log := r.log
	if !end {
		log = r.preallocated[:min(r.published.Load(), uint64(len(r.preallocated)))]
	}
	out := log[r.read:]
	r.read = len(log)
	return out
}
