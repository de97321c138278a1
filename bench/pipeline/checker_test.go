package pipeline

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"watchlab/bench/lab"
	"watchlab/loadgen/storm"
)

// tiny is a storm with the initial list a@1, then added b@2, modified a@3, modified b@4,
// deleted a@5 and added a@6.
func tiny() *storm.Storm {
	s := &storm.Storm{Name: "tiny", Initial: 1, Keys: 2}
	for i, e := range []struct {
		kind watch.EventType
		name string
		key  int32
	}{
		{watch.Added, "a", 0}, {watch.Added, "b", 1}, {watch.Modified, "a", 0},
		{watch.Modified, "b", 1}, {watch.Deleted, "a", 0}, {watch.Added, "a", 0},
	} {
		s.Events = append(s.Events, storm.Event{
			Type: e.kind, Seq: uint64(i + 1), Key: "n/" + e.name, KeyIndex: e.key,
			Object: numbered(e.name, string(rune('1'+i))),
		})
	}
	return s
}

func numbered(name, rv string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, ResourceVersion: rv}}
}

func TestChecker(t *testing.T) {
	s := tiny()
	delta := func(kind cache.DeltaType, seq int) cache.Delta {
		return cache.Delta{Type: kind, Object: s.Events[seq-1].Object}
	}
	list := cache.Delta{Type: cache.ReplacedAll, Object: cache.ReplacedAllInfo{Objects: []any{s.Events[0].Object}}}
	rest := []cache.Delta{delta(cache.Added, 2), delta(cache.Updated, 3), delta(cache.Updated, 4), delta(cache.Deleted, 5), delta(cache.Added, 6)}
	type batch []cache.Delta
	each := func(ds ...cache.Delta) (out []any) {
		for _, d := range ds {
			out = append(out, d)
		}
		return out
	}
	strict := expectations{total: true, identity: true}
	for title, tc := range map[string]struct {
		handed []any
		expectations
		want     []error
		mentions string
	}{
		"all, in order":            {handed: append([]any{list}, each(rest...)...), expectations: strict},
		"all, in batches":          {handed: []any{list, batch(rest[:2]), batch(rest[2:4]), rest[4]}, expectations: strict},
		"per key":                  {handed: []any{cache.Deltas{delta(cache.Replaced, 1), rest[1], rest[3], rest[4]}, cache.Deltas{rest[0], rest[2]}}, expectations: expectations{identity: true}},
		"per key isn't in order":   {handed: []any{cache.Deltas{delta(cache.Replaced, 1), rest[1], rest[3], rest[4]}, cache.Deltas{rest[0], rest[2]}}, expectations: strict, want: []error{lab.ErrReordered}, mentions: "total"},
		"one lost":                 {handed: append([]any{list}, each(rest[0], rest[1], rest[3], rest[4])...), expectations: strict, want: []error{lab.ErrLost}, mentions: "event 4 (MODIFIED n/b)"},
		"the list lost":            {handed: each(rest...), expectations: strict, want: []error{lab.ErrLost}, mentions: "event 1"},
		"one twice":                {handed: append([]any{list, rest[0]}, each(rest...)...), expectations: strict, want: []error{lab.ErrDuplicated}, mentions: "event 2"},
		"two of a key swapped":     {handed: append([]any{list}, each(rest[2], rest[0], rest[1], rest[3], rest[4])...), expectations: expectations{identity: true}, want: []error{lab.ErrReordered}, mentions: "same key"},
		"a key twice in a batch":   {handed: []any{list, batch(rest[:3]), rest[3], rest[4]}, expectations: strict, want: []error{lab.ErrDuplicated}, mentions: "n/b twice in one batch"},
		"two keys in a hand-over":  {handed: []any{list, cache.Deltas(rest[:2]), rest[2], rest[3], rest[4]}, expectations: strict, want: []error{lab.ErrDiverged}, mentions: "hand-over"},
		"another type":             {handed: append([]any{list, delta(cache.Updated, 2)}, each(rest[1:]...)...), expectations: strict, want: []error{lab.ErrDiverged}, mentions: `came out as "Updated"`},
		"another object":           {handed: append([]any{list, cache.Delta{Type: cache.Added, Object: s.Events[1].Object.DeepCopyObject()}}, each(rest[1:]...)...), expectations: strict, want: []error{lab.ErrDiverged}, mentions: "another object"},
		"one from nowhere":         {handed: append([]any{list, cache.Delta{Type: cache.Added, Object: numbered("z", "77")}}, each(rest...)...), expectations: strict, want: []error{lab.ErrDiverged}, mentions: "never went in"},
		"a tombstone from nowhere": {handed: append([]any{list, cache.Delta{Type: cache.Deleted, Object: cache.DeletedFinalStateUnknown{Key: "n/a"}}}, each(rest...)...), expectations: strict, want: []error{lab.ErrDiverged}, mentions: "tombstone"},
		"lost and twice":           {handed: append([]any{list, rest[0], rest[0]}, each(rest[2:]...)...), expectations: strict, want: []error{lab.ErrLost, lab.ErrDuplicated}},
		"two producers have an order each": {
			handed:       append([]any{list}, each(rest[1], rest[0], rest[3], rest[2], rest[4])...),
			expectations: expectations{total: true, producers: 2},
		},
		"after a relist, what it skipped is not lost": {
			handed: []any{list, rest[0], cache.Delta{Type: cache.ReplacedAll, Object: cache.ReplacedAllInfo{
				Objects: []any{s.Events[5].Object, s.Events[3].Object, s.Events[3].Object},
			}}},
			expectations: expectations{total: true, relisted: true},
		},
		"after a relist, a tombstone stands for the deletion": {
			handed:       []any{list, rest[0], rest[2], cache.Delta{Type: cache.Deleted, Object: cache.DeletedFinalStateUnknown{Key: "n/a"}}, rest[4]},
			expectations: expectations{total: true, relisted: true},
		},
		"after a relist at 5, a key that is gone is not lost": {
			handed: []any{list, rest[0], cache.Delta{Type: cache.ReplacedAll, Object: cache.ReplacedAllInfo{
				Objects: []any{s.Events[3].Object},
			}}, rest[4]},
			expectations: expectations{total: true, relisted: true, listed: 5},
		},
		"what a relist at 4 showed is lost": {
			handed:       []any{list, rest[0], rest[3], rest[4]},
			expectations: expectations{total: true, relisted: true, listed: 4}, want: []error{lab.ErrLost}, mentions: "event 4",
		},
		"what came after a relist at 2 is lost": {
			handed:       []any{list, rest[0], rest[2]},
			expectations: expectations{total: true, relisted: true, listed: 2}, want: []error{lab.ErrLost}, mentions: "event 3",
		},
		"a list beside all events": {
			handed: []any{list, rest[0], rest[1], cache.Delta{Type: cache.ReplacedAll, Object: cache.ReplacedAllInfo{
				Objects: []any{s.Events[2].Object, s.Events[1].Object},
			}}, rest[2], rest[3], rest[4]},
			expectations: expectations{total: true, relisted: true, whole: true},
		},
		"a list beside all events excuses nothing": {
			handed: []any{list, rest[0], cache.Delta{Type: cache.ReplacedAll, Object: cache.ReplacedAllInfo{
				Objects: []any{s.Events[0].Object, s.Events[1].Object},
			}}, rest[2], rest[3], rest[4]},
			expectations: expectations{total: true, relisted: true, whole: true}, want: []error{lab.ErrLost}, mentions: "event 3",
		},
		"a resync of stored objects":             {handed: []any{list, rest[0], delta(cache.Sync, 1), delta(cache.Sync, 2), rest[1], rest[2], rest[3], rest[4]}, expectations: strict},
		"a resync of everything":                 {handed: []any{list, rest[0], cache.Delta{Type: cache.SyncAll, Object: cache.SyncAllInfo{}}, rest[1], rest[2], rest[3], rest[4]}, expectations: strict},
		"a resync of an older version":           {handed: []any{list, rest[0], rest[1], rest[2], delta(cache.Sync, 2), rest[3], rest[4]}, expectations: strict, want: []error{lab.ErrReordered}, mentions: "a Sync of event 2"},
		"a resync of an object before its event": {handed: []any{list, delta(cache.Sync, 2), rest[0], rest[1], rest[2], rest[3], rest[4]}, expectations: strict, want: []error{lab.ErrDiverged}, mentions: "as a Sync first"},
		"latest: the last of each key":           {handed: each(cache.Delta{Object: s.Events[0].Object}, cache.Delta{Object: s.Events[3].Object}, cache.Delta{Object: s.Events[5].Object}), expectations: expectations{latest: true, identity: true}},
		"latest: not the last":                   {handed: each(cache.Delta{Object: s.Events[0].Object}, cache.Delta{Object: s.Events[1].Object}, cache.Delta{Object: s.Events[5].Object}), expectations: expectations{latest: true}, want: []error{lab.ErrLost}, mentions: "the last of n/b"},
		"latest: a deletion":                     {handed: each(cache.Delta{Object: s.Events[3].Object}, cache.Delta{Object: s.Events[4].Object}, cache.Delta{Object: s.Events[5].Object}), expectations: expectations{latest: true}, want: []error{lab.ErrDiverged}},
	} {
		t.Run(title, func(t *testing.T) {
			st := newStamps(len(s.Events), true, "")
			l := newDeliveryLog(st, len(s.Events))
			for i, h := range tc.handed {
				at := int64(100 + i)
				switch h := h.(type) {
				case cache.Delta:
					l.add([]cache.Delta{h}, false, at, at)
				case cache.Deltas:
					l.add(h, false, at, at)
				case batch:
					l.add(h, true, at, at)
				}
			}
			err := func() error { j := l.check(s, keyIndexes(s), tc.expectations); return j.v.err() }()
			for _, kind := range []error{lab.ErrLost, lab.ErrReordered, lab.ErrDuplicated, lab.ErrDiverged} {
				wanted := false
				for _, w := range tc.want {
					wanted = wanted || errors.Is(w, kind)
				}
				if errors.Is(err, kind) != wanted {
					t.Errorf("%v: %v, wanted: %v", kind, err, wanted)
				}
			}
			if err != nil && !strings.Contains(err.Error(), tc.mentions) {
				t.Errorf("%v doesn't mention %q", err, tc.mentions)
			}
		})
	}
}

