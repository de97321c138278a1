package pipeline

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"time"

	"watchlab/bench/cell"
)

// Staleness is the age of the oldest released event that the store lacked at a worker's look-up.
const Staleness cell.Boundary = "staleness"

// ListStaleness is the same at a reader's list.
const ListStaleness cell.Boundary = "list-staleness"

// freshness computes the lag of the store behind the source at any time of a play. It
// needs all stamps.
type freshness struct {
	released []int64  // release time of each event after the initial list, made monotonic
	stored   []int64  // times at which the store's newest event changed
	newest   []uint64 // that event
	initial  uint64
}

func freshnessOf(s *stamps) *freshness {
	f := &freshness{initial: uint64(s.initial)}
	latest := int64(0)
	for _, at := range s.released[min(s.initial+1, len(s.released)):] {
		latest = max(latest, at)
		f.released = append(f.released, latest)
	}
	type event struct {
		at  int64
		seq uint64
	}
	var events []event
	for seq, at := range s.stored {
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
func (f *freshness) behind(stored, released int64) (events uint64, age time.Duration) {
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

// lookUp is a read of the store: what was stored at begin is used at end.
type lookUp struct{ begin, end int64 }

// report records the staleness of look-ups: ages as latencies, and quantiles of the events
// as notes.
func (f *freshness) report(rec *cell.Recorder, boundary cell.Boundary, lookUps []lookUp) {
	if len(lookUps) == 0 {
		return
	}
	behind := make([]uint64, len(lookUps))
	for i, l := range lookUps {
		var age time.Duration
		behind[i], age = f.behind(l.begin, l.end)
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
