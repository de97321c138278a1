package observe

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"watchlab/bench/cell"
	"watchlab/bench/internal/golden"
	"watchlab/bench/lab"
	"watchlab/loadgen/pace"
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

// stampsOf returns the stamps of a paced cell.
func stampsOf(s *storm.Storm) *Stamps { return NewStamps(Options{Storm: s, Paced: true}) }

// parseHandOver reads what a consumer gets at once, as testdata/check.txt writes it: "5" is the delta of event 5, "2:Sync"
// one of another type, "2:copy" one of a copy, "list(1,3)" a list, "[2,3]" a batch, "{2,3}" the deltas of a key,
// "unknown" an object that never went in, "tombstone" that of a, "sync" a resync of everything.
func parseHandOver(t *testing.T, s *storm.Storm, text string) (deltas []cache.Delta, batch bool) {
	t.Helper()
	object := func(seq string) any {
		n, err := strconv.Atoi(seq)
		if err != nil || n > len(s.Events) {
			t.Fatalf("there is no event %s", seq)
		}
		return s.Events[n-1].Object
	}
	if inner, ok := strings.CutPrefix(text, "list("); ok {
		var listed []any
		for seq := range strings.SplitSeq(strings.TrimSuffix(inner, ")"), ",") {
			listed = append(listed, object(seq))
		}
		return []cache.Delta{{Type: cache.ReplacedAll, Object: cache.ReplacedAllInfo{Objects: listed}}}, false
	}
	for part := range strings.SplitSeq(strings.Trim(text, "[]{}"), ",") {
		switch seq, as, marked := strings.Cut(part, ":"); {
		case part == "unknown":
			deltas = append(deltas, cache.Delta{Type: cache.Added, Object: numbered("z", "77")})
		case part == "tombstone":
			deltas = append(deltas, cache.Delta{Type: cache.Deleted, Object: cache.DeletedFinalStateUnknown{Key: "n/a"}})
		case part == "sync":
			deltas = append(deltas, cache.Delta{Type: cache.SyncAll, Object: cache.SyncAllInfo{}})
		case as == "copy":
			deltas = append(deltas, cache.Delta{Type: cache.Added, Object: object(seq).(*v1.Pod).DeepCopy()})
		case marked:
			deltas = append(deltas, cache.Delta{Type: cache.DeltaType(as), Object: object(seq)})
		default:
			kinds := map[string]cache.DeltaType{"2": cache.Added, "3": cache.Updated, "4": cache.Updated, "5": cache.Deleted, "6": cache.Added}
			deltas = append(deltas, cache.Delta{Type: kinds[seq], Object: object(seq)})
		}
	}
	return deltas, text[0] == '['
}

// TestCheck plays testdata/check.txt. A case has the expectations, the hand-overs, and after > what is violated.
func TestCheck(t *testing.T) {
	golden.Scripts(t, func(t *testing.T, _, script string) string {
		cases := strings.Split(script, "\n\n")
		for i, text := range cases {
			text, _, _ = strings.Cut(strings.TrimSpace(text), "\n>")
			lines := strings.Split(text, "\n")
			var x Expectations
			if err := yaml.Unmarshal([]byte(lines[1]), &x); err != nil {
				t.Fatalf("%s: %v", lines[1], err)
			}
			t.Run(lines[0], func(t *testing.T) {
				s := tiny()
				st := stampsOf(s)
				_, _ = fmt.Sscanf(lines[2], "%d producers:", &st.Producers)
				_, handed, _ := strings.Cut(lines[2], ": ")
				l := newLog(st, handled, len(s.Events))
				for i, h := range strings.Fields(handed) {
					deltas, batch := parseHandOver(t, s, h)
					l.Add(deltas, batch, int64(100+i), int64(100+i))
				}
				err := Check(KeyIndexes(s), x, l).Violations.Err()
				if err != nil {
					lines = append(lines, "> "+strings.ReplaceAll(err.Error(), "\n", "\n> "))
				}
			})
			cases[i] = strings.Join(lines, "\n")
		}
		return strings.Join(cases, "\n\n") + "\n"
	})
}