func TestClockIsReadOnceABatch(t *testing.T) {
	st := newStamps(6, false, "")
	l := newDeliveryLog(st, 6)
	s := tiny()
	for i := range s.Events {
		at := int64(0)
		if l.due(1) {
			at = 1
		}
		l.add([]cache.Delta{{Object: s.Events[i].Object}}, false, at, 0)
	}
	if len(l.readings) != 0 {
		t.Errorf("%d readings of the clock for %d events", len(l.readings), len(s.Events))
	}
	l.finish()
	l.check(s, keyIndexes(s), expectations{latest: true})
	for seq := 1; seq <= 6; seq++ {
		if st.popped[seq] == 0 {
			t.Errorf("event %d has no stamp, not even the last", seq)
		}
	}
	if !l.due(sampleEvery) {
		t.Error("a batch gets no reading")
	}
}

func TestCompleteByKey(t *testing.T) {
	s := tiny()
	// The second version of b coalesced the first; the deletion of a removed a@3.
	for latest, want := range map[bool][]int64{
		false: {0, 7, 40, 60, 40, 60, 60},
		true:  {0, 7, 40, 0, 40, 0, 60},
	} {
		stamp := []int64{0, 7, 0, 0, 40, 0, 60}
		completeByKey(s, stamp, latest)
		if diff := cmp.Diff(want, stamp); diff != "" {
			t.Errorf("latest %v (-want +got):\n%s", latest, diff)
		}
	}
}

