package observe

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
)

// LookUps records what a worker found in the indexer.
type LookUps struct {
	record[lookUp]
	st      *Stamps
	stamped int // length of the log at the last clock reading
}

// lookUp is the key and the object in the indexer, nil for none. at is 0 if the clock was not read.
type lookUp struct {
	key string
	obj any
	at  int64
}

// NewLookUps returns an empty log with room for a number of look-ups.
func NewLookUps(st *Stamps, room int) *LookUps {
	l := &LookUps{st: st}
	l.reserve(room)
	return l
}

// Add logs a look-up.
func (l *LookUps) Add(key string, obj any) {
	item := lookUp{key: key, obj: obj}
	if s := l.st.Sampling; s == All || s == Sampled && len(l.log)+1-l.stamped >= SampleEvery {
		item.at = l.st.Now()
		l.stamped = len(l.log) + 1
	}
	l.add(item)
}

// Finish gives each look-up without a clock reading that of the next one.
func (l *LookUps) Finish() {
	next := l.st.Now()
	for i := len(l.log) - 1; i >= 0 && l.st.Sampling != All; i-- {
		l.log[i].at = cmp.Or(l.log[i].at, next)
		next = l.log[i].at
	}
}

// Reads returns the look-ups since the begin of the schedule.
func (l *LookUps) Reads() (out []Read) {
	for _, item := range l.log {
		if item.at >= l.st.start.Load() {
			out = append(out, Read{item.at, item.at})
		}
	}
	return out
}

// Check checks that each key was looked up up to the last event that the handlers saw, and never backwards. A
// list hides an object that came and went before it. Check fills in the handled stamps: an event is handled when
// its version or a newer one is looked up.
func (l *LookUps) Check(v *Violations, handlers *Checked) {
	s, all := l.st.Storm, newHandledEvents(l.st)
	for _, item := range l.log {
		k, ok := handlers.keys[item.key]
		switch {
		case !ok:
			v.Add(lab.ErrDiverged, "the worker was given %q, which is not in the storm", item.key)
		case item.obj == nil:
			all[k].missing(item.at)
		default:
			if before := all[k].found(Sequence(item.obj), item.at); before != 0 {
				v.Add(lab.ErrReordered, "the worker found event %d of %s after event %d", Sequence(item.obj), item.key, before)
			}
		}
	}
	for k := range all {
		own := &all[k]
		last := len(own.seqs) - 1
		if own.missingAt != 0 && own.deleted(last) {
			own.handle(last+1, own.missingAt)
		}
		if own.upto > last || !handlers.gone[k] && handlers.newest[k] < own.seqs[own.upto] {
			continue
		}
		// An object that was gone before the begin has no event to handle.
		if seq := own.seqs[last]; seq > uint64(s.Initial) || !own.deleted(last) {
			v.Add(lab.ErrLost, "event %d (%s) was never worked on", seq, s.Events[seq-1].Key)
		}
	}
}

// handledEvents are the events of a key, and how many of them are handled.
type handledEvents struct {
	st        *Stamps
	seqs      []uint64
	upto      int
	missingAt int64 // time of the last look-up if it found no object; else 0
}

func newHandledEvents(st *Stamps) []handledEvents {
	all := make([]handledEvents, st.Storm.Keys)
	for i := range st.Storm.Events {
		e := &st.Storm.Events[i]
		all[e.KeyIndex].st = st
		all[e.KeyIndex].seqs = append(all[e.KeyIndex].seqs, e.Seq)
	}
	return all
}

func (h *handledEvents) deleted(i int) bool {
	return h.st.Storm.Events[h.seqs[i]-1].Type == watch.Deleted
}

// handle stamps the first n events.
func (h *handledEvents) handle(n int, at int64) {
	for ; h.upto < n; h.upto++ {
		h.st.at[handled][h.seqs[h.upto]] = at
	}
}