func TestClockIsReadOnceABatch(t *testing.T) {
	s := tiny()
	st := NewStamps(Options{Storm: s, Sampling: Sampled})
	l := newLog(st, handled, 6)
	for i := range s.Events {
		deltas := []cache.Delta{{Object: s.Events[i].Object}}
		l.Add(deltas, false, l.Begin(len(deltas)), 0)
	}
	if len(l.readings) != 0 {
		t.Errorf("%d readings of the clock for %d events", len(l.readings), len(s.Events))
	}
	l.Finish()
	Check(KeyIndexes(s), Expectations{Latest: true}, l)
	for seq := 1; seq <= 6; seq++ {
		if st.at[popped][seq] == 0 {
			t.Errorf("event %d has no stamp, not even the last", seq)
		}
	}
	if l.Begin(SampleEvery) == 0 {
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
func seenAll(s *storm.Storm) *Checked {
	c := &Checked{newest: make([]uint64, s.Keys), gone: make([]bool, s.Keys)}
	for _, e := range s.Events {
		c.newest[e.KeyIndex] = e.Seq
	}
	return c
}

func TestLookUps(t *testing.T) {
	s := tiny()
	at := func(seq int) any { return s.Events[seq-1].Object }
	for title, tc := range map[string]struct {
		log  []lookUp
		want []int64
		err  error
		seen *Checked // nil: the handlers saw all events
	}{
		"each":                   {[]lookUp{{"n/a", at(1), 1}, {"n/b", at(2), 2}, {"n/a", at(3), 3}, {"n/b", at(4), 4}, {"n/a", nil, 5}, {"n/a", at(6), 6}}, []int64{0, 1, 2, 3, 4, 5, 6}, nil, nil},
		"folded":                 {[]lookUp{{"n/b", at(4), 1}, {"n/a", at(6), 2}}, []int64{0, 2, 1, 2, 1, 2, 2}, nil, nil},
		"missing twice":          {[]lookUp{{"n/b", at(4), 1}, {"n/a", nil, 2}, {"n/a", nil, 3}, {"n/a", at(6), 4}}, []int64{0, 2, 1, 2, 1, 2, 4}, nil, nil},
		"never":                  {[]lookUp{{"n/b", at(4), 1}, {"n/a", nil, 2}}, nil, lab.ErrLost, nil},
		"backwards":              {[]lookUp{{"n/b", at(4), 1}, {"n/b", at(2), 2}, {"n/a", at(6), 2}}, nil, lab.ErrReordered, nil},
		"a key from elsewhere":   {[]lookUp{{"n/b", at(4), 1}, {"n/a", at(6), 2}, {"n/z", nil, 3}}, nil, lab.ErrDiverged, nil},
		"the same version again": {[]lookUp{{"n/b", at(4), 1}, {"n/b", at(4), 2}, {"n/a", at(6), 3}}, []int64{0, 3, 1, 3, 1, 3, 3}, nil, nil},
		"hidden by a list":       {[]lookUp{{"n/b", at(4), 1}, {"n/a", nil, 2}}, nil, nil, &Checked{newest: []uint64{5, 4}, gone: make([]bool, 2)}},
		"all hidden by a list":   {[]lookUp{{"n/b", at(4), 1}}, nil, nil, &Checked{newest: []uint64{0, 4}, gone: make([]bool, 2)}},
		"a tombstone not worked": {[]lookUp{{"n/a", at(1), 1}, {"n/b", at(4), 2}}, nil, lab.ErrLost, &Checked{newest: []uint64{1, 4}, gone: []bool{true, false}}},
	} {
		t.Run(title, func(t *testing.T) {
			st := stampsOf(s)
			w := &LookUps{st: st}
			w.log = tc.log
			var v Violations
			if tc.seen == nil {
				tc.seen = seenAll(s)
			}
			tc.seen.keys = KeyIndexes(s)
			w.Check(&v, tc.seen)
			if err := v.Err(); !errors.Is(err, tc.err) {
				t.Errorf("%v, want %v", err, tc.err)
			}
			if tc.want != nil {
				if diff := cmp.Diff(tc.want, st.at[handled]); diff != "" {
					t.Errorf("handled (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// TestLookUpsTellDeletionsApart: two look-ups find no object, and the worker missed
// an object in between. Both deletions are handled if the second was stored by then.
func TestLookUpsTellDeletionsApart(t *testing.T) {
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
			st := stampsOf(s)
			copy(st.at[stored], tc.stored)
			w := &LookUps{st: st}
			w.log = []lookUp{{"n/a", nil, 10}, {"n/a", nil, 20}, {"n/a", s.Events[4].Object, 30}}
			var v Violations
			seen := seenAll(s)
			seen.keys = KeyIndexes(s)
			w.Check(&v, seen)
			if err := v.Err(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, st.at[handled]); diff != "" {
				t.Errorf("handled (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSequence(t *testing.T) {
	for rv, want := range map[string]uint64{
		"1": 1, "123456789012345678": 123456789012345678, "": 0, "x": 0, "12x": 0, "-1": 0, "1234567890123456789": 0,
	} {
		if got := Sequence(numbered("a", rv)); got != want {
			t.Errorf("%q: %d, want %d", rv, got, want)
		}
	}
	if got := Sequence(&v1.Node{ObjectMeta: numbered("a", "9").ObjectMeta}); got != 9 {
		t.Errorf("a node: %d, want 9", got)
	}
	if got := Sequence("nothing"); got != 0 {
		t.Errorf("a string: %d, want 0", got)
	}
	pod := any(numbered("a", "4711"))
	if n := testing.AllocsPerRun(100, func() { Sequence(pod) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestFreshness: the staleness of the store in events and in time.
func TestFreshness(t *testing.T) {
	st := stampsOf(&storm.Storm{Initial: 2, Events: make([]storm.Event, 6)})
	// Two events of the initial list, then a release every 10 ns from 100 on.
	st.at[released] = []int64{0, 0, 0, 100, 110, 120, 130}
	// The fifth event is stored before the fourth, as per-key delivery allows.
	st.at[stored] = []int64{0, 1, 2, 105, 135, 125, 140}
	f := st.Freshness()
	for _, tc := range []struct {
		stored, released int64
		events           uint64
		age              time.Duration
	}{
		{99, 99, 0, 0},
		{100, 100, 1, 0},
		{104, 104, 1, 4},
		{105, 105, 0, 0},
		{110, 110, 1, 0},
		{124, 124, 2, 14},
		{125, 125, 0, 0}, // the newest is there, though one before it isn't
		{130, 130, 1, 0},
		{136, 136, 1, 6},
		{200, 200, 0, 0},
		{104, 131, 4, 31}, // a list that began long ago
	} {
		if events, age := f.behind(tc.stored, tc.released); events != tc.events || age != tc.age {
			t.Errorf("stored at %d, released at %d: %d events, %v behind; want %d, %v", tc.stored, tc.released, events, age, tc.events, tc.age)
		}
	}
	none := stampsOf(&storm.Storm{Initial: 2, Events: make([]storm.Event, 2)})
	if events, age := none.Freshness().behind(5, 5); events != 0 || age != 0 {
		t.Errorf("without events: %d, %v", events, age)
	}
}

// TestGeneratorLag: what is late because of calls is not the generator's; all else is.
func TestGeneratorLag(t *testing.T) {
	const ms = int64(time.Millisecond)
	// An event a millisecond. A release is at its time, or when the last call has returned.
	for name, tc := range map[string]struct {
		producers int
		slow      func(i int) int64 // before a release
		call      func(i int) int64 // inside it
		other     func(i int) int64 // inside a Replace before it
		late      int               // releases later than half a millisecond by the generator
		last      int64             // real lag of the last release, at least
	}{
		"on time":                    {},
		"one call":                   {call: at(10, 90*ms)},
		"each call":                  {call: always(3 * ms), last: 150 * ms},
		"a Replace":                  {other: at(10, 90*ms)},
		"slow wake-up":               {slow: at(10, 20*ms), late: 20},
		"slow loop":                  {slow: always(2 * ms), late: 100, last: 90 * ms},
		"both":                       {slow: at(10, 20*ms), call: always(3 * ms), late: 20, last: 150 * ms},
		"two producers, one blocked": {producers: 2, call: at(10, 90*ms)},
		"two producers, slow":        {producers: 2, slow: at(10, 20*ms), late: 10},
		"a source, slow":             {producers: -1, slow: at(10, 20*ms), late: 20},
		"a source, calls of others":  {producers: -1, slow: at(10, 20*ms), call: always(3 * ms), late: 20},
	} {
		t.Run(name, func(t *testing.T) {
			const n = 100
			var rec cell.Recorder
			rec.Begin()
			s := &storm.Storm{}
			for i := range n {
				s.Events = append(s.Events, storm.Event{KeyIndex: int32(i)})
			}
			producers := max(tc.producers, 1)
			if tc.producers < 0 {
				producers = 0
			}
			st := NewStamps(Options{Storm: s, Schedule: pace.Rate(1000), Paced: true, Producers: producers, Budget: time.Millisecond / 2})
			st.start.Store(1000 * ms)
			ready := make([]int64, max(tc.producers, 1))
			for i := range n {
				seq, r := uint64(i+1), &ready[i%len(ready)]
				intended, _ := st.intended(seq)
				if d := of(tc.other, i); d > 0 {
					*r += d
					st.controlCalls.Store(seq, d)
				}
				st.at[released][seq] = max(*r, intended) + of(tc.slow, i)
				st.at[enqueued][seq] = st.at[released][seq] + of(tc.call, i)
				st.at[handled][seq] = st.at[enqueued][seq]
				if *r = st.at[released][seq]; st.Producers > 0 {
					*r = st.at[enqueued][seq]
				}
			}
			rec.End()
			st.Report(&rec, Outcome{Out: n})
			res, err := rec.Result()
			if err != nil {
				t.Fatal(err)
			}
			if got := int(res.Lag.Late); got < tc.late*9/10 || got > tc.late {
				t.Errorf("%d late releases of the generator, want %d", got, tc.late)
			}
			intended, _ := st.intended(n)
			if lag := st.at[released][n] - intended; lag < tc.last {
				t.Errorf("the last release is %v late, want %v: the test is wrong", time.Duration(lag), time.Duration(tc.last))
			}
			if l, _ := res.At(Handled); tc.call != nil && int64(l.Max) < 3*ms {
				t.Errorf("%s leaves out the wait: %v", Handled, fmt.Sprint(l.Max))
			}
		})
	}
}

func at(i int, d int64) func(int) int64 {
	return func(j int) int64 {
		if i == j {
			return d
		}
		return 0
	}
}

func always(d int64) func(int) int64 { return func(int) int64 { return d } }

func of(f func(int) int64, i int) int64 {
	if f == nil {
		return 0
	}
	return f(i)
}