// seenAll is the check of handlers that saw all events.
func seenAll(s *storm.Storm) *checker {
	c := &checker{newest: make([]uint64, s.Keys), gone: make([]bool, s.Keys)}
	for _, e := range s.Events {
		c.newest[e.KeyIndex] = e.Seq
	}
	return c
}

func TestWorkerCheck(t *testing.T) {
	s := tiny()
	at := func(seq int) any { return s.Events[seq-1].Object }
	for title, tc := range map[string]struct {
		log  []work
		want []int64
		err  error
		seen *checker // nil: the handlers saw all events
	}{
		"each":                   {[]work{{"n/a", at(1), 1}, {"n/b", at(2), 2}, {"n/a", at(3), 3}, {"n/b", at(4), 4}, {"n/a", nil, 5}, {"n/a", at(6), 6}}, []int64{0, 1, 2, 3, 4, 5, 6}, nil, nil},
		"folded":                 {[]work{{"n/b", at(4), 1}, {"n/a", at(6), 2}}, []int64{0, 2, 1, 2, 1, 2, 2}, nil, nil},
		"missing twice":          {[]work{{"n/b", at(4), 1}, {"n/a", nil, 2}, {"n/a", nil, 3}, {"n/a", at(6), 4}}, []int64{0, 2, 1, 2, 1, 2, 4}, nil, nil},
		"never":                  {[]work{{"n/b", at(4), 1}, {"n/a", nil, 2}}, nil, lab.ErrLost, nil},
		"backwards":              {[]work{{"n/b", at(4), 1}, {"n/b", at(2), 2}, {"n/a", at(6), 2}}, nil, lab.ErrReordered, nil},
		"a key from elsewhere":   {[]work{{"n/b", at(4), 1}, {"n/a", at(6), 2}, {"n/z", nil, 3}}, nil, lab.ErrDiverged, nil},
		"the same version again": {[]work{{"n/b", at(4), 1}, {"n/b", at(4), 2}, {"n/a", at(6), 3}}, []int64{0, 3, 1, 3, 1, 3, 3}, nil, nil},
		"hidden by a list":       {[]work{{"n/b", at(4), 1}, {"n/a", nil, 2}}, nil, nil, &checker{newest: []uint64{5, 4}, gone: make([]bool, 2)}},
		"all hidden by a list":   {[]work{{"n/b", at(4), 1}}, nil, nil, &checker{newest: []uint64{0, 4}, gone: make([]bool, 2)}},
		"a tombstone not worked": {[]work{{"n/a", at(1), 1}, {"n/b", at(4), 2}}, nil, lab.ErrLost, &checker{newest: []uint64{1, 4}, gone: []bool{true, false}}},
	} {
		t.Run(title, func(t *testing.T) {
			st := newStamps(len(s.Events), true, "")
			w := &worker{st: st, log: tc.log}
			var v violations
			if tc.seen == nil {
				tc.seen = seenAll(s)
			}
			w.check(&v, s, keyIndexes(s), tc.seen)
			if err := v.err(); !errors.Is(err, tc.err) {
				t.Errorf("%v, want %v", err, tc.err)
			}
			if tc.want != nil {
				if diff := cmp.Diff(tc.want, st.handled); diff != "" {
					t.Errorf("handled (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestSequence(t *testing.T) {
	for rv, want := range map[string]uint64{
		"1": 1, "123456789012345678": 123456789012345678, "": 0, "x": 0, "12x": 0, "-1": 0, "1234567890123456789": 0,
	} {
		if got := sequence(numbered("a", rv)); got != want {
			t.Errorf("%q: %d, want %d", rv, got, want)
		}
	}
	if got := sequence(&v1.Node{ObjectMeta: numbered("a", "9").ObjectMeta}); got != 9 {
		t.Errorf("a node: %d, want 9", got)
	}
	if got := sequence("nothing"); got != 0 {
		t.Errorf("a string: %d, want 0", got)
	}
	pod := any(numbered("a", "4711"))
	if n := testing.AllocsPerRun(100, func() { sequence(pod) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestAwait(t *testing.T) {
	for title, tc := range map[string]struct {
		done, moves, cancel, settled bool
		want                         error
		after                        time.Duration
	}{
		"done":                    {done: true},
		"stalled":                 {want: errStalled, after: time.Second},
		"moving until cancelled":  {moves: true, cancel: true, want: context.Canceled, after: 5 * time.Second},
		"settled":                 {settled: true, after: settledLooks * look},
		"settled, but not so yet": {settled: true, moves: true, cancel: true, want: context.Canceled, after: 5 * time.Second},
	} {
		t.Run(title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var progress atomic.Uint64
				done := make(chan struct{})
				if tc.done {
					close(done)
				}
				start := time.Now()
				if tc.cancel {
					time.AfterFunc(5*time.Second, cancel)
				}
				if tc.moves {
					go func() {
						tick := time.NewTicker(look / 2)
						defer tick.Stop()
						for {
							select {
							case <-tick.C:
								progress.Add(1)
							case <-ctx.Done():
								return
							}
						}
					}()
				}
				var settled func() bool
				if tc.settled {
					settled = func() bool { return true }
				}
				err := await(ctx, done, progress.Load, time.Second, settled)
				if !errors.Is(err, tc.want) {
					t.Errorf("%v, want %v", err, tc.want)
				}
				if took := time.Since(start); took < tc.after || took > tc.after+2*look {
					t.Errorf("after %v, want %v", took, tc.after)
				}
			})
		})
	}
}

// TestWorkerCheckTellsDeletionsApart: two look-ups find no object, and the worker missed
// an object in between. Both deletions are handled if the second was stored by then.
func TestWorkerCheckTellsDeletionsApart(t *testing.T) {
	s := &storm.Storm{Keys: 1}
	for i, typ := range []watch.EventType{watch.Added, watch.Deleted, watch.Added, watch.Deleted, watch.Added} {
		s.Events = append(s.Events, storm.Event{Type: typ, Seq: uint64(i + 1), Key: "n/a", Object: numbered("a", strconv.Itoa(i+1))})
	}
	for title, tc := range map[string]struct {
		stored []int64
		want   []int64
	}{
		"stored by then":     {[]int64{0, 3, 5, 13, 15, 25}, []int64{0, 10, 10, 20, 20, 30}},
		"not stored by then": {[]int64{0, 3, 5, 23, 25, 27}, []int64{0, 10, 10, 30, 30, 30}},
	} {
		t.Run(title, func(t *testing.T) {
			st := newStamps(len(s.Events), true, "")
			copy(st.stored, tc.stored)
			w := &worker{st: st, log: []work{{"n/a", nil, 10}, {"n/a", nil, 20}, {"n/a", s.Events[4].Object, 30}}}
			var v violations
			w.check(&v, s, keyIndexes(s), seenAll(s))
			if err := v.err(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, st.handled); diff != "" {
				t.Errorf("handled (-want +got):\n%s", diff)
			}
		})
	}
}
