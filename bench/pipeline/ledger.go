package pipeline

import (
	"slices"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"watchlab/loadgen/storm"
)

// ledger is the log of what a consumer was handed. While the clock runs it is
// only appended to, by one goroutine, into room made before.
type ledger struct {
	st *stamps

	deltas []cache.Delta

	ends  []int32
	marks []mark

	marked int

	progress *atomic.Uint64

	turns  []turn
	handed []int32
}

// mark is a reading of the clock: it holds for the deltas between the mark
// before it and upto.
type mark struct {
	upto           int
	popped, stored int64
}

func newLedger(st *stamps, events int) *ledger {
	return &ledger{
		st:     st,
		deltas: make([]cache.Delta, 0, events+sampleEvery),
		ends:   make([]int32, 0, events+sampleEvery),
		marks:  make([]mark, 0, events+sampleEvery),

		progress: new(atomic.Uint64),
	}
}

// due reports whether a hand-over of n more deltas gets a reading of the clock.
func (l *ledger) due(n int) bool {
	return l.st.every || !l.st.none && len(l.deltas)+n-l.marked >= sampleEvery
}

// add logs one hand-over.
func (l *ledger) add(deltas []cache.Delta, popped, stored int64) {
	l.deltas = append(l.deltas, deltas...)
	l.end(int32(len(l.deltas)), popped, stored)
}

// addBatch logs the hand-over of a batch.
func (l *ledger) addBatch(deltas []cache.Delta, popped, stored int64) {
	l.deltas = append(l.deltas, deltas...)
	l.end(-int32(len(l.deltas)), popped, stored)
}

// addObject logs the hand-over of an object.
func (l *ledger) addObject(obj any, popped, stored int64) {
	l.deltas = append(l.deltas, cache.Delta{Object: obj})
	l.end(int32(len(l.deltas)), popped, stored)
}

func (l *ledger) end(at int32, popped, stored int64) {
	l.ends = append(l.ends, at)
	switch {
	case popped != 0:
		l.marked = len(l.deltas)
		l.marks = append(l.marks, mark{l.marked, popped, stored})
		l.progress.Add(1)
	case l.st.none && len(l.deltas)-l.marked >= sampleEvery:
		l.marked = len(l.deltas)
		l.progress.Add(1)
	}
}

// finish gives what came after the last mark a reading.
func (l *ledger) finish() {
	if len(l.deltas) > l.marked && !l.st.none {
		now := l.st.now()
		l.marked = len(l.deltas)
		l.marks = append(l.marks, mark{l.marked, now, now})
	}
}

// promise is what a ledger is judged by.
type promise struct {
	total bool

	producers int

	latest bool

	identity bool

	relisted bool

	whole bool

	listed uint64
}

