package pipeline

import (
	"slices"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"

	"watchlab/loadgen/storm"
)

// deliveryLog records the hand-overs of one consumer. While the clock runs, only that
// consumer's goroutine appends, into preallocated slices. Telemetry reads the published
// entries.
type deliveryLog struct {
	st *stamps
	// deltas in the order of hand-over. Type is empty if the queue hands over objects.
	deltas []cache.Delta
	ends   []int32 // end index in deltas of each hand-over; negative for a batch
	// readings are the clock readings. marked is the number of deltas that they cover.
	readings []reading
	marked   int
	// published is the number of hand-overs that other goroutines may read. It is stored
	// after the entries are written.
	published atomic.Uint64
	// turns and handed exist with several consumers only: the turns of each hand-over's
	// keys, and their number.
	turns  []turn
	handed []int32
}

// reading is one clock reading. It applies to the deltas after the previous reading, up
// to index upto.
type reading struct {
	upto           int
	popped, stored int64
}

func newDeliveryLog(st *stamps, events int) *deliveryLog {
	return &deliveryLog{
		st:       st,
		deltas:   make([]cache.Delta, 0, events+sampleEvery),
		ends:     make([]int32, 0, events+sampleEvery),
		readings: make([]reading, 0, events+sampleEvery),
	}
}

// due reports whether a hand-over of n more deltas gets a reading of the clock.
func (l *deliveryLog) due(n int) bool {
	return l.st.every || !l.st.none && len(l.deltas)+n-l.marked >= sampleEvery
}

// add logs one hand-over. popped is 0 if the clock was not read.
func (l *deliveryLog) add(deltas []cache.Delta, batch bool, popped, stored int64) {
	l.deltas = append(l.deltas, deltas...)
	end := int32(len(l.deltas))
	if batch {
		end = -end
	}
	l.ends = append(l.ends, end)
	switch {
	case popped != 0:
		l.marked = len(l.deltas)
		l.readings = append(l.readings, reading{l.marked, popped, stored})
	case l.st.none && len(l.deltas)-l.marked >= sampleEvery:
		l.marked = len(l.deltas)
	default:
		return
	}
	l.published.Store(uint64(len(l.ends)))
}

// call logs and publishes a call of a handler, which has no reading of the clock.
func (l *deliveryLog) call(t cache.DeltaType, obj any) {
	l.deltas = append(l.deltas, cache.Delta{Type: t, Object: obj})
	l.ends = append(l.ends, int32(len(l.deltas)))
	l.published.Store(uint64(len(l.ends)))
}

// finish reads the clock for the deltas after the last reading and publishes all
// entries.
func (l *deliveryLog) finish() {
	if len(l.deltas) > l.marked && !l.st.none {
		now := l.st.now()
		l.marked = len(l.deltas)
		l.readings = append(l.readings, reading{l.marked, now, now})
	}
	l.published.Store(uint64(len(l.ends)))
}

// objectsIn counts the objects of deltas: a ReplacedAll holds a whole list.
func objectsIn(deltas []cache.Delta) int {
	if len(deltas) == 1 {
		if all, ok := deltas[0].Object.(cache.ReplacedAllInfo); ok {
			return len(all.Objects)
		}
	}
	return len(deltas)
}

// turns record the order in which several consumers got a key. Each consumer has its own
// log, and the clock cannot order two entries. So each key has a counter: a hand-over of
// the key increments it at its begin and at its end. Consumers of different keys use
// different counters.
type turns struct {
	events []storm.Event
	byKey  []atomic.Uint32
}

// turn is one key's hand-over: the counter's value at its begin. The value is odd if no
// other consumer had the key.
type turn struct {
	key int32
	n   uint32
}

func newTurns(s *storm.Storm) *turns {
	return &turns{events: s.Events, byKey: make([]atomic.Uint32, s.Keys)}
}

// begin begins the turn of an object's key; the key is -1 for an object that is
// not the storm's.
func (t *turns) begin(obj any) turn {
	seq := sequence(obj)
	if seq == 0 || seq > uint64(len(t.events)) {
		return turn{key: -1}
	}
	k := t.events[seq-1].KeyIndex
	return turn{k, t.byKey[k].Add(1)}
}

func (t *turns) end(began []turn) {
	for _, n := range began {
		if n.key >= 0 {
			t.byKey[n.key].Add(1)
		}
	}
}

