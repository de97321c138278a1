package pipeline

import (
	"cmp"
	"slices"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"

	"watchlab/loadgen/storm"
)

// deliveryLog records the hand-overs of one consumer. While the clock runs, only that consumer's
// goroutine appends, into preallocated slices. Telemetry reads the published entries.
type deliveryLog struct {
	st        *stamps
	deltas    []cache.Delta // in the order of hand-over; Type is empty if the queue hands over objects
	ends      []int32       // end index in deltas of each hand-over; negative for a batch
	readings  []reading     // clock readings
	marked    int           // deltas that the readings cover
	published atomic.Uint64 // hand-overs that others may read, stored after the entries are written
	turns     []turn        // those of each hand-over's keys; only with several consumers
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

// finish reads the clock for the deltas after the last reading and publishes all entries.
func (l *deliveryLog) finish() {
	if len(l.deltas) > l.marked && !l.st.none {
		now := l.st.now()
		l.marked = len(l.deltas)
		l.readings = append(l.readings, reading{l.marked, now, now})
	}
	l.published.Store(uint64(len(l.ends)))
}

// listIn returns the objects of deltas that are a ReplacedAll.
func listIn(deltas []cache.Delta) (list []any, ok bool) {
	if len(deltas) == 1 {
		if all, ok := deltas[0].Object.(cache.ReplacedAllInfo); ok {
			return all.Objects, true
		}
	}
	return nil, false
}

// objectsIn counts the objects of deltas: a ReplacedAll holds a whole list.
func objectsIn(deltas []cache.Delta) int {
	if list, ok := listIn(deltas); ok {
		return len(list)
	}
	return len(deltas)
}

// turns record the order in which several consumers got a key. Each consumer has its own log, and
// the clock cannot order two entries. So each key has a counter: a hand-over of the key increments
// it at its begin and at its end. Consumers of different keys use different counters.
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

// begin begins the turn of an object's key; -1 for an object that is not the storm's.
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
	if list, ok := listIn(deltas); ok {
		for _, o := range list {
			into = append(into, t.begin(o))
		}
		return into
	}
	if !batch {
		deltas = deltas[:min(1, len(deltas))]
	}
	for _, d := range deltas {
		into = append(into, t.begin(d.Object))
	}
	return into
}

// mergeLogs merges the logs of several consumers key by key, each key's hand-overs in the
// order of its turns. A turn that began before the previous one ended is a reordering: two
// consumers had the key at once. O(deltas × log deltas).
func mergeLogs(logs []*deliveryLog, v *violations) *deliveryLog {
	type keyed struct {
		turn
		deltas []cache.Delta
		at     reading
	}
	var all []keyed
	for _, l := range logs {
		turns := l.turns
		for c := newCursor(l); c.more(); {
			h := c.read()
			deltas, each := h.deltas, h.batch
			if list, ok := listIn(deltas); ok {
				deltas, each = nil, true
				for _, o := range list {
					deltas = append(deltas, cache.Delta{Type: cache.Replaced, Object: o})
				}
			}
			n := len(deltas)
			if each {
				n = 1
			}
			for own := range slices.Chunk(deltas, max(1, n)) {
				all = append(all, keyed{turns[0], own, h.at})
				turns = turns[1:]
			}
		}
	}
	slices.SortStableFunc(all, func(a, b keyed) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.n, b.n)) })
	merged := &deliveryLog{st: logs[0].st}
	for _, k := range all {
		if k.key >= 0 && k.n%2 == 0 {
			v[reordered].add("event %d in two consumers' hands at once", sequence(k.deltas[0].Object))
		}
		merged.add(k.deltas, false, k.at.popped, k.at.stored)
	}
	return merged
}

// cursor reads the hand-overs of a log in order. It keeps the slices of its creation, at
// full capacity, so another goroutine may append while it reads published entries.
type cursor struct {
	l        *deliveryLog
	ends     []int32
	deltas   []cache.Delta
	readings []reading

	next, delta, reading int // next indexes
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

func (c *cursor) published() int { return int(min(c.l.published.Load(), uint64(len(c.ends)))) }

// all makes the cursor read the whole log, which is complete, and returns its length.
func (c *cursor) all() int {
	c.ends, c.deltas, c.readings = c.l.ends, c.l.deltas, c.l.readings
	return len(c.ends)
}

func (c *cursor) more() bool { return c.next < len(c.l.ends) }

// fits reports whether the cursor's slices have the next hand-over; a log outgrows them.
func (c *cursor) fits() bool { return int(max(c.ends[c.next], -c.ends[c.next])) <= len(c.deltas) }

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