// overtaken reports, for each event by its number, whether a list of a version
// makes it unnecessary to hear of it: something newer happened to its key up to
// there, or the key was gone.
func overtaken(s *storm.Storm, version uint64) func(seq uint64) bool {
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

// producerOf divides the keys among the producers, so that the order of each
// key's events holds.
func producerOf(keyIndex int32, producers int) int { return int(keyIndex) % producers }

// judge is the state of judging one ledger.
type judge struct {
	promise
	s    *storm.Storm
	keys map[string]int32
	v    violations

	out uint64

	seen []bool

	newest   []uint64
	ofSource []uint64

	gone []bool

	inCall []int32
}

// judge checks the log against the storm and fills in the stamps of what was
// handed over. keys maps each key to its index.
func (l *ledger) judge(s *storm.Storm, keys map[string]int32, p promise) *judge {
	p.producers = max(1, p.producers)
	j := &judge{
		promise: p, s: s, keys: keys,
		seen:     make([]bool, len(s.Events)+1),
		newest:   make([]uint64, s.Keys),
		ofSource: make([]uint64, p.producers),
		gone:     make([]bool, s.Keys),
		inCall:   make([]int32, s.Keys),
	}
	var at mark
	next, pos := 0, 0
	for call, end := range l.ends {
		// What comes alone is of one key; a batch has no key twice.
		batch := end < 0
		end = max(end, -end)
		first := int32(-1)
		for ; pos < int(end); pos++ {
			for next < len(l.marks) && pos >= l.marks[next].upto {
				next++
			}
			if next < len(l.marks) {
				at = l.marks[next]
			}
			d := l.deltas[pos]
			switch info := d.Object.(type) {
			case cache.ReplacedAllInfo:
				for _, o := range info.Objects {
					j.delta(cache.Delta{Type: cache.Replaced, Object: o}, l.st, at)
				}
			case cache.BookmarkInfo, cache.SyncAllInfo:
			default:
				key := j.delta(d, l.st, at)
				if key < 0 {
					continue
				}
				switch {
				case !batch && first >= 0 && key != first:
					j.v.diverged.add("%s in a hand-over of %s", s.Events[j.newest[key]-1].Key, s.Events[j.newest[first]-1].Key)
				case batch && j.inCall[key] == int32(call+1):
					j.v.duplicated.add("%s twice in one batch", s.Events[j.newest[key]-1].Key)
				}
				first, j.inCall[key] = key, int32(call+1)
			}
		}
	}
	j.missing()
	return j
}

// delta judges one delta and returns its key's index, or -1 where it has none
// that can be told.
func (j *judge) delta(d cache.Delta, st *stamps, at mark) int32 {
	if t, ok := d.Object.(cache.DeletedFinalStateUnknown); ok {
		return j.tombstone(t)
	}
	seq := sequence(d.Object)
	if seq == 0 || seq > uint64(len(j.s.Events)) {
		j.v.diverged.add("%s of %T, which never went in", d.Type, d.Object)
		return -1
	}
	e := &j.s.Events[seq-1]
	if d.Type == cache.Sync {
		j.sync(e)
		return e.KeyIndex
	}
	again := j.relisted && (d.Type == cache.Replaced || d.Type == "") && j.newest[e.KeyIndex] == seq
	switch {
	case !allowed(d.Type, e.Type):
		j.v.diverged.add("event %d (%s %s) came out as %q", seq, e.Type, e.Key, d.Type)
	case j.identity && d.Object != any(e.Object):
		j.v.diverged.add("event %d (%s %s) came out with another object", seq, e.Type, e.Key)
	}
	if seq > uint64(j.s.Initial) {
		j.out++
	}
	if j.seen[seq] {
		if !again {
			j.v.duplicated.add("event %d (%s %s)", seq, e.Type, e.Key)
		}
		return e.KeyIndex
	}
	j.seen[seq] = true
	j.gone[e.KeyIndex] = false
	producer := producerOf(e.KeyIndex, j.producers)
	switch {
	case seq < j.newest[e.KeyIndex]:
		j.v.reordered.add("event %d (%s %s) after event %d of the same key", seq, e.Type, e.Key, j.newest[e.KeyIndex])
	case j.total && seq < j.ofSource[producer] && d.Type != cache.Replaced:
		j.v.reordered.add("event %d (%s %s) after event %d, where the order is total", seq, e.Type, e.Key, j.ofSource[producer])
	}
	j.newest[e.KeyIndex] = max(j.newest[e.KeyIndex], seq)
	j.ofSource[producer] = max(j.ofSource[producer], seq)
	st.popped[seq], st.stored[seq] = at.popped, at.stored
	return e.KeyIndex
}

// sync judges the news that an object is still what it was: it has to be what
// was heard last of its key.
func (j *judge) sync(e *storm.Event) {
	switch newest := j.newest[e.KeyIndex]; {
	case !j.seen[e.Seq]:
		j.v.diverged.add("event %d (%s %s) came out as a Sync first", e.Seq, e.Type, e.Key)
	case newest != e.Seq || j.gone[e.KeyIndex]:
		j.v.reordered.add("a Sync of event %d (%s %s) after event %d of the same key", e.Seq, e.Type, e.Key, newest)
	}
}

// tombstone judges the news that a key was gone when the source was listed
// again. Nothing else makes tombstones here.
func (j *judge) tombstone(t cache.DeletedFinalStateUnknown) int32 {
	key, ok := j.keys[t.Key]
	if !ok || !j.relisted {
		j.v.diverged.add("a tombstone of %q, which was not deleted unseen", t.Key)
		return -1
	}
	j.gone[key] = true
	if j.newest[key] == 0 {
		return -1
	}
	return key
}

// missing judges what was not handed over.
func (j *judge) missing() {
	over := overtaken(j.s, j.listed)
	// An initial list that was itself heard event by event need not have come
	// with all of them: what counts is what was left of each key.
	left := make([]uint64, j.s.Keys)
	for i := range j.s.Events[:j.s.Initial] {
		e := &j.s.Events[i]
		if left[e.KeyIndex] = e.Seq; e.Type == watch.Deleted {
			left[e.KeyIndex] = 0
		}
	}
	if j.latest {
		for key, seq := range j.s.Final() {
			if at := j.newest[j.s.Events[seq-1].KeyIndex]; at < seq {
				j.v.lost.add("event %d, the last of %s (handed over: up to %d)", seq, key, at)
			}
		}
		return
	}
	for seq := 1; seq < len(j.seen); seq++ {
		e := &j.s.Events[seq-1]
		if seq <= j.s.Initial && left[e.KeyIndex] != e.Seq {
			continue
		}
		excused := j.relisted && !j.whole && (j.newest[e.KeyIndex] > e.Seq || j.gone[e.KeyIndex] || over(e.Seq))
		if !j.seen[seq] && !excused {
			j.v.lost.add("event %d (%s %s)", seq, e.Type, e.Key)
		}
	}
}

// allowed reports whether an event may come out as a delta of that type.
func allowed(t cache.DeltaType, e watch.EventType) bool {
	switch t {
	case cache.Added:
		return e == watch.Added
	case cache.Updated:
		return e == watch.Modified
	case cache.Deleted:
		return e == watch.Deleted
	case cache.Replaced, "":
		return e != watch.Deleted
	default:
		return false
	}
}

// completeByKey gives the events that have no stamp that of the next version
// of their key. latest: a deletion takes what waits with it, so that nothing
// that comes later completes it.
func completeByKey(s *storm.Storm, stamp []int64, latest bool) {
	next := make([]int64, s.Keys)
	for _, e := range slices.Backward(s.Events) {
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

// keyIndexes maps the keys of a storm to their indexes.
func keyIndexes(s *storm.Storm) map[string]int32 {
	m := make(map[string]int32, s.Keys)
	for i := range s.Events {
		m[s.Events[i].Key] = s.Events[i].KeyIndex
	}
	return m
}
