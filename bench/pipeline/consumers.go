package pipeline

import (
	"sync/atomic"

	"k8s.io/client-go/tools/cache"

	"watchlab/loadgen/storm"
)

// turns tell, where several consumers take at once, in which order they were
// handed a key. Each has a log of its own, and the clock can't say which of two
// entries was first. So each key has a counter, which its hand-over moves on when
// it begins and when it ends: consumers that are handed different keys, as they
// should be, don't meet there. It costs a consumer a look at what it is handed and
// two atomic additions a key.
type turns struct {
	events []storm.Event

	of []atomic.Uint32
}

// turn is one key's hand-over: the value of its counter when it began, odd where
// nobody else had the key.
type turn struct {
	key int32
	n   uint32
}

func newTurns(s *storm.Storm) *turns {
	return &turns{events: s.Events, of: make([]atomic.Uint32, s.Keys)}
}

// keyOf returns the index of an object's key, or -1 where it is not one of the
// storm's.
func (t *turns) keyOf(obj any) int32 {
	seq := sequence(obj)
	if seq == 0 || seq > uint64(len(t.events)) {
		return -1
	}
	return t.events[seq-1].KeyIndex
}

func (t *turns) begin(obj any) turn {
	k := t.keyOf(obj)
	if k < 0 {
		return turn{key: k}
	}
	return turn{k, t.of[k].Add(1)}
}

func (t *turns) end(of turn) {
	if of.key >= 0 {
		t.of[of.key].Add(1)
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

func (t *turns) endAll(of []turn) {
	for _, n := range of {
		t.end(n)
	}
}

// merged puts the logs of several consumers into one, in an order in which each
// log and the turns of each key are in theirs. Where there is no such order, two
// consumers had a key in hand at once: that is added to v as reordered. O(deltas ×
// logs).
func merged(logs []*ledger, s *storm.Storm, v *violations) *ledger {
	all := &ledger{st: logs[0].st, progress: logs[0].progress}
	// done is how far the turns of each key have come.
	done := make([]uint32, s.Keys)
	cursors := make([]cursor, len(logs))
	left := 0
	for i, l := range logs {
		cursors[i].l = l
		left += len(l.ends)
	}
	for left > 0 {
		before := left
		for i := range cursors {
			c := &cursors[i]
			for c.more() && c.ready(done) {
				c.move(all, done)
				left--
			}
		}
		if left < before {
			continue
		}
		for i := range cursors {
			if c := &cursors[i]; c.more() {
				v.reordered.add("%s in two consumers' hands at once", c.disputed(done, s))
				c.move(all, done)
				left--
				break
			}
		}
	}
	return all
}

// cursor goes through a log, hand-over by hand-over.
type cursor struct {
	l *ledger

	next, mark, delta, turn int
}

func (c *cursor) more() bool { return c.next < len(c.l.ends) }

// end is where the next hand-over's deltas end.
func (c *cursor) end() int { return int(max(c.l.ends[c.next], -c.l.ends[c.next])) }

// turns are those of the next hand-over.
func (c *cursor) turns() []turn { return c.l.turns[c.turn : c.turn+int(c.l.handed[c.next])] }

// ready reports whether all hand-overs of the keys that came before are done.
func (c *cursor) ready(done []uint32) bool {
	for _, t := range c.turns() {
		if t.key >= 0 && t.n != done[t.key]+1 {
			return false
		}
	}
	return true
}

// disputed names the first key of the next hand-over that isn't ready.
func (c *cursor) disputed(done []uint32, s *storm.Storm) string {
	for _, t := range c.turns() {
		if t.key >= 0 && t.n != done[t.key]+1 {
			for i := range s.Events {
				if s.Events[i].KeyIndex == t.key {
					return s.Events[i].Key
				}
			}
		}
	}
	return "a key"
}

// move appends the next hand-over to a log.
func (c *cursor) move(to *ledger, done []uint32) {
	for _, t := range c.turns() {
		if t.key >= 0 {
			done[t.key] = max(done[t.key], t.n+1)
		}
	}
	end := c.end()
	to.deltas = append(to.deltas, c.l.deltas[c.delta:end]...)
	at := int32(len(to.deltas))
	if c.l.ends[c.next] < 0 {
		at = -at
	}
	to.ends = append(to.ends, at)
	for c.mark < len(c.l.marks) && c.l.marks[c.mark].upto <= c.delta {
		c.mark++
	}
	if c.mark < len(c.l.marks) {
		m := c.l.marks[c.mark]
		m.upto = len(to.deltas)
		to.marks = append(to.marks, m)
	}
	c.turn += len(c.turns())
	c.delta = end
	c.next++
}
