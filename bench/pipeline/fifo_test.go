package pipeline

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/impls"
)

// repeater is a queue that hands over the same object repeatedly.
type repeater struct {
	consumable
	obj  any
	left int
}

func (r *repeater) Pop(process cache.PopProcessFunc) (any, error) {
	if r.left == 0 {
		return nil, cache.ErrFIFOClosed
	}
	r.left--
	return r.obj, process(r.obj, false)
}

// repeaterInBatches is a repeater with PopBatch.
type repeaterInBatches struct {
	*repeater
	deltas []cache.Delta
}

func (r *repeaterInBatches) PopBatch(batch cache.ProcessBatchFunc, _ cache.PopProcessFunc) error {
	if r.left == 0 {
		return cache.ErrFIFOClosed
	}
	r.left--
	return batch(r.deltas, false)
}

// TestConsumerAllocatesNothing: while the clock runs, only the queue allocates.
func TestConsumerAllocatesNothing(t *testing.T) {
	s := tiny()
	const handOvers = 1000
	deltas := cache.Deltas{{Type: cache.Updated, Object: s.Events[2].Object}}
	for title, queue := range map[string]func() consumable{
		"objects": func() consumable { return &repeater{obj: s.Events[2].Object, left: handOvers} },
		"deltas":  func() consumable { return &repeater{obj: deltas, left: handOvers} },
		"batches": func() consumable {
			return &repeaterInBatches{repeater: &repeater{left: handOvers}, deltas: deltas}
		},
	} {
		for _, several := range []bool{false, true} {
			st := newStamps(len(s.Events), true, "")
			w := &fifo{handling: newHandling(0), w: &workload{st: st}}
			if several {
				w.turns = newTurns(s)
			}
			log := newDeliveryLog(st, 3*handOvers)
			log.turns = make([]turn, 0, 3*handOvers)
			n := testing.AllocsPerRun(1, func() {
				w.queue = queue()
				if err := w.consume(t.Context(), log); err != nil {
					t.Error(err)
				}
			})
			if n > 20 {
				t.Errorf("%s, several consumers %v: %v allocations in %d hand-overs", title, several, n, handOvers)
			}
			if len(log.ends) != 2*handOvers {
				t.Errorf("%s: %d hand-overs were logged", title, len(log.ends))
			}
		}
	}
}

// TestMerged merges the logs of two consumers.
func TestMerged(t *testing.T) {
	s := tiny()
	// entry is a hand-over of one event: the n-th turn of its key, at a time.
	type entry struct {
		seq  int
		turn uint32
		at   int64
	}
	log := func(entries ...entry) *deliveryLog {
		l := newDeliveryLog(newStamps(len(s.Events), true, ""), len(s.Events))
		for _, e := range entries {
			l.add([]cache.Delta{{Type: cache.Replaced, Object: s.Events[e.seq-1].Object}}, false, e.at, e.at)
			l.turns = append(l.turns, turn{s.Events[e.seq-1].KeyIndex, e.turn})
		}
		return l
	}
	for title, tc := range map[string]struct {
		logs []*deliveryLog
		want []int
		err  error
	}{
		"one has all":          {[]*deliveryLog{log(entry{1, 1, 10}, entry{2, 1, 20}, entry{3, 3, 30}), log()}, []int{1, 3, 2}, nil},
		"the second was first": {[]*deliveryLog{log(entry{3, 3, 30}, entry{4, 3, 40}), log(entry{1, 1, 10}, entry{2, 1, 20})}, []int{1, 3, 2, 4}, nil},
		"to and fro":           {[]*deliveryLog{log(entry{1, 1, 10}, entry{6, 5, 50}), log(entry{2, 1, 15}, entry{3, 3, 20})}, []int{1, 3, 6, 2}, nil},
		"backwards":            {[]*deliveryLog{log(entry{3, 1, 30}), log(entry{1, 3, 10})}, []int{3, 1}, nil},
		"both at once":         {[]*deliveryLog{log(entry{1, 1, 10}), log(entry{3, 2, 11})}, []int{1, 3}, lab.ErrReordered},
	} {
		t.Run(title, func(t *testing.T) {
			var v violations
			all := mergeLogs(tc.logs, &v)
			var got []int
			for i, d := range all.deltas {
				got = append(got, int(sequence(d.Object)))
				if m := all.readings[i]; m.upto != i+1 || m.popped%10 != 0 && m.popped != 15 && m.popped != 11 {
					t.Errorf("delta %d has the reading %+v", i, m)
				}
			}
			if len(got) != len(tc.want) {
				t.Fatalf("merged %v, want %v", got, tc.want)
			}
			for i := range got {
				if got[i] != tc.want[i] {
					t.Fatalf("merged %v, want %v", got, tc.want)
				}
			}
			if err := v.err(); !errors.Is(err, tc.err) {
				t.Errorf("%v, want %v", err, tc.err)
			}
		})
	}
}