// found handles the events up to a version. It returns a newer version that was found before; 0 for none.
func (h *handledEvents) found(seq uint64, at int64) (before uint64) {
	h.missingAt = 0
	if h.upto > 0 && seq < h.seqs[h.upto-1] && !h.deleted(h.upto-1) {
		return h.seqs[h.upto-1]
	}
	n, _ := slices.BinarySearch(h.seqs, seq+1)
	h.handle(n, at)
	return 0
}

// missing handles the last deletion that was stored by then. Sampled stamps do not show which one
// that is. Then it is the next deletion, or the same one if the look-up before found no object either.
func (h *handledEvents) missing(at int64) {
	again := h.missingAt != 0
	h.missingAt = at
	next, last := -1, -1
	for n := h.upto; n < len(h.seqs); n++ {
		if !h.deleted(n) {
			continue
		}
		if next < 0 {
			next = n
		}
		if stamp := h.st.at[stored][h.seqs[n]]; h.st.Sampling == All && stamp != 0 && stamp <= at {
			last = n
		}
	}
	switch {
	case last >= 0:
		h.handle(last+1, at)
	case next >= 0 && !again:
		h.handle(next+1, at)
	}
}

// Freshness computes the lag of a store behind the source at any time of a play. It
// needs all stamps.
type Freshness struct {
	released []int64  // release time of each event after the initial list, made monotonic
	stored   []int64  // times at which the store's newest event changed
	newest   []uint64 // that event
	initial  uint64
}

// Freshness returns that of the store, after the checks.
func (s *Stamps) Freshness() *Freshness {
	f := &Freshness{initial: uint64(s.initial)}
	latest := int64(0)
	for _, at := range s.at[released][min(s.initial+1, len(s.at[released])):] {
		latest = max(latest, at)
		f.released = append(f.released, latest)
	}
	type event struct {
		at  int64
		seq uint64
	}
	var events []event
	for seq, at := range s.at[stored] {
		if at != 0 && seq > s.initial {
			events = append(events, event{at, uint64(seq)})
		}
	}
	slices.SortFunc(events, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.seq, b.seq))
	})
	newest := f.initial
	for _, e := range events {
		if e.seq > newest {
			newest = e.seq
			f.stored, f.newest = append(f.stored, e.at), append(f.newest, newest)
		}
	}
	return f
}

// behind returns the number of events that were released by one time and are newer than the store's
// content at an earlier time. age is the time since the release of the first of them. O(log n).
func (f *Freshness) behind(stored, released int64) (events uint64, age time.Duration) {
	// The number of the newest event that had been released.
	out := f.initial + uint64(sort.Search(len(f.released), func(i int) bool { return f.released[i] > released }))
	in := f.initial
	if i := sort.Search(len(f.stored), func(i int) bool { return f.stored[i] > stored }); i > 0 {
		in = f.newest[i-1]
	}
	if out <= in {
		return 0, 0
	}
	return out - in, time.Duration(released - f.released[in-f.initial])
}

// Read is a read of the store: what was stored at Begin is used at End.
type Read struct{ Begin, End int64 }

// Report records the staleness of reads: ages as latencies, and quantiles of the events
// as notes.
func (f *Freshness) Report(rec *cell.Recorder, boundary cell.Boundary, reads []Read) {
	if len(reads) == 0 {
		return
	}
	behind := make([]uint64, len(reads))
	for i, r := range reads {
		var age time.Duration
		behind[i], age = f.behind(r.Begin, r.End)
		rec.Latency(boundary, age)
	}
	slices.Sort(behind)
	for _, q := range []struct {
		name string
		of   float64
	}{{"p50", 0.5}, {"p99", 0.99}, {"max", 1}} {
		n := behind[min(len(behind)-1, int(q.of*float64(len(behind))))]
		rec.Note(fmt.Sprintf("%s-%s-events", boundary, q.name), float64(n))
	}
}
