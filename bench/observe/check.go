package observe

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"watchlab/bench/lab"
	"watchlab/loadgen/storm"
)

// Violations count broken invariants, in the order of [lab.Invariants], and keep the first of each.
type Violations [4]violation

type violation struct {
	n     int
	first string
}

// Add counts a violation of an invariant.
func (v *Violations) Add(invariant error, format string, args ...any) {
	broken := &v[slices.Index(lab.Invariants, invariant)]
	if broken.n == 0 {
		broken.first = fmt.Sprintf(format, args...)
	}
	broken.n++
}

// Err joins an error for each broken invariant; nil for none.
func (v *Violations) Err() error {
	var errs []error
	for i, invariant := range lab.Invariants {
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

// Expectations of a delivery log. The check reports each deviation.
type Expectations struct {
	// Total: events of one producer come out in the order in which they went in, across
	// keys. See [ProducerOf].
	Total    bool
	Latest   bool // only the last event of each key has to come out
	Identity bool // the same objects come out that went in, not copies
	// Relisted: the source was listed again; Listed is the resourceVersion of the last
	// list. Lists may repeat and skip events. Whole: all events go in besides the lists,
	// so none may be missing.
	Relisted, Whole bool
	Listed          uint64
	// Calls: the log records handler calls. An update to a newer version is Updated; any
	// other is Sync, which needs a resync. Resyncs: the storm has resyncs.
	Calls, Resyncs bool
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

// KeyIndexes maps each key of a storm to its index.
func KeyIndexes(s *storm.Storm) map[string]int32 {
	m := make(map[string]int32, s.Keys)
	for i := range s.Events {
		m[s.Events[i].Key] = s.Events[i].KeyIndex
	}
	return m
}

// Checked is the result of the check of a delivery log.
type Checked struct {
	Violations Violations
	Out        uint64 // deltas after the initial list

	expectations     Expectations
	s                *storm.Storm
	keys             map[string]int32
	seen             []bool
	newest, newestOf []uint64 // newest event of each key, of each producer
	gone             []bool   // marks the keys whose last delta was a tombstone
	inBatch          []int32  // number of the last hand-over of each key, from 1
}

// Check compares a log with the storm and completes the stamps. keys are
// [KeyIndexes]. Check the queue's log before that of the handler's calls, which has no stamps.
func Check(keys map[string]int32, e Expectations, log *Log) *Checked {
	if e.Calls && (e.Relisted || e.Latest) {
		// The handler calls of a list come in any key order.
		e.Total = false
	}
	s := log.st.Storm
	c := &Checked{
		expectations: e, s: s, keys: keys,
		seen:     make([]bool, len(s.Events)+1),
		newest:   make([]uint64, s.Keys),
		newestOf: make([]uint64, max(1, log.st.Producers)),
		gone:     make([]bool, s.Keys),
		inBatch:  make([]int32, s.Keys),
	}
	call := int32(0)
	for h := range newCursor(log).fold(true) {
		call++
		c.handOver(h, call)
	}
	c.missing()
	c.complete(log)
	return c
}

// complete gives stamps to events that a newer version of their key stands for.
func (c *Checked) complete(log *Log) {
	st := log.st
	switch e := c.expectations; {
	case e.Latest && log.second == handled && !e.Calls:
		completeByKey(c.s, st.at[handled], true)
	case e.Relisted && !e.Whole:
		completeByKey(c.s, st.at[popped], false)
		completeByKey(c.s, st.at[stored], false)
	}
}

// handOver checks a hand-over. A batch contains a key at most once. Any other hand-over has the deltas
// of one key, or a list.
func (c *Checked) handOver(h handOver, call int32) {
	first := int32(-1)
	for d := range h.deliveries() {
		switch d.Object.(type) {
		case cache.BookmarkInfo, cache.SyncAllInfo:
			continue
		}
		key := c.delivery(d)
		if key < 0 || d.listed {
			continue
		}
		switch {
		case !h.batch && first >= 0 && key != first:
			c.Violations.Add(lab.ErrDiverged, "%s in a hand-over of %s", c.s.Events[c.newest[key]-1].Key, c.s.Events[c.newest[first]-1].Key)
		case h.batch && c.inBatch[key] == call:
			c.Violations.Add(lab.ErrDuplicated, "%s twice in one batch", c.s.Events[c.newest[key]-1].Key)
		}
		first, c.inBatch[key] = key, call
	}
}

// delivery checks one object and returns its key's index; -1 for an unknown key.
func (c *Checked) delivery(d delivery) int32 {
	if t, ok := d.Object.(cache.DeletedFinalStateUnknown); ok {
		return c.tombstone(t)
	}
	want, seq := c.expectations, d.seq
	if seq == 0 || seq > uint64(len(c.s.Events)) {
		c.Violations.Add(lab.ErrDiverged, "%s of %T, which never went in", d.Type, d.Object)
		return -1
	}
	e := &c.s.Events[seq-1]
	if d.Type == cache.Sync && (!want.Calls || want.Resyncs || want.Relisted) {
		c.sync(e)
		return e.KeyIndex
	}
	switch {
	case !want.allow(d.Type, e.Type):
		c.Violations.Add(lab.ErrDiverged, "event %d (%s %s) came out as %q", seq, e.Type, e.Key, d.Type)
	case want.Identity && d.Object != any(e.Object):
		c.Violations.Add(lab.ErrDiverged, "event %d (%s %s) came out with another object", seq, e.Type, e.Key)
	}
	if seq > uint64(c.s.Initial) {
		c.Out++
	}
	newest, newestOf := &c.newest[e.KeyIndex], &c.newestOf[ProducerOf(e.KeyIndex, len(c.newestOf))]
	if c.seen[seq] {
		if again := want.Relisted && (d.Type == cache.Replaced || d.Type == "") && *newest == seq; !again {
			c.Violations.Add(lab.ErrDuplicated, "event %d (%s %s)", seq, e.Type, e.Key)
		}
		return e.KeyIndex
	}
	c.seen[seq] = true
	c.gone[e.KeyIndex] = false
	switch {
	case seq < *newest:
		c.Violations.Add(lab.ErrReordered, "event %d (%s %s) after event %d of the same key", seq, e.Type, e.Key, *newest)
	case want.Total && seq < *newestOf && d.Type != cache.Replaced:
		c.Violations.Add(lab.ErrReordered, "event %d (%s %s) after event %d, where the order is total", seq, e.Type, e.Key, *newestOf)
	}
	*newest, *newestOf = max(*newest, seq), max(*newestOf, seq)
	return e.KeyIndex
}

// sync checks a Sync: its object must be the newest version handed over.
func (c *Checked) sync(e *storm.Event) {
	switch newest := c.newest[e.KeyIndex]; {
	case !c.seen[e.Seq]:
		c.Violations.Add(lab.ErrDiverged, "event %d (%s %s) came out as a Sync first", e.Seq, e.Type, e.Key)
	case newest != e.Seq || c.gone[e.KeyIndex]:
		c.Violations.Add(lab.ErrReordered, "a Sync of event %d (%s %s) after event %d of the same key", e.Seq, e.Type, e.Key, newest)
	}
}

// tombstone checks a deletion that a list revealed. Only lists cause tombstones.
func (c *Checked) tombstone(t cache.DeletedFinalStateUnknown) int32 {
	key, ok := c.keys[t.Key]
	if !ok || !c.expectations.Relisted {
		c.Violations.Add(lab.ErrDiverged, "a tombstone of %q, which was not deleted unseen", t.Key)
		return -1
	}
	c.gone[key] = true
	if c.newest[key] == 0 {
		return -1
	}
	return key
}

func (c *Checked) missing() {
	if c.expectations.Latest {
		for key, seq := range c.s.Final() {
			if at := c.newest[c.s.Events[seq-1].KeyIndex]; at < seq {
				c.Violations.Add(lab.ErrLost, "event %d, the last of %s (handed over: up to %d)", seq, key, at)
			}
		}
		return
	}
	superseded := supersededBy(c.s, c.expectations.Listed)
	// A recorded initial list may have several events of a key. Only the last version of
	// each key has to come out.
	left := make([]uint64, c.s.Keys)
	for i := range c.s.Events[:c.s.Initial] {
		e := &c.s.Events[i]
		if left[e.KeyIndex] = e.Seq; e.Type == watch.Deleted {
			left[e.KeyIndex] = 0
		}
	}
	for seq := 1; seq < len(c.seen); seq++ {
		e := &c.s.Events[seq-1]
		if seq <= c.s.Initial && left[e.KeyIndex] != e.Seq {
			continue
		}
		excused := c.expectations.Relisted && !c.expectations.Whole && (c.newest[e.KeyIndex] > e.Seq || c.gone[e.KeyIndex] || superseded(e.Seq))
		if !c.seen[seq] && !excused {
			c.Violations.Add(lab.ErrLost, "event %d (%s %s)", seq, e.Type, e.Key)
		}
	}
}

// allow reports whether an event may come out as a delta of that type. The store's content
// decides whether a handler gets an addition or an update; lists and coalescing change it.
func (x *Expectations) allow(t cache.DeltaType, e watch.EventType) bool {
	switch t {
	case cache.Added, cache.Updated:
		if x.Calls && (x.Relisted || x.Latest) {
			return e != watch.Deleted
		}
		return (t == cache.Added) == (e == watch.Added) && e != watch.Deleted
	case cache.Deleted:
		return e == watch.Deleted
	case cache.Replaced, "":
		return e != watch.Deleted
	case cache.Sync:
		return x.Calls
	default:
		return false
	}
}