// TestTwoConsumersWithOneKey: the merge reports a key that two consumers had at once,
// even if everything else is in order.
func TestTwoConsumersWithOneKey(t *testing.T) {
	s := tiny()
	for title, tc := range map[string]struct {
		second uint32
		want   error
	}{"one after the other": {3, nil}, "both at once": {2, lab.ErrReordered}} {
		f := &fifo{handling: newHandling(0), turns: newTurns(s)}
		w := &workload{
			guarantees: impls.Guarantees{Order: impls.OrderPerKey, Coalesces: impls.CoalesceLatest},
			st:         newStamps(len(s.Events), false, StampsNone), stages: f,
			score: &score{
				Storm: s,
				parts: func() [][]call { return make([][]call, 1) },
				keys:  func() map[string]int32 { return keyIndexes(s) },
			},
		}
		for i, seqs := range [][]int{{1, 4}, {6}} {
			l := newDeliveryLog(w.st, len(s.Events))
			for _, seq := range seqs {
				l.add([]cache.Delta{{Object: s.Events[seq-1].Object}}, false, 0, 0)
				n := uint32(1)
				if i == 1 {
					n = tc.second
				}
				l.turns = append(l.turns, turn{s.Events[seq-1].KeyIndex, n})
			}
			f.logs = append(f.logs, l)
		}
		var rec cell.Recorder
		rec.Begin()
		rec.End()
		v := f.check(w, &rec).broken
		if err := v.err(); !errors.Is(err, tc.want) || tc.want == nil && err != nil {
			t.Errorf("%s: %v, want %v", title, err, tc.want)
		}
	}
}

// TestTurns: turns show a hand-over of a key while another consumer has the key.
func TestTurns(t *testing.T) {
	s := tiny()
	turns := newTurns(s)
	a := turns.begin(s.Events[0].Object)
	b := turns.begin(s.Events[1].Object)
	again := turns.begin(s.Events[2].Object)
	if a.n != 1 || b.n != 1 || again.n != 2 || again.key != a.key {
		t.Errorf("turns %v, %v of another key, %v while the first is under way", a, b, again)
	}
	turns.end([]turn{a, again})
	if n := turns.begin(s.Events[2].Object); n.n != 5 {
		t.Errorf("the third turn is %v", n)
	}
	if n := turns.begin(&cache.DeletedFinalStateUnknown{}); n.key != -1 {
		t.Errorf("what isn't of the storm has turn %v", n)
	}
}

// TestHandling: the work takes about the cost, and no time while handling is off.
func TestHandling(t *testing.T) {
	short, long := newHandling(10*time.Microsecond), newHandling(100*time.Microsecond)
	if ratio := float64(long.turns) / float64(short.turns); ratio < 9.9 || ratio > 10.1 {
		t.Errorf("%d turns for 10 µs, %d for 100 µs", short.turns, long.turns)
	}
	if newHandling(0).costs() || !short.costs() {
		t.Error("a cost of 0 costs, or one of 10 µs doesn't")
	}
	// It would take an hour if handling were on.
	hour := newHandling(time.Hour)
	hour.do(1)
	x, y := uint64(seed), uint64(seed)
	spin(&x, 1000)
	spin(&y, 999)
	if x == y {
		t.Error("turns do nothing")
	}
}

// held is a queue whose lock is sometimes held.
type held struct {
	n     int
	holds map[int]time.Duration
}

func (h *held) HasSynced() bool {
	h.n++
	time.Sleep(h.holds[h.n])
	return true
}

