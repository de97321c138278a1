package pipeline

import (
	"cmp"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"watchlab/bench/lab"
	"watchlab/loadgen/storm"
)

// The invariants, as indexes of [violations].
const (
	lost = iota
	reordered
	duplicated
	diverged
)

// violations counts broken invariants and keeps the first of each.
type violations [diverged + 1]violation

type violation struct {
	n     int
	first string
}

func (v *violation) add(format string, args ...any) {
	if v.n == 0 {
		v.first = fmt.Sprintf(format, args...)
	}
	v.n++
}

func (v *violations) join(o *violations) {
	for i := range v {
		v[i].first = cmp.Or(v[i].first, o[i].first)
		v[i].n += o[i].n
	}
}

// err joins an error for each broken invariant; nil for none.
func (v *violations) err() error {
	var errs []error
	for i, invariant := range []error{lab.ErrLost, lab.ErrReordered, lab.ErrDuplicated, lab.ErrDiverged} {
		switch broken := v[i]; broken.n {
		case 0:
		case 1:
			errs = append(errs, fmt.Errorf("%w: %s", invariant, broken.first))
		default:
			errs = append(errs, fmt.Errorf("%w: %d times, first %s", invariant, broken.n, broken.first))
		}
	}
	return errors.Join(errs...)
}

// expectations of a delivery log. The checker reports each deviation.
type expectations struct {
	// total: events of one producer come out in the order in which they went in, across
	// keys. producers is the number of producers, at least 1; see [producerOf].
	total     bool
	producers int
	latest    bool // only the last event of each key has to come out
	identity  bool // the same objects come out that went in, not copies
	// relisted: the source was listed again; listed is the resourceVersion of the last
	// list. Lists may repeat and skip events. whole: all events go in besides the lists,
	// so none may be missing.
	relisted, whole bool
	listed          uint64
	// calls: the log records handler calls. An update to a newer version is Updated; any
	// other is Sync, which needs a resync. resyncs: the storm has resyncs.
	calls, resyncs bool
}

// supersededBy returns a function that reports whether a list makes an event unnecessary. That is
// so if the list's version includes a newer event of the key, or the key's deletion.
func supersededBy(s *storm.Storm, version uint64) func(seq uint64) bool {
	if version == 0 {
		return func(uint64) bool { return false }
	}
	newest := make([]uint64, s.Keys)
	for i := range s.Events[:min(version, uint64(len(s.Events)))] {
		newest[s.Events[i].KeyIndex] = s.Events[i].Seq
	}
	return func(seq uint64) bool {
		e := &s.Events[seq-1]
		return seq <= version && (e.Type == watch.Deleted || newest[e.KeyIndex] > seq)
	}
}

// producerOf divides the keys among the producers, so that the order of each key's events holds.
func producerOf(keyIndex int32, producers int) int { return int(keyIndex) % producers }

// checker checks one delivery log.
type checker struct {
	expectations
	s                *storm.Storm
	keys             map[string]int32
	v                violations
	out              uint64 // deltas after the initial list
	seen             []bool
	newest, newestOf []uint64 // newest event of each key, of each producer
	gone             []bool   // marks the keys whose last delta was a tombstone
	inBatch          []int32  // number of the last hand-over of each key, from 1
}

// check compares the log with the storm and fills in the popped and stored stamps. keys
// maps each key to its index.
func (l *deliveryLog) check(s *storm.Storm, keys map[string]int32, e expectations) *checker {
	e.producers = max(1, e.producers)
	if e.calls && (e.relisted || e.latest) {
		// The handler calls of a list come in any key order.
		e.total = false
	}
	c := &checker{
		expectations: e, s: s, keys: keys,
		seen:     make([]bool, len(s.Events)+1),
		newest:   make([]uint64, s.Keys),
		newestOf: make([]uint64, e.producers),
		gone:     make([]bool, s.Keys),
		inBatch:  make([]int32, s.Keys),
	}
	cur := newCursor(l)
	for call := int32(1); cur.more(); call++ {
		h, first := cur.read(), int32(-1)
		for _, d := range h.deltas {
			switch info := d.Object.(type) {
			case cache.ReplacedAllInfo:
				for _, o := range info.Objects {
					c.delta(cache.Delta{Type: cache.Replaced, Object: o}, l.st, h.at)
				}
				continue
			case cache.BookmarkInfo, cache.SyncAllInfo:
				continue
			}
			key := c.delta(d, l.st, h.at)
			if key < 0 {
				continue
			}
			// A batch contains a key at most once. Any other hand-over has the deltas of one key.
			switch {
			case !h.batch && first >= 0 && key != first:
				c.v[diverged].add("%s in a hand-over of %s", s.Events[c.newest[key]-1].Key, s.Events[c.newest[first]-1].Key)
			case h.batch && c.inBatch[key] == call:
				c.v[duplicated].add("%s twice in one batch", s.Events[c.newest[key]-1].Key)
			}
			first, c.inBatch[key] = key, call
		}
	}
	c.missing()
	return c
}