// beginAll begins the turns of a hand-over's keys: of a batch, which has a key for
// each delta, or of the deltas of one key. They are appended to into.
func (t *turns) beginAll(into []turn, deltas []cache.Delta, batch bool) []turn {
	if !batch && len(deltas) > 0 {
		if all, ok := deltas[0].Object.(cache.ReplacedAllInfo); ok {
			for _, o := range all.Objects {
				into = append(into, t.begin(o))
			}
			return into
		}
		deltas = deltas[:1]
	}
	for _, d := range deltas {
		into = append(into, t.begin(d.Object))
	}
	return into
}

// mergeLogs merges the logs of several consumers. The result keeps the order of each log
// and of each key's turns. If there is no such order, two consumers had a key at once:
// that is a reordering. O(deltas × logs).
func mergeLogs(logs []*deliveryLog, s *storm.Storm, v *violations) *deliveryLog {
	all := &deliveryLog{st: logs[0].st}
	// done has the last finished turn of each key.
	done := make([]uint32, s.Keys)
	cursors := make([]*cursor, len(logs))
	for i, l := range logs {
		cursors[i] = newCursor(l)
	}
	for {
		moved := false
		for _, c := range cursors {
			for c.more() && c.disputed(done) < 0 {
				c.move(all, done)
				moved = true
			}
		}
		if moved {
			continue
		}
		left := slices.IndexFunc(cursors, (*cursor).more)
		if left < 0 {
			return all
		}
		v[reordered].add("%s in two consumers' hands at once", keyName(s, cursors[left].disputed(done)))
		cursors[left].move(all, done)
	}
}

func keyName(s *storm.Storm, key int32) string {
	i := slices.IndexFunc(s.Events, func(e storm.Event) bool { return e.KeyIndex == key })
	return s.Events[i].Key
}

// cursor reads the hand-overs of a log in order. It keeps the slices of its creation, at
// full capacity, so another goroutine may append while it reads published entries.
type cursor struct {
	l        *deliveryLog
	ends     []int32
	deltas   []cache.Delta
	readings []reading
	// next, delta, reading and turn are the next indexes.
	next, delta, reading, turn int
}

// handOver is an entry of a delivery log. at is the zero reading if none applies yet.
type handOver struct {
	deltas []cache.Delta
	batch  bool
	at     reading
}

func newCursor(l *deliveryLog) *cursor {
	return &cursor{l: l, ends: l.ends[:cap(l.ends)], deltas: l.deltas[:cap(l.deltas)], readings: l.readings[:cap(l.readings)]}
}

// published returns the number of entries that other goroutines may read.
func (c *cursor) published() int { return int(min(c.l.published.Load(), uint64(len(c.ends)))) }

// all makes the cursor read all entries of a log that is complete, and returns their
// number.
func (c *cursor) all() int {
	c.ends, c.deltas, c.readings = c.l.ends, c.l.deltas, c.l.readings
	return len(c.ends)
}

func (c *cursor) more() bool { return c.next < len(c.l.ends) }

// fits reports whether the cursor's slices have the next hand-over: a log may outgrow
// them.
func (c *cursor) fits() bool { return int(max(c.ends[c.next], -c.ends[c.next])) <= len(c.deltas) }

// read returns the next hand-over.
func (c *cursor) read() handOver {
	end := c.ends[c.next]
	upto := int(max(end, -end))
	h := handOver{deltas: c.deltas[c.delta:upto], batch: end < 0}
	for c.reading < len(c.readings) && c.readings[c.reading].upto != 0 && c.readings[c.reading].upto <= c.delta {
		c.reading++
	}
	if c.reading < len(c.readings) {
		h.at = c.readings[c.reading]
	}
	c.next, c.delta = c.next+1, upto
	return h
}

// turns returns the turns of the next hand-over.
func (c *cursor) turns() []turn { return c.l.turns[c.turn : c.turn+int(c.l.handed[c.next])] }

// disputed returns the first key of the next hand-over that has an earlier turn
// outstanding; -1 for none.
func (c *cursor) disputed(done []uint32) int32 {
	for _, t := range c.turns() {
		if t.key >= 0 && t.n != done[t.key]+1 {
			return t.key
		}
	}
	return -1
}

// move appends the next hand-over to a log.
func (c *cursor) move(to *deliveryLog, done []uint32) {
	turns := c.turns()
	for _, t := range turns {
		if t.key >= 0 {
			done[t.key] = max(done[t.key], t.n+1)
		}
	}
	c.turn += len(turns)
	h := c.read()
	to.add(h.deltas, h.batch, h.at.popped, h.at.stored)
}