// TestProbeFindsTheLongest runs in the fake time of a synctest bubble.
func TestProbeFindsTheLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &lockProbe{queue: &held{holds: map[int]time.Duration{3: 200 * time.Microsecond, 5: 700 * time.Microsecond, 8: 100 * time.Microsecond}}, empty: emptyQueue{}}
		var rec cell.Recorder
		rec.Begin()
		stop := p.start()
		time.Sleep(20*probeEvery + probeEvery/2)
		stop()
		rec.End()
		rec.Count(1, 1)
		p.note(&rec)
		if p.hold != 700*time.Microsecond || p.floor != 0 || p.calls != 20 {
			t.Errorf("hold %v, floor %v, called %d times; want 700µs, 0, 20", p.hold, p.floor, p.calls)
		}
		res, err := rec.Result()
		if err != nil || len(res.Notes) != 3 || res.Notes[0] != (cell.Note{Unit: "lock-hold-max-ns", Value: 700_000}) {
			t.Errorf("%v, %v", res.Notes, err)
		}
	})
}

// TestMoments: each moment has its released, handled and waiting events.
func TestMoments(t *testing.T) {
	st := newStamps(5, true, "")
	st.initial = 1
	st.start.Store(1000)
	//                 initial  ----------- the events ------------
	st.released = []int64{0, 5, 1000, 1100, 1200, 1300}
	st.enqueued = []int64{0, 6, 1010, 1110, 1220, 1310}
	// The third event is popped before its Add returns. The last one is never handed over.
	st.popped = []int64{0, 7, 1310, 1105, 1330, 0}
	st.handled = []int64{0, 8, 1400, 1200, 1400, 0}
	moments := st.moments(st.popped)
	if len(moments) != 134 { // 400 ns, in intervals of 3
		t.Fatalf("%d moments", len(moments))
	}
	released, handled := uint64(0), uint64(0)
	depthAt := func(at int64) uint64 { return moments[at/3].Depth }
	for _, m := range moments {
		released, handled = released+m.Released, handled+m.Handled
	}
	if released != 4 || handled != 3 {
		t.Errorf("%d released, %d handled; want 4, 3", released, handled)
	}
	if moments[0].Released != 1 || moments[0].At != 3 || moments[133].Handled != 2 {
		t.Errorf("first %+v, last %+v", moments[0], moments[133])
	}
	for at, want := range map[int64]uint64{0: 0, 15: 1, 120: 1, 230: 2, 320: 1, 340: 0, 400: 0} {
		if got := depthAt(at); got != want {
			t.Errorf("%d wait at %d ns, want %d", got, at, want)
		}
	}
	st.released, st.enqueued, st.popped, st.handled = make([]int64, 6), make([]int64, 6), make([]int64, 6), make([]int64, 6)
	if m := st.moments(st.popped); m != nil {
		t.Errorf("moments of nothing: %v", m)
	}
}

// TestFreshness: the staleness of the store in events and in time.
func TestFreshness(t *testing.T) {
	st := newStamps(6, true, "")
	st.initial = 2
	// Two events of the initial list, then a release every 10 ns from 100 on.
	st.released = []int64{0, 0, 0, 100, 110, 120, 130}
	// The fifth event is stored before the fourth, as per-key delivery allows.
	st.stored = []int64{0, 1, 2, 105, 135, 125, 140}
	f := freshnessOf(st)
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
	none := newStamps(2, true, "")
	none.initial = 2
	if events, age := freshnessOf(none).behind(5, 5); events != 0 || age != 0 {
		t.Errorf("without events: %d, %v", events, age)
	}
}

func TestNamespaces(t *testing.T) {
	s := tiny()
	if got := namespacesOf(s); len(got) != 1 || got[0] != "n" {
		t.Errorf("%q", got)
	}
	s.Events[0].Key = "node-a"
	if got := namespacesOf(s); len(got) != 2 || got[0] != "" {
		t.Errorf("%q, want one for objects without, too", got)
	}
}

// BenchmarkProbe measures the cost of the probe: the process's CPU time in a second with
// it and without.
func BenchmarkProbe(b *testing.B) {
	for _, on := range []bool{false, true} {
		b.Run(fmt.Sprintf("probe=%v", on), func(b *testing.B) {
			var spent, passed time.Duration
			for b.Loop() {
				var p *lockProbe
				if on {
					p = &lockProbe{queue: emptyQueue{}, empty: emptyQueue{}}
				}
				var rec cell.Recorder
				rec.Begin()
				stop := p.start()
				time.Sleep(time.Second)
				stop()
				rec.End()
				rec.Count(1, 1)
				res, err := rec.Result()
				if err != nil {
					b.Fatal(err)
				}
				spent += time.Duration(res.CPUSecondsPerEvent * float64(time.Second))
				passed += res.Elapsed
			}
			b.ReportMetric(float64(spent)/float64(passed), "processors")
		})
	}
}