// delta checks one delta and returns its key's index; -1 for an unknown key.
func (c *checker) delta(d cache.Delta, st *stamps, at reading) int32 {
	if t, ok := d.Object.(cache.DeletedFinalStateUnknown); ok {
		return c.tombstone(t)
	}
	seq := sequence(d.Object)
	if seq == 0 || seq > uint64(len(c.s.Events)) {
		c.v[diverged].add("%s of %T, which never went in", d.Type, d.Object)
		return -1
	}
	e := &c.s.Events[seq-1]
	if d.Type == cache.Sync && (!c.calls || c.resyncs || c.relisted) {
		c.sync(e)
		return e.KeyIndex
	}
	again := c.relisted && (d.Type == cache.Replaced || d.Type == "") && c.newest[e.KeyIndex] == seq
	switch {
	case !c.allowed(d.Type, e.Type):
		c.v[diverged].add("event %d (%s %s) came out as %q", seq, e.Type, e.Key, d.Type)
	case c.identity && d.Object != any(e.Object):
		c.v[diverged].add("event %d (%s %s) came out with another object", seq, e.Type, e.Key)
	}
	if seq > uint64(c.s.Initial) {
		c.out++
	}
	if c.seen[seq] {
		if !again {
			c.v[duplicated].add("event %d (%s %s)", seq, e.Type, e.Key)
		}
		return e.KeyIndex
	}
	c.seen[seq] = true
	c.gone[e.KeyIndex] = false
	producer := producerOf(e.KeyIndex, c.producers)
	switch {
	case seq < c.newest[e.KeyIndex]:
		c.v[reordered].add("event %d (%s %s) after event %d of the same key", seq, e.Type, e.Key, c.newest[e.KeyIndex])
	case c.total && seq < c.newestOf[producer] && d.Type != cache.Replaced:
		c.v[reordered].add("event %d (%s %s) after event %d, where the order is total", seq, e.Type, e.Key, c.newestOf[producer])
	}
	c.newest[e.KeyIndex] = max(c.newest[e.KeyIndex], seq)
	c.newestOf[producer] = max(c.newestOf[producer], seq)
	if !c.calls {
		st.popped[seq], st.stored[seq] = at.popped, at.stored
	}
	return e.KeyIndex
}

// sync checks a Sync: its object must be the newest version handed over.
func (c *checker) sync(e *storm.Event) {
	switch newest := c.newest[e.KeyIndex]; {
	case !c.seen[e.Seq]:
		c.v[diverged].add("event %d (%s %s) came out as a Sync first", e.Seq, e.Type, e.Key)
	case newest != e.Seq || c.gone[e.KeyIndex]:
		c.v[reordered].add("a Sync of event %d (%s %s) after event %d of the same key", e.Seq, e.Type, e.Key, newest)
	}
}

// tombstone checks a deletion that a list revealed. Only lists cause tombstones.
func (c *checker) tombstone(t cache.DeletedFinalStateUnknown) int32 {
	key, ok := c.keys[t.Key]
	if !ok || !c.relisted {
		c.v[diverged].add("a tombstone of %q, which was not deleted unseen", t.Key)
		return -1
	}
	c.gone[key] = true
	if c.newest[key] == 0 {
		return -1
	}
	return key
}

func (c *checker) missing() {
	superseded := supersededBy(c.s, c.listed)
	// A recorded initial list may have several events of a key. Only the last version of
	// each key has to come out.
	left := make([]uint64, c.s.Keys)
	for i := range c.s.Events[:c.s.Initial] {
		e := &c.s.Events[i]
		if left[e.KeyIndex] = e.Seq; e.Type == watch.Deleted {
			left[e.KeyIndex] = 0
		}
	}
	if c.latest {
		for key, seq := range c.s.Final() {
			if at := c.newest[c.s.Events[seq-1].KeyIndex]; at < seq {
				c.v[lost].add("event %d, the last of %s (handed over: up to %d)", seq, key, at)
			}
		}
		return
	}
	for seq := 1; seq < len(c.seen); seq++ {
		e := &c.s.Events[seq-1]
		if seq <= c.s.Initial && left[e.KeyIndex] != e.Seq {
			continue
		}
		excused := c.relisted && !c.whole && (c.newest[e.KeyIndex] > e.Seq || c.gone[e.KeyIndex] || superseded(e.Seq))
		if !c.seen[seq] && !excused {
			c.v[lost].add("event %d (%s %s)", seq, e.Type, e.Key)
		}
	}
}

// allowed reports whether an event may come out as a delta of that type. The store's content
// decides whether a handler gets an addition or an update; lists and coalescing change it.
func (c *checker) allowed(t cache.DeltaType, e watch.EventType) bool {
	switch t {
	case cache.Added, cache.Updated:
		if c.calls && (c.relisted || c.latest) {
			return e != watch.Deleted
		}
		return (t == cache.Added) == (e == watch.Added) && e != watch.Deleted
	case cache.Deleted:
		return e == watch.Deleted
	case cache.Replaced, "":
		return e != watch.Deleted
	case cache.Sync:
		return c.calls
	default:
		return false
	}
}

func keyIndexes(s *storm.Storm) map[string]int32 {
	m := make(map[string]int32, s.Keys)
	for i := range s.Events {
		m[s.Events[i].Key] = s.Events[i].KeyIndex
	}
	return m
}
